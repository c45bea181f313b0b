"""The class Tokenizer: encoding one text, batches and streams; decoding; threads and interruptions."""

import concurrent.futures
import contextlib
import copy
import decimal
import functools
import gc
import gzip
import itertools
import json
import mmap
import os
import pickle
import random
import re
import sys
import tracemalloc
import unicodedata
import warnings
import weakref

import pytest
import regex

import bpe
from bpe_more import training, workers
from bpe_more.corpus import arrays, reading
from bpe_more.engine import encoder as encoder_in_c
from bpe_more.formats import saving
from bpe_more.formats.gpt2 import IgnoredMerges, MergeIds
from bpe_more.formats.tiktoken import read_tiktoken
from bpe_more.tokenizer import Tokenizer, encoders
from shared import FORMS, C, model_in, only_c, only_python, read_ids, split_anywhere, trained
from test_bpe import (
    CUSTOM,
    END,
    FIXTURE,
    PART,
    SPECIALS,
    TEXTS,
    TRICKY,
    need,
    pairs,
    random_text,
    with_merges,
)

# --- making a tokenizer ----------------------------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("vocab, merges, special_tokens, text", [
    ({0: b"a", 1: b"a"}, "", [], "the token b'a' has two ids, 0 and 1"),
    ({0: b"a", 1: b"b"}, "a b", [], "merge .* is not in the vocabulary"),
    ({0: b"a", 1: b"ab"}, "a b", [], "merge .* b'b'.* is not in the vocabulary"),
    ({0: b"a", 1: b"aa"}, "a a, a a", [], r"merge 1 \(from 0\).* repeats an earlier one"),
    ({0: b"a"}, "", ["<x>", "<x>"], "duplicate special token among .*'<x>'"),
    # two ids would have the same bytes, and tokenizers can't load such a file
    (None, "a b, ab c", ["ab"], "merge.*special token.*'ab'|special token 'ab'.*merge"),
    (None, "a b, ab c", ["x y", "abc"], "merge.*special token.*'abc'|special token 'abc'.*merge"),
    ({b"a": 0}, "", [], "vocab maps ids .* to bytes"), ({0: "a"}, "", [], "vocab maps ids from 0 to .* to bytes.*from_files"),
    ({"a": 0}, "", [], "vocab maps ids .* to bytes.*from_files"), ({1.5: b"a"}, "", [], "not 1.5 to b'a'"),
    ({"5": b"a"}, "", [], "not '5' to b'a'$"),
    *[({0: b"a", bad: b"ab"}, "", [], f"vocab maps ids .* not {bad} to b'ab'") for bad in (-1, 2**32 - 1, 2**32, 2**40, 10**30)],
])  # fmt: skip
def test_a_vocabulary_and_merges_that_contradict_each_other(vocab, merges, special_tokens, text):
    merges = pairs(merges) if merges else []
    with pytest.raises((TypeError, ValueError), match=text):
        Tokenizer(vocab or with_merges(merges), merges, special_tokens)


def test_an_error_about_thousands_of_special_tokens_is_one_short_line():
    tokens = [f"<{number}>" for number in range(3700)]
    merges = [(token[:1].encode(), token[1:].encode()) for token in tokens]
    with pytest.raises(ValueError, match=r"^merges make 3,700 special tokens, too: \['<0>', '<1>'") as caught:
        Tokenizer(with_merges(merges), merges, tokens)
    assert len(str(caught.value)) < 300


def test_the_empty_token_is_no_word():
    """Whisper has one. In C, its key was that of an empty slot, and its id was added to that of another word."""
    words = list(map(bytes, itertools.product(b"abcdef", repeat=3)))
    vocab = {500: b""} | dict(enumerate(bpe.BYTES)) | dict(enumerate(words, 1000))
    for _ in range(20):  # each has a secret of its own
        ids, _ = Tokenizer(vocab, IgnoredMerges([])).encode_arrays([word.decode() for word in words])
        assert list(ids) == list(range(1000, 1000 + len(words)))


def test_ids_may_be_any_numbers(tmp_path):
    vocab, merges = trained(600)
    ids = random.Random(2).sample(range(2**31), 599) + [2**32 - 2]
    tokenizer = Tokenizer({ids[token_id]: token for token_id, token in vocab.items()}, merges, [END])
    text = FIXTURE[:20_000] + vocab[599].decode()
    expected = [ids[token_id] for token_id in Tokenizer(vocab, merges, [END]).encode(text)]
    assert tokenizer.encode(text) == expected and tokenizer.decode(expected) == text
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode(text) == expected and max(expected) == 2**32 - 2
    for largest in (2**20 - 1, 2**20, 2**32 - 2):
        tokenizer = Tokenizer({**with_merges([(b"a", b"b")]), largest: b"abc"}, [(b"a", b"b"), (b"ab", b"c")])
        assert tokenizer.encode("abcab" * 200) == [largest, 256] * 200


def test_integers_of_numpy_are_numbers(tmp_path):
    numpy = need("numpy")
    options = {"min_frequency": numpy.int16(2), "min_word_count": numpy.uint64(2)}
    counts = {b"ab": numpy.int64(2), b"cd": numpy.uint8(1)}
    assert training.train_from_counts(counts, numpy.uint16(300), **options)[1] == [(b"a", b"b")]
    small = {b"ab": numpy.uint8(200), b"abc": numpy.uint8(100), b"xy": numpy.uint8(90)}  # 300 is too large for a uint8
    assert training.train_from_counts(small, 257)[1] == [(b"a", b"b")]
    small_characters = {"lolo": numpy.uint8(200), "lo": numpy.uint8(100)}  # the pair l o</w> occurs 300 times
    assert bpe.learn_characters(small_characters, 1) == [("l", "o</w>")]
    with pytest.raises(ValueError, match="vocab_size"):
        training.train_from_counts(counts, numpy.float64(300))
    (vocab, merges), text = trained(300), f"the ferry{END}<new>"
    tokenizer = Tokenizer({numpy.uint16(number): vocab[number] for number in vocab}, merges, [END, "<new>"])
    ids = tokenizer.encode(text)
    assert ids == Tokenizer(vocab, merges, [END, "<new>"]).encode(text) and {type(n) for n in ids} == {int}
    assert tokenizer.decode(numpy.array(ids)) == text
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).encode(text) == ids


def test_a_pickle_takes_little_more_than_the_vocabulary_and_the_merges():
    assert len(pickle.dumps(Tokenizer(*trained(2000)))) < 1.02 * len(pickle.dumps(trained(2000)))


