"""Ranks of tiktoken: bpe_more/formats/tiktoken.py."""

import base64
import time

import pytest

import bpe
from bpe_more.formats.tiktoken import read_tiktoken
from bpe_more.tokenizer import Tokenizer
from foreign import LFS_POINTER
from shared import trained
from test_bpe import END, PART, need


@pytest.mark.parametrize("pattern", ["gpt2", "o200k"])
def test_the_ranks_of_tiktoken_give_every_split_of_each_token(tmp_path, pattern):
    vocab, merges = trained(2000, pattern)
    ranks = [token for token in vocab.values() if token != END.encode()]  # bytes, then merges: the ids of tiktoken
    ranks.append(b"")  # as Whisper's has it, where it is spelled "="
    lines = [(base64.b64encode(token) or b"=") + b" %d\n" % rank for rank, token in enumerate(ranks)]
    path = tmp_path / "mine.tiktoken"
    by_rank = {token: rank for rank, token in enumerate(ranks)}
    splits = [(by_rank[token], by_rank[token[:n]], by_rank[token[n:]]) for token in ranks for n in range(1, len(token))
              if token[:n] in by_rank and token[n:] in by_rank]  # fmt: skip
    splits = [(ranks[left], ranks[right]) for _, left, right in sorted(splits)]
    for data in (b"".join(lines), b"\xef\xbb\xbf" + b"\n".join(lines) + b"\n"):  # a BOM, and empty lines
        path.write_bytes(data)
        assert read_tiktoken(path) == (dict(enumerate(ranks)), splits) and set(merges) <= set(splits)
    tokenizer = Tokenizer(*read_tiktoken(path), [END], pattern)
    theirs = need("tiktoken").Encoding("mine", pat_str=bpe.PATTERNS[pattern], mergeable_ranks=by_rank, special_tokens={})
    assert tokenizer.encode_ordinary(PART) == theirs.encode_ordinary(PART)
    assert (tokenizer.pattern, tokenizer.special_tokens, tokenizer.special_ids) == (pattern, (END,), {END: len(ranks)})
    with pytest.raises(ValueError, match="mine.tiktoken: not a byte-level BPE model .*read_tiktoken"):
        Tokenizer.load(path)
    with pytest.raises(ValueError, match=r"1 special token, too: \[' the'\]; leave them out of .*tiktoken file"):
        Tokenizer(*read_tiktoken(path), [" the"], pattern)
    a_line = "line 1 must be a token in base64 and its rank"
    for data, message in [(b"{}", a_line), (b"YQ==\n", a_line), (b"\x1f\x8b\x08", "this is compressed; .*gunzip"), (b"YQ== x\n", a_line),
                              (b"dGh 0", a_line), (b"YQ== -5", a_line), (b"YQ== 1_0", a_line), (b" 5", a_line),
                              (b"YQ== 0\nYg== 1\nYWI= 1", "line 3 repeats a token or a rank: b'YWI= 1'"),
                              (b"YQ== 0\nYg== 1\nYQ== 2", "line 3 repeats a token or a rank: b'YQ== 2'"),
                          (b"YQ== 0\n\nYg==", "line 3 must be"), (b"", "the file is empty"), (b"\n\n", "the file is empty"),
                          (b"YQ== 0\nYg== 4294967296", "the rank 4,294,967,296 is greater than the greatest id, 4,294,967,294"),
                          (b"<!DOCTYPE html>\n<html>", "this looks like a web page"),
                          (LFS_POINTER, "this is a Git LFS pointer")]:  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(ValueError, match=f"mine.tiktoken: {message}"):
            read_tiktoken(path)