def test_an_id_that_the_vocabulary_lacks_is_not_shared():
    """A special token with the id 999 crashed C, which has numbers up to the greatest id of the vocabulary."""
    tokenizer = Tokenizer(dict(enumerate(bpe.BYTES)), [], ["<s>"], shared={999: "<s>"})
    assert tokenizer.special_ids == {"<s>": 256} and tokenizer.shared == {}
    assert tokenizer.encode_batch(["a<s>", "<s>"]) == [[97, 256], [256]]


class OwnTokenizer(Tokenizer):
    pass


@pytest.mark.parametrize("kind", [bpe.Tokenizer, Tokenizer, OwnTokenizer])
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", CUSTOM])
def test_pickles_and_copies_carry_no_caches_and_a_deleted_tokenizer_frees_its_memory(pattern, kind):
    tokenizer = kind(*trained(600), [END, "<new>"], pattern)
    text = f"Some words{END}and <new> 字"
    ids = tokenizer.encode(text)
    for clone in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer), copy.copy(tokenizer)):
        assert type(clone) is kind and not (vars(clone).get("encoder") or vars(clone).get("_made_encoder"))
        assert repr(clone) == repr(tokenizer) and clone.encode(text) == ids
        for name in ("vocab", "merges", "special_tokens", "special_ids", "pattern"):
            assert getattr(clone, name) == getattr(tokenizer, name)
        if kind is not bpe.Tokenizer:
            assert clone.options == tokenizer.options and clone.settings() == tokenizer.settings()
    assert len(pickle.dumps(kind(*trained(2000)))) < 1.02 * len(pickle.dumps(trained(2000)))
    if kind is bpe.Tokenizer:
        freed = weakref.ref(tokenizer)
        del tokenizer
        assert freed() is None  # no cycle that only the garbage collector would find


@only_python
def test_whole_words_are_an_argument_so_a_plain_list_of_merges_keeps_them():
    """Without ignore_merges, xyz is [120, 121, 122]: the flag used to be the class of the list alone."""
    vocab = {number: bytes([number]) for number in range(256)} | {256: b"xy", 257: b"xyz"}
    first = Tokenizer(vocab, IgnoredMerges([(b"x", b"y")]))
    from_json = [tuple(part.encode() for part in pair) for pair in json.loads('[["x", "y"]]')]
    for merges in (first.merges[:], list(first.merges), from_json, iter(first.merges)):
        again = Tokenizer(first.vocab, merges, first.special_tokens, first.pattern, ignore_merges=first.ignore_merges)
        assert again.encode("xyz") == first.encode("xyz") == [257] and again.ignore_merges
    assert Tokenizer(first.vocab, first.merges).encode("xyz") == [257]  # the list is a IgnoredMerges
    assert Tokenizer(vocab, [(b"x", b"y")], ignore_merges=False).encode("xyz") == [256, 122]


@only_python
def test_what_a_tokenizer_was_made_of_is_read_only():
    tokenizer = Tokenizer(*trained(300), [END])
    merges, special_ids, ids = tokenizer.merges, tokenizer.special_ids, tokenizer.encode(PART)
    for name in ("vocab", "merges", "special_tokens", "pattern", "ids", "special_ids", "ignore_merges"):
        with pytest.raises(AttributeError):
            setattr(tokenizer, name, getattr(tokenizer, name))
    for mapping in (tokenizer.vocab, tokenizer.ids):
        with pytest.raises(TypeError):
            mapping[0] = b"a"
    tokenizer.merges.append((b"x", b"y"))
    tokenizer.special_ids["x"] = 5
    assert (tokenizer.merges, tokenizer.special_ids) == (merges, special_ids) == (trained(300)[1], {END: 256})
    assert tokenizer.vocab == trained(300)[0] and tokenizer.encode(PART) == ids


@only_python
def test_tokens_that_encode_can_never_give_are_a_warning():
    vocab = {number: bytes([number]) for number in range(256)} | {256: b"ab", 257: b"abc", 258: b"<|end|>"}
    with pytest.warns(UserWarning, match="encode.. can't give 3 tokens that no merge makes, such as b'ab'"):
        Tokenizer(vocab, [])
    with pytest.warns(UserWarning, match="1 token that no merge makes, such as b'<|end|>'"):
        Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = Tokenizer(vocab, [], ["<|end|>"], ignore_merges=True)
        Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c")], ["<|end|>", "<new>"]).ordinary.encode("abc")
        Tokenizer(vocab | {259: b""}, [(b"a", b"b"), (b"ab", b"c")], ["<|end|>"])
        Tokenizer({5: b"a", 6: b"b", 7: b"ab", 8: b"ab"}, [(b"a", b"b")], ["ab"])  # 8 is the special token
        pickle.loads(pickle.dumps(whole))


class WithAName(Tokenizer):
    """Another __init__, which takes what Tokenizer took before ignore_merges."""

    def __init__(self, vocab, merges, special_tokens=None, pattern="gpt2"):
        super().__init__(vocab, merges, special_tokens, pattern)
        self.name = f"{len(vocab)} tokens"


def test_a_class_with_its_own_init_loads_trains_and_can_be_pickled(tmp_path):
    first = WithAName.train(texts=[PART], vocab_size=300, special_tokens=[END])
    first.save(tmp_path)
    for same in (WithAName.load(tmp_path), pickle.loads(pickle.dumps(first)), copy.deepcopy(first), copy.copy(first)):
        assert type(same) is WithAName and same.name == "300 tokens" and same.encode(PART) == first.encode(PART)
    assert type(OwnTokenizer(*trained(300), [END]).with_special_tokens(["<|user|>"])) is OwnTokenizer


# --- encoding --------------------------------------------------------------------------------------------------------


def test_anything_but_text_is_an_error():
    tokenizer = Tokenizer(*trained(300), [END])
    stream = lambda text: list(tokenizer.encode_iterable(["a", text]))  # noqa: E731
    for encode in (tokenizer.encode, tokenizer.encode_ordinary, stream):
        for wrong in (b"abc", b"", None, 5, ["abc"]):
            with pytest.raises((TypeError, ValueError), match=f"text must be a str, not {type(wrong).__name__}$"):
                encode(wrong)
        for wrong in ("\ud800", "a\udfffb", "\ud83d\ude00", END + "\ud83d"):
            with pytest.raises(ValueError, match="surrogates not allowed"):
                encode(wrong)
    with pytest.raises(ValueError):
        list(tokenizer.encode_iterable(["\ud83d", "\ude00"]))


@pytest.mark.parametrize("text", ["a\ud800", "\udfff\ud83d b", "x\ude00\ud83dy"])
def test_lone_surrogates_become_the_replacement_character_if_wanted(text):
    expected = regex.sub("[\ud800-\udfff]", "\ufffd", text)
    assert training.count_words(texts=[text], errors="replace") == training.count_words(texts=[expected])
    tokenizer = Tokenizer(*trained(300))
    assert list(tokenizer.encode_iterable(iter(text), errors="replace")) == tokenizer.encode(expected)
    assert tokenizer.encode_batch([text, "b"], errors="replace") == [tokenizer.encode(expected), [98]]
    for call in (tokenizer.encode_batch, lambda texts: list(tokenizer.encode_iterable(texts))):
        with pytest.raises(ValueError, match=r"^texts\[1\]: .*surrogates not allowed; errors='replace' makes it U\+FFFD"):
            call(["a", text])
    with pytest.raises(ValueError, match="errors must be one of .*'ignore'"):
        tokenizer.encode_iterable([text], errors="ignore")  # at the call, not at the first id


@only_python
def test_each_word_is_merged_once_with_replacement_too(monkeypatch):
    merged, merge_by_rank = [], bpe.merge_by_rank
    monkeypatch.setattr(bpe, "merge_by_rank", lambda ids, *tables: merged.append(bytes(ids)) or merge_by_rank(ids, *tables))
    tokenizer = Tokenizer(*trained(300))
    assert list(tokenizer.encode_iterable(["low new " * 500], errors="replace")) == tokenizer.encode("low new " * 500)
    assert sorted(merged) == sorted({b"low", b" new", b" low", b" "})


def test_two_surrogates_of_a_character_become_it_if_wanted():
    """As JSON decoders may leave them. In a stream, they may come in two strings, but in two texts they are two."""
    tokenizer, thumb = Tokenizer(*trained(300)), list("\U0001f44d".encode())
    assert tokenizer.encode_batch(["\ud83d\udc4d", "a\ud83d", "\udc4d"], errors="replace") == [
        thumb, tokenizer.encode("a\ufffd"), tokenizer.encode("\ufffd")]  # fmt: skip
    for strings, expected in [
        (["a\ud83d", "\udc4db"], "a\U0001f44db"), (["\ud83d", "\udc4d"], "\U0001f44d"), (["\ud83d"], "\ufffd"),
        (["\ud83d", "", "\udc4d"], "\U0001f44d"), (["\ud83d\ud83d", "x"], "\ufffd\ufffdx"), (["\udc4d\ud83d"], "\ufffd\ufffd"),
    ]:  # fmt: skip
        assert list(tokenizer.encode_iterable(strings, errors="replace")) == tokenizer.encode(expected)
    with pytest.raises(ValueError, match=r"^texts\[0\]: .*surrogates not allowed; errors='replace'"):
        list(tokenizer.encode_iterable(["a\ud83d", "\udc4d"]))
    with pytest.raises(ValueError, match=r"^texts\[1\]: text must be a str, not int"):
        list(tokenizer.encode_iterable(["a\ud83d", 5], errors="replace"))


def test_a_byte_without_a_token_is_named():
    tokenizer = Tokenizer({0: b"a", 1: b" ", 2: b"b", 3: b"ab", 9: b"<x>"}, [(b"a", b"b")], ["<x>"])
    assert tokenizer.encode("ab aab<x>b") == [3, 1, 0, 3, 9, 2]
    for text in ("ab xab", "ab abx", "x", "a<x>x", "a" * 200 + "x"):
        stream = lambda text: list(tokenizer.encode_iterable([text]))  # noqa: E731
        for encode in (tokenizer.encode, tokenizer.encode_ordinary, stream):
            with pytest.raises(ValueError, match="no token for the byte b'[x<]', in "):
                encode(text)
    with pytest.raises(ValueError, match="for the byte b'x', in 'x{40}'"):  # no more of a long word
        tokenizer.encode("x" * 1000)
    assert tokenizer.encode("ab") == [3]  # and the tokenizer still works


@only_python
def test_the_cache_of_words_is_bounded_and_has_no_long_words():
    tokenizer = Tokenizer(with_merges([]), [])
    cached = tokenizer.encoder.cached
    assert cached.cache_info().maxsize < 1_000_000
    assert len(tokenizer.encode("x" * 100)) == 100 and cached.cache_info().currsize == 0
    assert len(tokenizer.encode("x y")) == 3 and cached.cache_info().currsize == 2


@only_c
def test_short_and_long_texts_have_the_same_ids_and_errors():
    """C has two ways to encode, for texts below 4,000 bytes and for others."""
    bytes_only = Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [])
    for n in (0, 1, 3996, 3997, 3998, 3999, 4000, 4001):
        text = "é" * (n // 2) + "a" * (n % 2)
        assert bytes_only.encode(text) == list(text.encode()), n
        with pytest.raises(ValueError, match=r"the byte b'd', in 'd'; errors='replace' leaves it out$"):
            bytes_only.encode(text + " d")
        with pytest.raises(UnicodeDecodeError):
            bytes_only.encoder.encode_utf8(text.encode() + b"\xff")
    with pytest.raises(TypeError):
        bytes_only.encoder.encode_utf8("no bytes")
    assert bytes_only.encoder.encode_short(b"a" * 3997) == [97] * 3997  # the short way is taken
    assert bytes_only.encoder.encode_short(b"a" * 3999) is None


@only_c
@pytest.mark.parametrize("seed", range(30))
def test_long_words_in_pieces_have_the_ids_of_python(seed):
    """C cuts a long word between characters that no token has within it: 今天天气很好 is 今天 | 天气 | 很好, for instance."""
    rng = random.Random(seed)
    characters = rng.sample("的一天气很好今是é字ñßя😀🎉𝒳abcd", rng.randint(3, 12))
    tokens = [bytes([byte]) for byte in sorted(set("".join(characters).encode()))]
    merges = []
    for _ in range(rng.choice([5, 40, 150])):  # in random order: some tokens are made twice
        pair = rng.choice(tokens), rng.choice(tokens)
        if pair not in merges and len(b"".join(pair)) <= 30:
            merges.append(pair)
            tokens.append(b"".join(pair))
    unused = set(range(256)) - set("".join(characters[1:]).encode()) - {byte for left, right in merges for byte in left + right}
    vocab = dict(enumerate(dict.fromkeys([*map(bytes, zip(range(256))), *tokens])))
    vocab = {number: token for number, token in vocab.items() if seed % 3 or token not in {bytes([b]) for b in unused}}
    try:
        tokenizer = Tokenizer(vocab, merges, ["".join(characters[:2]), "<|end|>"])
    except ValueError:  # this order is refused; the other seeds have others
        tokenizer = Tokenizer(vocab, [], ["<|end|>"])
    in_python = encoders.Encoder(tokenizer)
    for _ in range(20):
        texts = ["".join(rng.choices(characters, k=rng.choice([1, 8, 30, 300]))).encode() for _ in range(10)]
        try:
            expected = in_python.encode_texts(texts)
        except ValueError as error:
            with pytest.raises(ValueError, match="no token for the byte") as found:
                tokenizer.encoder.encode_texts(texts)
            assert found.value.number == error.number
        else:
            assert tokenizer.encoder.encode_texts(texts) == expected


@only_c
def test_a_long_word_that_is_a_token_is_not_cut_and_its_pieces_are_not_words():
    """With ignore_merges, 今天天气很好 alone is one token, but " 今天天气很好" is merged, and so is the piece 天气."""
    bytes_of = {number: bytes([number]) for number in range(256)}
    vocab = bytes_of | {256: "今天天气很好".encode(), 257: "天气".encode()}
    tokenizer = Tokenizer(vocab, IgnoredMerges([]), [])
    for _ in range(2):
        assert tokenizer.encode_batch(["今天天气很好", "天气", " 今天天气很好"])[:2] == [[256], [257]]
        assert tokenizer.encode(" 今天天气很好") == list(" 今天天气很好".encode())
        assert tokenizer.encode("今天天气很好天气") == list("今天天气很好天气".encode())


@only_c
def test_lists_share_the_numbers_of_ids_and_give_them_back():
    tokenizer = Tokenizer(*trained(600), [END])
    numbers = tokenizer.encoder.numbers
    before = [sys.getrefcount(number) for number in numbers]
    lists = [tokenizer.encode(PART) for _ in range(3)]
    assert {id(number) for ids in lists for number in ids} <= set(map(id, numbers))
    for token_id in (300, 400, 599):
        uses = sum(ids.count(token_id) for ids in lists)
        assert sys.getrefcount(numbers[token_id]) == before[token_id] + uses > before[token_id]
    del lists
    assert [sys.getrefcount(number) for number in itertools.islice(numbers, 300, None)] == before[300:]
    without_d = Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [])
    for _ in range(100):
        with pytest.raises(ValueError, match="the byte b'd'"):
            without_d.encode("abcd")
    assert len(without_d.encoder.calls) == 1
    ids = tokenizer.encode(PART)
    tokenizer._made_encoder = None
    assert ids == encoders.Encoder(Tokenizer(*trained(600), [END])).encode_utf8(PART.encode())  # lists outlive their encoder