def test_ranks_in_memory_are_read_as_those_of_a_file(tmp_path):
    """tiktoken holds {bytes: rank}; others {rank: bytes}, which a Tokenizer without merges would take for single bytes."""
    ranks = {bytes([number]): number for number in range(256)} | {b"th": 256, b"the": 300, b" the": 257, b"": 258}
    path = tmp_path / "mine.tiktoken"
    path.write_bytes(b"".join((base64.b64encode(token) or b"=") + b" %d\n" % rank for token, rank in ranks.items()))
    for in_memory in (ranks, {rank: token for token, rank in ranks.items()}):
        assert read_tiktoken(in_memory) == read_tiktoken(path)
        assert Tokenizer(*read_tiktoken(in_memory)).encode("the the") == [300, 257]
    for wrong in ({"a": 1}, {1: "a"}, {b"a": -1}, {1: 2}, {b"a": b"b"}):
        with pytest.raises(ValueError, match="ranks must be {bytes: rank} or {rank: bytes}, not"):
            read_tiktoken(wrong)
    assert read_tiktoken(list(ranks.items())) == read_tiktoken(path)  # as rustbpe returns them
    for repeated in ({b"a": 1, b"b": 1}, [(b"a", 0), (b"b", 1), (b"a", 2)], [(0, b"a"), (0, b"b")]):
        with pytest.raises(ValueError, match="two tokens have the same rank"):
            read_tiktoken(repeated)
    with pytest.raises(ValueError, match="the rank 4,294,967,295 is greater than the greatest id"):
        read_tiktoken({b"a": 0, b"b": 1, b"ab": 2**32 - 1})
    with pytest.raises(ValueError, match="there are no ranks"):
        read_tiktoken({})


@pytest.mark.parametrize("change", [
    lambda vocab, merges: None,
    lambda vocab, merges: merges.pop(),
    lambda vocab, merges: merges.reverse(),
    lambda vocab, merges: vocab.update({500: vocab.pop(300)}),
    lambda vocab, merges: vocab.update({500: b"new"}),
    lambda vocab, merges: vocab.update({300: vocab[301], 301: vocab[300]}),
])  # fmt: skip
def test_ranks_may_be_changed_before_a_tokenizer_is_made_of_them(change):
    vocab, merges = read_tiktoken(dict(trained(400)[0]))
    known = merges.as_ids(vocab)
    ids = {token: token_id for token_id, token in vocab.items()}
    splits = [(token[:end], token[end:]) for token in vocab.values() for end in range(1, len(token))]
    assert sorted(known) == sorted((ids[a], ids[b], ids[a + b]) for a, b in splits if a in ids and b in ids)
    change(vocab, merges)
    ids = {token: token_id for token_id, token in vocab.items()}
    tokenizer = Tokenizer(vocab, merges, [END])
    assert list(tokenizer.merge_ids) == [(ids[left], ids[right], ids[left + right]) for left, right in merges] and tokenizer.ignore_merges
    assert (tokenizer.merge_ids is known) == (merges == merges.as_read[1] and vocab == merges.as_read[0])  # not looked up again


@pytest.mark.parametrize("change, error", [
    (lambda vocab, merges: merges.append(merges[3]), "repeats an earlier one"),
    (lambda vocab, merges: vocab.pop(300), "which is not in the vocabulary"),
    (lambda vocab, merges: merges.append((b"zzz", b"z")), "a merge uses or creates b'zzz'"),
])  # fmt: skip
def test_ranks_that_are_changed_to_be_wrong_are_an_error(change, error):
    vocab, merges = read_tiktoken(dict(trained(400)[0]))
    change(vocab, merges)
    with pytest.raises(ValueError, match=error):
        Tokenizer(vocab, merges)


def test_a_long_token_of_a_tiktoken_file_is_not_split_everywhere(tmp_path):
    """All places of one token of 300 KB took 18 s, and memory by the square of its length."""
    tokens = [*(bytes([number]) for number in range(256)), b"ab" * 150_000, b"ab" * 75_000, b"ab"]
    path = tmp_path / "mine.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens)))
    start = time.process_time()
    tokenizer = Tokenizer(*read_tiktoken(path))
    assert time.process_time() - start < 1
    assert tokenizer.merges == [(tokens[257], tokens[257]), (b"a", b"b")]
    assert tokenizer.encode("ab" * 150_000) == [256] and tokenizer.encode("abab") == [258, 258]