@only_c
def test_encoding_takes_no_memory_that_stays():
    tokenizer, memory = Tokenizer(*trained(600), [END]), []
    tracemalloc.start()
    for n in (1000, 100_000):
        for _ in range(n):
            tokenizer.encode("low lower")
        memory.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert memory[1] < memory[0] + 1000


def test_plain_text_never_gets_the_id_of_a_special_token_that_a_merge_uses(tmp_path, engine):
    vocab = dict(enumerate([*bpe.BYTES, b"<s>", b"<s>x"]))
    tokenizer = Tokenizer(vocab, [(b"<s>", b"x")], ["<s>"], r"\S+|\s+", ignore_merges=True)
    assert tokenizer.encode("<s> <s>x") == [256, 32, 256, 120]
    plain = [60, 115, 62]  # < s >
    for ordinary in (tokenizer.ordinary, pickle.loads(pickle.dumps(tokenizer.ordinary))):
        assert ordinary.encode("<s> <s>x") == [*plain, 32, 257] and ordinary.encode_batch(["<s>"]) == [plain]
    tokenizer.encode_files(texts=["<s>"], output=tmp_path / "ids.npy", end="<s>", engine=engine)
    assert read_ids(tmp_path / "ids.npy")[1] == [*plain, 256]
    normalizing = Tokenizer(vocab, [(b"<s>", b"x")], ["<s>"], ("NFC", r"\S+|\s+"), ignore_merges=True)
    assert normalizing.encode_ordinary("<s>") == plain


def test_special_tokens_may_be_an_array_of_numpy():
    numpy = need("numpy")
    for names in ([END], [END, "<a>"], []):
        for array_of_names in (numpy.array(names), numpy.array(names, object)):
            tokenizer = Tokenizer(*trained(300), array_of_names)
            assert tokenizer.special_tokens == tuple(names) and set(map(type, tokenizer.special_tokens)) <= {str}
            model = training.train_bpe(texts=[PART], vocab_size=300, special_tokens=array_of_names)
            assert model == training.train_bpe(texts=[PART], vocab_size=300, special_tokens=names)
    with pytest.raises(ValueError, match="special token 1 .* must be text"):
        Tokenizer(*trained(300), numpy.array([["<a>"]]))


@only_python
def test_a_warning_names_the_line_of_the_caller(tmp_path):
    few = {"texts": ["ab"], "vocab_size": 300}
    vocab = dict(enumerate([*bpe.BYTES, b"ab"]))
    old = Tokenizer(vocab, [(b"a", b"b")])
    old.save(tmp_path)
    (tmp_path / "merges.txt").write_text("b a\n", encoding="utf-8")
    (tmp_path / "vocab.json").write_text(json.dumps({**saving.printable(vocab, MergeIds(), {}, "gpt2")[0], "ba": 257}))
    files = tmp_path / "vocab.json", tmp_path / "merges.txt"
    calls = [
        lambda: training.train_bpe(**few), lambda: Tokenizer.train(**few), lambda: WithAName.train(**few),
        lambda: training.train_from_counts({b"ab": 1}, 300), lambda: old.extend(texts=["xy"], n_tokens=9),
        lambda: Tokenizer(vocab, []), lambda: WithAName(vocab, []), lambda: Tokenizer.from_files(*files),
        lambda: bpe.train_bpe(**few), lambda: bpe.Tokenizer.train(**few), lambda: bpe.train_from_counts({b"ab": 1}, 300),
        lambda: bpe.train_bpe(texts=[], vocab_size=300),
    ]  # fmt: skip
    for call in calls:
        with pytest.warns(UserWarning) as caught:
            call()
        assert [(warning.filename, warning.lineno) for warning in caught] == [(__file__, caught[0].lineno)]


# --- batches ---------------------------------------------------------------------------------------------------------


def as_sources(folder, documents):
    """Arguments of encode_files for documents as files, of which some are compressed, as texts, and as rows."""
    files = []
    for number, text in enumerate(documents):
        files.append(folder / f"{number}.txt{'.gz' * (number % 3 == 2)}")
        files[-1].write_bytes(gzip.compress(text.encode()) if number % 3 == 2 else text.encode())
    rows = folder / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return [{"paths": files}, {"texts": documents}, {"paths": rows}]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("begin, end, pattern", [
    ("<s>", "</s>", "gpt2"), ("<s>", None, "gpt2"), (None, "</s>", "gpt2"), ("<s>", "</s>", CUSTOM), ("<s>", None, CUSTOM),
])  # fmt: skip
def test_a_token_begins_or_ends_each_document_whatever_its_size_and_no_document_can_forge_it(tmp_path, cut, engine, workers, begin, end, pattern):
    cut(300)
    tokenizer = Tokenizer(*trained(400), ["<s>", "</s>"], pattern)
    documents = ["", "<s>low", "low lower</s>\n" * 90, "", "er", "", "<s></s>" * 99, ""]
    expected = []
    for text in documents:
        around = [[] if token is None else [tokenizer.special_ids[token]] for token in (begin, end)]
        expected += [*around[0], *tokenizer.encode_ordinary(text), *around[1]]
    options = {"begin": begin, "end": end, "engine": engine, "workers": workers}
    for arguments in as_sources(tmp_path, documents):
        n = tokenizer.encode_files(output=tmp_path / "ids.npy", **arguments, **options)
        assert (n, read_ids(tmp_path / "ids.npy")[1]) == (len(expected), expected), arguments
    for wrong, name in itertools.product(("<other>", 5), ("begin", "end")):
        with pytest.raises(ValueError, match=rf"{name} must be a special token of the model \(.*\), not {wrong!r}"):
            tokenizer.encode_files(texts=documents, output=tmp_path / "ids.npy", **{name: wrong})


@pytest.mark.parametrize("end", [None, END])
@pytest.mark.parametrize("pattern", ["gpt2", CUSTOM])
def test_special_tokens_in_documents_are_counted_wherever_text_is_cut(tmp_path, cut, engine, end, pattern):
    cut(300)
    rng = random.Random(3)
    tokenizer = Tokenizer(*trained(400), [END, "<|end|>", "<s>", "[x]", "[x]y", "é>", "<s>["], pattern)
    find = bpe.special_token_finder(tokenizer.special_tokens).findall
    parts = [*tokenizer.special_tokens, END, END, "low ", " lower\n", "<|", "|>", "e", " 9"]
    documents = ["".join(rng.choices(parts, k=rng.choice([0, 3, 500]))) for _ in range(12)] + ["none here"] * 12
    for arguments in as_sources(tmp_path, documents):
        corpus = tokenizer.corpus_of(arguments.get("paths"), arguments.get("texts"), None, end, engine=engine)
        corpus.counted = tokenizer.special_tokens
        arrays.encode_corpus(tokenizer, corpus, tmp_path / "ids.npy")
        assert corpus.n_specials == sum(len(find(text)) for text in documents) > 500
        assert corpus.n_documents == 24


@only_python
def test_an_input_without_rows_is_a_warning(tmp_path):
    tokenizer = Tokenizer(*trained(400), [END])
    for name, data in (("a.jsonl", b""), ("b.jsonl", b"\n\n"), ("c.jsonl.gz", gzip.compress(b""))):
        (tmp_path / name).write_bytes(data)
        with pytest.warns(UserWarning, match="no text: the input has no rows") as caught:
            assert tokenizer.encode_files(tmp_path / name, tmp_path / "ids.npy", end=END) == 0
        assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="no text: the input has no rows"):
        tokenizer.encode_files(texts=[], output=tmp_path / "ids.npy")
    (tmp_path / "empty.txt").write_bytes(b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tokenizer.encode_files(tmp_path / "empty.txt", tmp_path / "ids.npy", end=END) == 1


def test_a_batch_gives_a_list_for_each_text_in_order(monkeypatch):
    tokenizer = Tokenizer(*trained(600), [END])
    texts = [PART[at : at + at % 97] + END * (at % 2) for at in range(0, 15_000, 50)]  # several parts of 64 texts
    for n_workers in (None, 1, 2):
        assert tokenizer.encode_batch(iter(texts), workers=n_workers) == [tokenizer.encode(text) for text in texts]
        assert tokenizer.ordinary.encode_batch(texts, n_workers) == [tokenizer.encode_ordinary(text) for text in texts]
    for text in ("", "low" + END, PART):  # a batch of one text is encoded in another way
        assert tokenizer.encode_batch([text]) == [tokenizer.encode(text)] == tokenizer.encode_batch([text], workers=1)
    assert tokenizer.encode_batch(["\ud800"], errors="replace") == [tokenizer.encode("\ufffd")]
    assert tokenizer.encode_batch([]) == [] and tokenizer.ordinary.special_ids == {}
    for bad, before in itertools.product((5, "\ud800", b"low"), ([], texts[:201])):
        with pytest.raises(ValueError, match=rf"^texts\[{len(before)}\]: "):
            tokenizer.encode_batch([*before, bad, *before])
    for name, wrong in (("workers", 0), ("errors", "ignore")):
        for some in (texts, ["a"]):
            with pytest.raises(ValueError, match=f"{name} must be"):
                tokenizer.encode_batch(some, **{name: wrong})
    monkeypatch.setattr(reading.Corpus, "results", None)  # for one text, it would take 20 times as long
    assert tokenizer.encode_batch(["low"]) == [tokenizer.encode("low")]


@only_c
def test_texts_of_a_slice_are_encoded_in_one_call_like_each_alone():
    """No word reaches across the end of a text: "low" and "er" are not "lower", nor do halves make a special token."""
    tokenizer = Tokenizer(*trained(2000), [END])
    half = len(END) // 2
    texts = ["low", "er", "", END[:half], END[half:], END, "", "a" * 63, "字" * 30, PART[:5000], " ", "'", "s", "low " * 40]
    alone = [encoders.Encoder(tokenizer).encode_utf8(text.encode()) for text in texts]
    assert tokenizer.encode_batch(texts) == tokenizer.encode_batch(texts) == alone
    rng = random.Random(1)
    for _ in range(300):
        order = rng.choices(range(len(texts)), k=rng.choice([1, 2, 70, 200]))
        assert tokenizer.encode_batch([texts[i] for i in order]) == [alone[i] for i in order]


def test_an_error_names_the_text_of_a_batch_and_leaves_the_collector_as_it_was(monkeypatch):
    monkeypatch.setattr(reading, "BATCH_BYTES", 1000)
    tokenizer = Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [])
    texts = ["abc"] * 3_000
    for number in (0, 7, 2_999):
        bad = [*texts[:number], "abcd", *texts[number + 1 :]]
        for encode in (tokenizer.encode_batch, tokenizer.encode_arrays):
            for enabled in (True, False):
                (gc.enable if enabled else gc.disable)()
                try:
                    with pytest.raises(ValueError, match=rf"^texts\[{number}\]: the vocabulary has no token for the byte b'd'"):
                        encode(bad)
                    assert gc.isenabled() == enabled
                    assert len(tokenizer.encode_batch(texts)) == len(texts) and gc.isenabled() == enabled
                finally:
                    gc.enable()


def test_arrays_of_a_batch_are_the_lists_of_it():
    numpy = need("numpy")
    for tokenizer, kind in (
        (Tokenizer(*trained(600), [END]), "uint16"), (Tokenizer({0: b"a", 70_000: b" ", 5: b"b"}, []), "uint32"),
    ):  # fmt: skip
        for texts in ([], [""], ["a b", "", "ab " * 200_000, "b"]):
            lists = [tokenizer.encode(text) for text in texts]
            ids, offsets = tokenizer.encode_arrays(iter(texts), workers=2)
            ids, offsets = numpy.asarray(ids), numpy.asarray(offsets)
            assert (ids.dtype, offsets.dtype, len(offsets)) == (kind, "uint64", len(texts) + 1)
            assert [ids[start:stop].tolist() for start, stop in zip(offsets, offsets[1:])] == lists


# --- one long text ---------------------------------------------------------------------------------------------------


def with_small_parts(monkeypatch):
    monkeypatch.setattr(encoder_in_c, "LONG_TEXT", 200)  # for encoders that are made from now on
    monkeypatch.setattr(encoder_in_c, "PART_OF_TEXT", 60)
    monkeypatch.setattr(encoder_in_c, "WINDOW_OF_TEXT", 50)
    monkeypatch.setattr(workers, "count_cores", lambda: 2)


@only_c
@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM, (r"\d", "gpt2"), ("NFC", "qwen2")])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_the_parts_of_a_long_text_have_its_ids(monkeypatch, pattern, special_tokens):
    """A text of 200 characters is long here, and its parts have about 60."""
    name = pattern if isinstance(pattern, str) else pattern[-1]
    tokenizer = Tokenizer(*trained(600, name), special_tokens, pattern)
    rng, n_parts = random.Random(repr((pattern, special_tokens))), 0
    texts = [random_text(rng, [*TRICKY, *special_tokens, "don", "12", "e\u0301", "中國"], rng.randint(0, 500)) for _ in range(15)]
    texts += ["a" * 2000, "a a" * 400, f"{PART[:1500]}{'x' * 1000}{PART[-1500:]}"]
    whole = tokenizer.encode_batch(texts)
    with_small_parts(monkeypatch)
    tokenizer._made_encoder = None
    for _ in range(2):  # the second time, the words are known
        assert list(map(tokenizer.encode, texts)) == whole
    for text in texts:
        parts = list(encoder_in_c.parts_of(text, encoders.last_cut_for(tokenizer)))
        assert [0, *(end for _, end in parts)] == [*(start for start, _ in parts), len(text)]
        n_parts += len(parts)
    assert n_parts > (50 if pattern != CUSTOM else len(texts))


@only_c
def test_a_long_text_needs_no_huge_pages(monkeypatch):
    tokenizer = Tokenizer(*trained(600))
    expected = tokenizer.encode(PART)
    with_small_parts(monkeypatch)
    for name, value in ("mmap", lambda *_, **__: open(os.devnull + "/none")), ("MADV_HUGEPAGE", None):  # noqa: SIM115
        monkeypatch.setattr(mmap, name, value) if value else monkeypatch.delattr(mmap, name, raising=False)
        assert Tokenizer(*trained(600)).encode(PART) == expected


@only_c
def test_an_error_in_a_long_text_is_that_of_the_whole(monkeypatch):
    vocab = {number: bytes([number]) for number in range(256) if number != 100}
    for pattern in ("gpt2", ("NFC", "gpt2")):
        for bad in ("abcd", "\ud800", "\udfff x"):
            text, errors = f"{'a b, ' * 100}{bad}{', é' * 100}", []
            for _ in range(2):
                with pytest.raises(ValueError) as found:
                    Tokenizer(vocab, [], None, pattern).encode(text)
                errors.append((type(found.value), str(found.value)))
                with_small_parts(monkeypatch)
            assert errors[0] == errors[1]
            monkeypatch.undo()


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_a_stream_is_encoded_like_the_whole(engine, pattern, special_tokens):
    tokenizer = Tokenizer(*trained(600, pattern), special_tokens, pattern)
    if engine == "python":  # compare words, since different words can have the same ids
        encoder = encoders.Encoder(tokenizer)
        encoder.cached = encoder.encode_word = lambda word: (word,)
    rng = random.Random(repr((pattern, special_tokens)))
    parts = [*TRICKY, *special_tokens, "'LL", "'v", "e", "ABCDEFGHIJKL", "中國", "ʰ", "don", "123", "\n\n", "!!", "ſ"]
    parts += ["<a>", "<b>", "<c>", "x", "y"]
    texts = [*TEXTS, "中ABCDEFGHIJKLm", "e\u0301ABCDEFGHIJKLMNx"]
    texts += [random_text(rng, parts, rng.randint(0, 60)) for _ in range(40)]
    for text in texts:
        whole = tokenizer.encode(text)
        assert list(tokenizer.encode_iterable(text)) == whole, text  # one character at a time
        for _ in range(3):
            assert list(tokenizer.encode_iterable(split_anywhere(rng, text))) == whole, text


@pytest.mark.parametrize("errors", ["strict", "replace"])
def test_a_stream_is_lazy_and_takes_little_memory(errors):
    tokenizer, seen = Tokenizer(*trained(600), [END]), []
    ids = tokenizer.encode_iterable((seen.append(1) or "some words and more words\n" for _ in itertools.count()), errors)
    assert [next(ids) for _ in range(5)] and len(seen) < 50  # about 1 KB
    tracemalloc.start()
    for _ in itertools.islice(ids, 200_000):
        pass
    assert tracemalloc.get_traced_memory()[1] < 1_900_000  # the text, or a list of the ids, takes more
    tracemalloc.stop()


@pytest.mark.parametrize("size", [1000, 65_536])
def test_a_stream_with_a_custom_pattern_is_cut_at_the_next_special_token(size):
    """The search for a cut must not skip special tokens between two attempts."""
    tokenizer, text, taken = Tokenizer(with_merges([]), [], [END], CUSTOM), ("ab cd " * 12_000 + END) * 4, []
    blocks = (taken.append(size) or text[start : start + size] for start in range(0, len(text), size))
    most = max(len(taken) * size - number for number, _ in enumerate(tokenizer.encode_iterable(blocks)))
    assert most < 150_000


# --- decoding --------------------------------------------------------------------------------------------------------


class Tensor(list):
    """Like torch.Tensor: its numbers are tensors, which are equal to no integer as keys of a dict."""

    __hash__ = object.__hash__

    def __iter__(self):
        return (Tensor([number]) for number in super().__iter__())

    def __getitem__(self, index):
        return Tensor([super().__getitem__(index)])

    def tolist(self):
        return list(super().__iter__())


DECODERS = {
    "decode": lambda tokenizer, ids: tokenizer.decode(ids), "decode_bytes": lambda tokenizer, ids: tokenizer.decode_bytes(ids),
    "decode_iterable": lambda tokenizer, ids: list(tokenizer.decode_iterable(ids)),
    "skip_special_tokens": lambda tokenizer, ids: tokenizer.decode(ids, skip_special_tokens=True),
}  # fmt: skip


@pytest.mark.parametrize("name", DECODERS)
def test_what_is_no_id_is_named(name):
    """Numbers that are equal to ids are none, nor are tensors and arrays of two dimensions, for which tolist() is the way."""
    numpy, tokenizer = need("numpy"), Tokenizer(*trained(300), [END])
    decode = functools.partial(DECODERS[name], tokenizer)
    for bad in ([1, 2], 10**9, None, 257.0, True, numpy.float64(257), numpy.bool_(True), decimal.Decimal(257)):
        for kind in (list, iter):
            with pytest.raises(ValueError, match=f"unknown token id {re.escape(repr(bad))} at index 1"):
                decode(kind([104, bad]))
    for ids in (Tensor([104, 105]), iter(Tensor([104, 105])), numpy.array([[104, 105]])):
        with pytest.raises(ValueError, match=r"unknown token id .* at index 0; pass integers, as ids\.tolist\(\) gives them$"):
            decode(ids)
    with pytest.raises(ValueError, match="unknown token id .*999.* at index 0$"):  # an integer: nothing to convert
        decode(numpy.array([999]))
    for same in (Tensor([104, 105]).tolist(), numpy.array([104, 105]), [numpy.int64(104), numpy.uint16(105)]):
        assert decode(same) == decode([104, 105])
    with pytest.raises(TypeError, match="ids must be an iterable of token ids, not 5"):
        decode(5)

    def broken():
        yield 1
        raise TypeError("of the caller")

    with pytest.raises(TypeError, match="of the caller"):
        decode(broken())


def test_numbers_that_are_equal_to_ids_are_none_in_vocabularies():
    numpy = need("numpy")
    for wrong in (1.0, True, numpy.bool_(True)):
        with pytest.raises(ValueError, match="vocab maps ids from 0 to"):
            Tokenizer({0: b"a", wrong: b"b"}, [])
        with pytest.raises(ValueError, match="ranks must be"):
            read_tiktoken({b"a": 0, b"b": wrong})


def test_text_comes_as_soon_as_its_characters_are_complete():
    tokenizer = Tokenizer(*trained(600), [END])
    ids = [229, 164, 169, 97, 256, 229, 164]  # the bytes of 天, a, the special token, and a part of a character
    ids = [tokenizer.ids[bytes([byte])] if byte < 256 else 256 for byte in ids]
    given = []
    parts = tokenizer.decode_iterable(given.append(token_id) or token_id for token_id in ids)
    assert (next(parts), len(given)) == ("天", 3) and (next(parts), len(given)) == ("a", 4)
    assert list(parts) == [END, "\ufffd"]
    assert list(tokenizer.decode_iterable(ids, skip_special_tokens=True)) == ["天", "a", "\ufffd"]


@only_python
def test_ids_decoded_one_by_one_give_the_same_text():
    rng = random.Random(5)
    tokenizer = Tokenizer(*trained(600), [END, "<x>"], kept=["<x>"])
    broken = [tokenizer.ids[bytes([byte])] for byte in b"\xf0\x9f\x98\x80\xe5\xa4\xa9\xed\xa0\xc0\xff\xe1\x80a"]
    for _ in range(10_000):
        ids = [rng.choice(rng.choice([broken, range(601)])) for _ in range(rng.randint(0, 12))]
        for skip in (False, True):
            parts = list(tokenizer.decode_iterable(iter(ids), skip_special_tokens=skip))
            assert "".join(parts) == tokenizer.decode(ids, skip_special_tokens=skip) and "" not in parts


# --- threads, signals, interruptions ---------------------------------------------------------------------------------


def test_threads_share_a_tokenizer_and_a_folder(tmp_path):
    tokenizer = Tokenizer(*trained(2000), [END])
    texts = PART.split(END)
    expected = list(map(Tokenizer(*trained(2000), [END]).encode, texts))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer.encode, texts * 5)) == expected * 5
        assert list(pool.map(Tokenizer({0: b"a"}, []).save, [tmp_path] * 30)) == [None] * 30
    assert not list(tmp_path.glob("*.tmp")) and model_in(tmp_path) == ({0: b"a"}, [])


@contextlib.contextmanager
def traced(interrupt):
    """Call interrupt(event) between any two instructions of the files that are between a call of a Tokenizer and C."""

    def trace(frame, event, argument):
        path = frame.f_code.co_filename
        if os.path.basename(path) not in ("bpe.py", "build_ffi.py") and os.path.join("bpe_more", "engine") not in path:
            return None
        frame.f_trace_opcodes = True
        interrupt(event)
        return trace

    tracer = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(tracer)


def test_a_signal_handler_that_encodes_does_not_change_the_call_that_it_interrupts():
    """A handler, or __del__, can run between any two instructions."""
    tokenizer, text = Tokenizer(*trained(2000), [END]), f"The ferry was late again.{END}"
    expected, interruptions = tokenizer.encode(text), []
    as_array = lambda text: tokenizer.encode_arrays([text], workers=1)[0].tolist()  # noqa: E731
    for encode in (tokenizer.encode, as_array, lambda text: list(tokenizer.encode_iterable([text]))):
        for other in (tokenizer.encode, as_array):
            with traced(lambda event: interruptions.append(other("12345 " * 5))):  # noqa: B023 (called at once)
                ids = encode(text)
            assert ids == expected and len(interruptions) > 3
            interruptions.clear()


@only_c
@pytest.mark.parametrize("batch", [False, True])
def test_ctrl_c_between_any_two_instructions_leaves_a_tokenizer_that_gives_the_same_ids(batch):
    """C never points to a cache that Python may free: the next short text would be looked up in freed memory."""
    tokenizer, texts = Tokenizer(*trained(2000), [END]), ["The ferry", PART[:5000]]
    expected = list(map(tokenizer.encode, texts))
    encoder = tokenizer.encoder
    for first in itertools.count(1):
        instructions = iter(range(first))

        def interrupt(event):
            if event == "opcode" and next(instructions, None) is None:  # noqa: B023 (called at once)
                raise KeyboardInterrupt

        try:
            with traced(interrupt):
                tokenizer.encode_batch(texts) if batch else tokenizer.encode(texts[1])
            break
        except KeyboardInterrupt:
            pass
        kept = [call.cache for call in encoder.calls]
        assert encoder.for_lists.cache in [C.ffi.NULL, *kept], f"instruction {first}"
        assert gc.isenabled(), f"instruction {first}"
        assert list(map(tokenizer.encode, texts)) == expected
    assert first > 100


@only_python
def test_a_normal_form_without_any_split_is_a_pattern():
    """The file of a model may have a normalizer, and a ByteLevel step that splits nothing."""
    tokenizer = Tokenizer({number: bytes([number]) for number in range(256)}, [], pattern=("NFC",))
    assert tokenizer.encode("e\u0301") == [0xC3, 0xA9]


@functools.cache
def of_many_scripts():
    """(vocab, merges) of a text whose characters change in normal forms, next to letters."""
    text = random_text(random.Random(9), [" a", "a", "b", "é", "字", "가", "ка"], 9000)
    return training.train_bpe(None, 400, texts=[text])


@pytest.mark.parametrize("form", ["NFC", "NFKC"])
@pytest.mark.parametrize("specials, normalized", [
    ([], []), ([END, "<end>"], []), (["<EOT>", "TM", "\u1161"], []), ([], ["<EOT>", "TM"]), (["<EOT>", "a é"], ["OT", "  "]),
    (["<E", "a>"], ["<EOT>", "b."]),
])  # fmt: skip
def test_texts_of_a_slice_are_normalized_between_special_tokens_like_each_piece_alone(form, specials, normalized):
    """Normalizing may make a special token, and two kinds of them may overlap."""
    rng = random.Random(f"{form} {specials}")
    alphabet = [*FORMS, *specials, *normalized, *"ab.<>OT", " ", "\n", "＜end＞", "ＴM", "\u0301"]
    vocab, merges = of_many_scripts()
    tokenizer = Tokenizer(vocab, tuple(merges), [*specials, *normalized], (form, "qwen2"), normalized=normalized)
    found_in_pieces = tokenizer.with_only(normalized, "qwen2")

    def by_definition(text):
        ids, pieces = [], bpe.special_token_finder(tuple(specials)).split(text)
        for number, piece in enumerate(pieces):
            normal = unicodedata.normalize(form, piece)
            ids += [tokenizer.special_ids[piece]] if number % 2 else found_in_pieces.encode(normal)
        return ids

    for size in (1, 3, 30):
        texts = [random_text(rng, alphabet, rng.choice([2, 8, 30])) for _ in range(size)]
        texts += [random_text(rng, [*alphabet, *"abc\n" * 50], 11_000)]  # a long one is normalized by lines
        expected = list(map(by_definition, texts))
        assert list(map(tokenizer.encode, texts)) == tokenizer.encode_batch(texts) == expected
        ids, offsets = tokenizer.encode_arrays(texts)
        assert [ids[start:stop].tolist() for start, stop in zip(offsets, offsets[1:])] == expected
        with pytest.raises(ValueError, match=rf"^texts\[{size}\]: .*surrogates not allowed"):
            tokenizer.encode_batch([*texts[:size], "\ud800"])


@only_python
def test_no_character_joins_a_newline_so_text_is_normalized_by_lines():
    for start in range(0, 0x110000, 256):
        characters = list(map(chr, range(start, start + 256)))
        for form in ("NFC", "NFKC"):
            alone = [unicodedata.normalize(form, character) for character in characters]
            assert unicodedata.normalize(form, "\n".join(characters)) == "\n".join(alone)


# --- files -----------------------------------------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("seed", range(40))
def test_a_model_is_written_at_once_in_the_bytes_of_the_plain_form(tmp_path, seed):
    """Merges with all bytes; special tokens that have whitespace, quotes and backslashes; ids with gaps."""
    rng, tokens = random.Random(seed), [bytes([byte]) for byte in range(256)]
    special_tokens = rng.sample(["<a b>", '<"\\n">', "<\n\t>", "<\u2028é>", "</x>"], rng.randint(0, 3))
    vocab = [*tokens, *map(str.encode, special_tokens)]
    merges = []
    parts = [*rng.sample(tokens, 9), b'"', b"\\", b"\n", b" ", b"n"]
    if seed % 2 and "</x>" in special_tokens:  # merges of the others are refused
        parts.append(b"</x>")
    for _ in range(rng.choice([0, 1, 30])):
        left, right = rng.choices(parts, k=2)
        if left + right not in vocab:
            merges.append((left, right))
            vocab.append(left + right)
            parts.append(left + right)
    # second ids, but not of "</x>", whose name is the same as that of its bytes
    twice = special_tokens[: seed % 3]
    vocab += [special.encode() for special in twice if bpe.to_printable(special.encode()) != special]
    token_ids = rng.sample(range(999), len(vocab)) if seed % 5 else range(len(vocab))
    settings = {"rest": {"truncation": {"max_length": 5}}, "unreachable": {999: "中 "}}
    tokenizer = Tokenizer(dict(zip([*token_ids, 999], [*vocab, b"a"])), tuple(merges), special_tokens, **settings)
    tokenizer.save(tmp_path)
    # reversed: a merge has the name of the first of two ids, and the plain form, which knows no second ids, of the last
    names = {token_id: bpe.to_printable(token) for token_id, token in tokenizer.vocab.items()}
    names |= {token_id: special for special, token_id in tokenizer.special_ids.items()} | {999: "中 "}
    ids = {name: token_id for token_id, name in sorted(names.items())}
    text_of = {token: names[token_id] for token_id, token in reversed(tokenizer.vocab.items())}
    pairs = [[text_of[left], text_of[right]] for left, right in merges]
    content = {**bpe.tokenizer_json(ids, pairs, tokenizer.special_ids, "gpt2"), **settings["rest"]}
    for token in content["added_tokens"]:
        token.update(saving.tokenizer_json(ids, [], tokenizer.special_ids, "gpt2", tokenizer.settings())["added_tokens"][0], id=token["id"], content=token["content"])
    lines = "".join(f"{left} {right}\n" for left, right in pairs)
    expected = {"tokenizer.json": bpe.to_json(content), "vocab.json": bpe.to_json(ids), "merges.txt": f"#version: 0.2\n{lines}"}
    for name, text in expected.items():
        assert (tmp_path / name).read_bytes() == text.encode("utf-8")
