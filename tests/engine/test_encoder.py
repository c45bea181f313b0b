"""The encoder in bpe_encode.c gives the ids of bpe_more.Tokenizer in Python, to the last one.

Each test of ids runs with it, and with one whose memory of words is so small that it forgets all the time. TRIALS is how
many random cases a test has.
"""

import array
import copy
import gc
import importlib.machinery
import importlib.util
import itertools
import os
import random
import threading
import time
import types

import pytest

import bpe
import build_ffi
from bpe_more import choices, training
from bpe_more.engine import Engine
from bpe_more.engine.encoder import LONG_TEXT
from bpe_more.formats.gpt2 import IgnoredMerges
from bpe_more.tokenizer import Tokenizer, encoders

BUILT, _ = choices.find_engine()  # without it, all tests here are skipped
TRIALS = int(os.environ.get("TRIALS", 100))
BYTES = {byte: bytes([byte]) for byte in range(256)}
MARK = 0xABCDEF01  # stands behind the room for ids
PARTS = ["a", "b", "ab", "aa", "ba", " ", "  ", "\n", "'", "'ll", "1", "é", "字", "漢字", "😀", "\u3000", "<|", "|>", "<", "."]
PARTS += ["low", " lower", " newest", "x" * 70, "ab" * 40, "字" * 30, "aaa", "-" * 20, "AB", "'S", "/\n"]


def built_with(flag, folder):
    """The engine, compiled with a flag."""
    ffi = build_ffi.module(f"-O1 {flag}", optional=False)
    loader = importlib.machinery.ExtensionFileLoader("_bpe_fast", ffi.compile(tmpdir=folder))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("_bpe_fast", loader))
    loader.exec_module(module)
    return Engine(module, bpe.PATTERNS, bpe.last_cut)


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    return {"as it is built": BUILT, "that forgets": built_with("-DCACHE_WORDS=48", tmp_path_factory.mktemp("forgets"))}


@pytest.fixture(params=["as it is built", "that forgets"])
def engine(request, engines):
    return engines[request.param]


def new_cache(encoder):
    """A cache, as a call makes one."""
    return encoder.engine.create("cache", encoder.handle)


def encode(engine, data, cache):
    """(status, ids); nothing is written behind the room for the ids."""
    ffi = engine.ffi
    ids, ends = ffi.new("uint32_t[]", len(data) + 4), ffi.new("uint64_t[]", [len(data)])
    ids[len(data) + 3] = MARK
    status = engine.lib.bpe_encode(cache, ffi.from_buffer("uint8_t[]", data), ends, 1, ids, ffi.NULL, ffi.NULL)
    assert ids[len(data) + 3] == MARK
    found = array.array("I", ffi.buffer(ids)[: 4 * ends[0]]).tolist()
    narrow = ffi.new("uint16_t[]", len(data) + 3)
    narrow[len(data) + 2] = MARK & 0xFFFF
    ends[0] = len(data)
    assert engine.lib.bpe_encode(cache, ffi.from_buffer("uint8_t[]", data), ends, 1, ids, narrow, ffi.NULL) == status
    assert ids[len(data) + 3] == MARK and narrow[len(data) + 2] == MARK & 0xFFFF
    if not status:
        assert list(narrow[0 : ends[0]]) == [token_id & 0xFFFF for token_id in found]
    return status, found


def check(engines, tokenizer, texts):
    """The ids of some texts are those of Python: with words that are new, with words that are known, and by encode()."""
    tokenizer._made_encoder = encoders.Encoder(tokenizer)
    expected = [tokenizer.encode(text) for text in texts]
    for name, engine in engines.items():
        encoder = engine.encoder(tokenizer)
        cache = new_cache(encoder)
        for text, ids in zip(texts, expected):
            data = text.encode()
            for used in (new_cache(encoder), cache, cache):
                assert encode(engine, data, used) == (engine.lib.BPE_OK, ids), (text, name)
            assert encoder.encode_utf8(data) == ids, (text, name)


def random_text(rng, parts, length):
    return "".join(rng.choices(parts, k=rng.randint(0, length)))


def random_vocabulary(rng, alphabet, n):
    """Merges that no training gives, in any order, and ids anywhere; several merges may make the same token.

    Half of the lists could be replayed; in the others, a merge makes a token that an earlier one uses.
    """
    tokens, merges = [bytes([byte]) for byte in alphabet], {}
    for _ in range(n):
        left, right = rng.choice(tokens), rng.choice(tokens)
        if len(left + right) <= 12:
            merges[left, right] = None
            tokens.append(left + right)
    order, taken, replayed = list(merges), set(), rng.random() < 0.5
    if rng.random() < 0.5:
        rng.shuffle(order)
    for left, right in order[:] if replayed else ():
        if left + right in taken:
            order.remove((left, right))
        else:
            taken |= {left, right}
    tokens = list(dict.fromkeys(tokens))
    return dict(zip(rng.sample(range(rng.choice([len(tokens), 10**5, 2**32 - 1])), len(tokens)), tokens)), order


def trained(texts, merges, special_tokens=(), pattern="gpt2"):
    size = 256 + len(special_tokens) + merges
    vocab, pairs = training.train_bpe(None, size, special_tokens, texts=texts, pattern=pattern, engine="python", workers=1)
    return Tokenizer(vocab, pairs, special_tokens, pattern)


# --- ids -------------------------------------------------------------------------------------------------------------

IN_TURN = (r"\p{N}{1,3}", "[一-龥]+", r"[<|>.'][A-Za-z]+|[^\s\p{L}]?\p{L}+|\s+(?!\S)|\s+")  # steps that are no single automaton
SPECIALS = [[], ["<|"], ["<|", "<|<|", "<|a|>"], ["aa", "aaa", "ab"], ["字", "漢字", " 字"], ["|><", "<|", "|>", "><|>"]]


def test_ids_are_the_same_without_the_lists_that_c_makes(tmp_path):
    """Of a short text, a long one in parts, a batch, and after an error."""
    tokenizer = trained(["low lower newest " * 9], 20, ["<|"])
    engine = built_with("-DNO_LISTS", tmp_path)
    without, encoder = engine.encoder(tokenizer), BUILT.encoder(tokenizer)
    tokenizer._made_encoder = encoders.Encoder(tokenizer)
    long = "lowest 漢字 <| newer\n" * (LONG_TEXT // 20)
    for text in ["", "low", "low<|er", "x" * 5000, long]:
        assert without.encode(text) == encoder.encode(text) == tokenizer.encode(text)
    assert without.encode_short(b"low") is None and encoder.encode_short(b"low") == tokenizer.encode("low")
    texts = tuple(text.encode() for text in ("low", "", "newest<|", "x" * 5000))
    slices = [bpe.Slice("", 0, 4, texts), bpe.Slice("", 4, 8, texts[::-1])]
    assert without.encode_batch(iter(slices), 2) == encoder.encode_batch(iter(slices), 2) == encoder.encode_texts(texts + texts[::-1])
    with pytest.raises(UnicodeDecodeError):
        without.encode_utf8(b"low \xff")
    assert without.encode_utf8(b"low") == encoder.encode_utf8(b"low")


@pytest.mark.parametrize("special_tokens", SPECIALS)
@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, IN_TURN])
def test_ids_are_those_of_python(engines, pattern, special_tokens):
    rng = random.Random(1)
    tokenizer = trained([random_text(rng, PARTS, 400)], 150, special_tokens, pattern)
    check(engines, tokenizer, [random_text(rng, PARTS + special_tokens, 200) for _ in range(TRIALS // 20)])


def test_the_ids_of_merges_are_found_by_the_names_of_their_tokens():
    rng, engine = random.Random(5), BUILT
    for _ in range(TRIALS):
        alphabet = rng.choice([b"ab", b"abc ", bytes(range(256))])
        vocab, merges = random_vocabulary(rng, alphabet, rng.choice([0, 3, 60]))
        long = rng.randbytes(rng.randint(16, 40))  # a key of another kind
        merges.append((long, b"ab"))
        tokens = {token_id: token for token_id, token in vocab.items() if token not in (long, long + b"ab", b"ab")}
        tokens |= {2**32 - 2: b"", 2**32 - 3: long, 2**32 - 4: long + b"ab", 2**32 - 5: b"ab"}
        ids = {bpe.to_printable(token): token_id for token_id, token in tokens.items()}
        names = [tuple(map(bpe.to_printable, pair)) for pair in merges]
        lines = list(map(" ".join, names))
        found = engine.find_merges(ids, lines)
        assert found.tolist() == [ids[name] for left, right in names for name in (left, right, left + right)]
        # no space, two spaces, a name that is missing, and two lines in one
        for wrong in ("ab", "a  b", "a b c", "", " ", "a ", " b", f"{lines[0]}x", "\n", f"{lines[0]}\n{lines[-1]}"):
            assert not engine.find_merges(ids, [*lines, wrong])
            assert not engine.find_merges(ids, [wrong, *lines])
        del ids[rng.choice([name for pair in names for name in (*pair, "".join(pair))])]
        assert not engine.find_merges(ids, lines)


def test_the_splits_of_tokens_are_all_pairs_of_others():
    rng = random.Random(6)
    for _ in range(TRIALS):
        alphabet = rng.choice(["ab", "abc ", "abcdefgh"])
        tokens = {random_text(rng, alphabet, rng.choice([3, 20, 50])).encode() for _ in range(rng.choice([1, 10, 100]))}
        ids = dict(zip(tokens, rng.sample(range(2**32 - 1), len(tokens))))
        splits = [(ids[token], ids[token[:end]], ids[token[end:]]) for token in ids for end in range(1, len(token))
                  if token[:end] in ids and token[end:] in ids]  # fmt: skip
        expected = [number for made, left, right in sorted(splits) for number in (left, right, made)]
        assert BUILT.find_splits({token_id: token for token, token_id in ids.items()}).tolist() == expected


def test_ids_are_those_of_python_for_merges_that_no_training_gives(engines):
    rng, coinciding = random.Random(2), 0
    for _ in range(TRIALS):
        alphabet = rng.choice([b"ab", b"abc ", bytes(range(256))])
        vocab, merges = random_vocabulary(rng, alphabet, rng.choice([3, 10, 60, 400]))
        coinciding += len({left + right for left, right in merges}) < len(merges)
        tokenizer = Tokenizer(vocab, merges)
        texts = [random_text(rng, "aaab cb"[: 5 + 2 * (b"c" in alphabet)], 300) for _ in range(3)]
        possible = [text for text in texts if set(text.encode()) <= set(alphabet)]
        for text, engine in itertools.product(set(texts) - set(possible), engines.values()):
            assert encode(engine, text.encode(), new_cache(engine.encoder(tokenizer)))[0] == engine.lib.BPE_NO_TOKEN
        check(engines, tokenizer, possible)
    assert coinciding > TRIALS // 20


def test_characters_whose_bytes_are_merged_at_once_get_the_same_ids(engines):
    """Characters that share bytes: where merges are in order, some are safe to make at once, and others are not."""
    rng = random.Random(7)
    characters = ["字", "孖", "学", "é", "ê", "©", "😀", "a", " "]
    for _ in range(TRIALS):
        chosen = rng.sample(characters, rng.randint(1, 6))
        alphabet = bytes(sorted(set("".join(chosen).encode())))
        tokenizer = Tokenizer(*random_vocabulary(rng, alphabet, rng.choice([2, 5, 10, 30, 100])))
        check(engines, tokenizer, [random_text(rng, chosen, length) for length in (3, 10, 100)])


def test_words_that_are_tokens_stay_whole(engines):
    """Tokens that merging would split, short and long, also in a cache that forgets, and with a byte that has no token."""
    rng, split = random.Random(8), 0
    for _ in range(TRIALS // 10):
        vocab, merges = random_vocabulary(rng, b"abc ", rng.choice([3, 10, 60]))
        new = (max(vocab) + 1 + n for n in range(10)) if max(vocab) < 2**31 else iter(sorted(set(range(99)) - set(vocab)))
        for word in {random_text(rng, ["a", "b", "c", "d"], 20).encode() for _ in range(8)} - {b""} - set(vocab.values()):
            vocab[next(new)] = word
        whole, parts = Tokenizer(vocab, IgnoredMerges(merges)), Tokenizer(vocab, merges)
        words = [token.decode() for token in vocab.values() if len(token) > 1 and b" " not in token and token.isalpha()]
        for word in words:
            try:
                split += parts.encode(word) != whole.encode(word)
            except ValueError:
                split += b"d" not in vocab.values()
            assert whole.encode(word) == [whole.ids[word.encode()]]
        check(engines, whole, words[-12:])
    assert split > TRIALS // 10


@pytest.mark.parametrize("n", [1, 256, 1024])
def test_merges_of_tokens_that_nothing_makes_are_never_made(engines, n):
    merges = [(b"ab%04d" % number, b"cd%04d" % number) for number in range(n)]
    tokens = [*BYTES.values(), *(token for pair in merges for token in (*pair, b"".join(pair))), b"ab"]
    tokenizer = Tokenizer(dict(enumerate(tokens)), [*merges, (b"a", b"b")])
    check(engines, tokenizer, ["ab0000cd0000 ab0255cd0255 ab"])


def test_an_empty_text_and_no_merges(engines):
    check(engines, Tokenizer(BYTES, []), ["", "né字 x"])


def test_words_of_any_length_get_the_same_ids(engines):
    """Short words are merged in an array, long ones in a tree; the longest are not remembered."""
    rng = random.Random(3)
    tokenizer = trained(["a" * 5000 + " " + "".join(rng.choices("abcde", k=5000))], 400)
    lengths = [*range(1, 20), *range(55, 75), 130, 1022, 1023, 1024, 1025, 5000]
    check(engines, tokenizer, [text for length in lengths for text in ("a" * length, "".join(rng.choices("abcde", k=length)))])


def test_a_long_word_takes_n_log_n():
    rng = random.Random(3)
    tokenizer = trained(["a" * 5000 + " " + "".join(rng.choices("abcde", k=5000))], 400)
    encoder = BUILT.encoder(tokenizer)
    for text in ("a" * 2_000_000, "".join(rng.choices("abcde", k=2_000_000))):
        start = time.process_time()
        ids = encoder.encode_utf8(text.encode())
        assert time.process_time() - start < 10
        assert tokenizer.decode(ids) == text


# --- the memory of words ---------------------------------------------------------------------------------------------


def test_more_words_than_the_memory_has_room_for(engines):
    rng = random.Random(4)
    tokenizer = trained(["".join(rng.choices("abcdefgh ", k=3000))], 50)
    long_words = ["".join(rng.choices("abcdefgh字", k=200)) for _ in range(5)]
    check(engines, tokenizer, ["".join(rng.choices("abcdefgh ", k=20_000)) + " " + word for word in long_words])


def test_a_memory_that_is_full_is_emptied():
    """The engine as it is built keeps 32 MB of words and ids; here are more of them, and then the first words again."""
    rng = random.Random(8)
    encoder = BUILT.encoder(Tokenizer({**BYTES, 256: b"ab"}, [(b"a", b"b")]))
    text = " ".join("".join(rng.choices("abcd", k=700)) for _ in range(9000)).encode()
    for data in (text, text[:100_000]):
        ids = [255 if token_id == 256 else token_id for token_id in encoder.encode_utf8(data)]
        assert bytes(ids) == data.replace(b"ab", b"\xff")


def test_threads_share_an_encoder(engine):
    rng = random.Random(5)
    tokenizer = trained([random_text(rng, PARTS, 500)], 100, ["<|"])
    tokenizer._made_encoder = encoders.Encoder(tokenizer)
    encoder = engine.encoder(tokenizer)
    texts = [random_text(rng, PARTS, 3000) for _ in range(8)]
    found = [[] for _ in range(4)]

    def work(ids):
        ids += [encoder.encode_utf8(text.encode()) for text in texts]

    threads = [threading.Thread(target=work, args=(ids,)) for ids in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[tokenizer.encode(text) for text in texts]] * 4


# --- what can't be encoded -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["gpt2", IN_TURN])
@pytest.mark.parametrize("bad", [b"\xff", b"\xe5\xad", b"\xed\xa0\x80", b"\xc0\x80", b"\x80", b"\xf4\x90\x80\x80"])
def test_bytes_that_are_not_utf8_are_found(engine, bad, pattern):
    encoder = engine.encoder(trained(["low lower newest"], 5, ["<|end|>"], pattern))
    cache = new_cache(encoder)
    for before in ("", "low", "low lower<|end|>", "字" * 50, "x" * 100, "<|end|>" * 3, "a" * 63, "a" * 64, "é " * 40):
        for after in ("", " low", "<|end|>", " " * 100):
            data = before.encode() + bad + after.encode()
            assert encode(engine, data, cache)[0] == engine.lib.BPE_BAD_UTF8
            for method in (encoder.encode_utf8, lambda data: encoder.encode_texts([data], "u2")):
                with pytest.raises(UnicodeDecodeError) as error:
                    method(data)
                assert error.value.start == len(before.encode())


@pytest.mark.parametrize("pattern", ["gpt2", IN_TURN])
def test_a_byte_without_a_token_is_found(engine, pattern):
    vocab = {0: b"a", 1: b"b", 2: b" ", 3: b"ab", 9: b"<|end|>"}
    encoder = engine.encoder(Tokenizer(vocab, [(b"a", b"b")], ["<|end|>"], pattern))
    cache = new_cache(encoder)
    for before in ("", "ab", "ab a<|end|>", "a" * 100, "ab " * 100, "<|end|>" * 2):
        for after in ("", "ab", "c" * 100, "<|end|>", " ab c"):
            data = (before + "c" + after).encode()
            assert encode(engine, data, cache)[0] == engine.lib.BPE_NO_TOKEN
            with pytest.raises(ValueError) as error:
                encoder.encode_utf8(data)
            assert str(error.value) == f"the vocabulary has no token for the byte b'c', in {('c' + after)[:40]!r}; errors='replace' leaves it out"
            with pytest.raises(UnicodeDecodeError):
                encoder.encode_utf8(data + b"\xff")
    assert encode(engine, b"ab<|end|>a", cache)[1] == [3, 9, 0]  # the special token's bytes need none


def test_a_byte_without_a_token_within_a_character_is_shown_with_the_character(engine):
    tokens = [byte for byte in BYTES.values() if byte != b"\xad"]
    encoder = engine.encoder(Tokenizer(dict(enumerate(tokens)), []))
    with pytest.raises(ValueError, match="for the byte b'\\\\xad', in '字 x'"):
        encoder.encode_utf8("a é字 x".encode())


def test_an_encoder_that_is_called_during_a_call_does_not_overwrite_its_ids(engine):
    """As if a signal came before its ids were copied."""
    encoder = engine.encoder(Tokenizer(BYTES, []))
    encoder.encode_utf8(b"ab")
    during = []

    def bpe_encode(*arguments):
        status = engine.lib.bpe_encode(*arguments)
        if not during:
            during.append(encoder.for_lists.cache == engine.ffi.NULL)  # no other call may use this cache
            during.append(encoder.encode_utf8(b"xyz"))
        return status

    names = {name: getattr(engine.lib, name) for name in dir(engine.lib)}
    lib = types.SimpleNamespace(**names | {"bpe_encode": bpe_encode})
    encoder.engine = types.SimpleNamespace(lib=lib, **{name: getattr(engine, name) for name in ("ffi", "new", "create", "joined")})
    for kind, code in (("u2", "H"), ("u4", "I")):
        assert array.array(code, encoder.encode_texts([b"abc"], kind)[0]).tolist() == [97, 98, 99]
        assert during == [True, [120, 121, 122]]
        during.clear()


def test_ctrl_c_while_c_makes_something_frees_it():
    """C may take a second, and Ctrl-C is raised when it returns."""
    made, freed = [], []

    def new(*arguments):
        BUILT.lib.bpe_words_new(*arguments)
        made.append(arguments[-1][0])
        raise KeyboardInterrupt

    def free(handle):
        freed.append(handle)
        BUILT.lib.bpe_words_free(handle)

    engine = copy.copy(BUILT)
    engine.lib = types.SimpleNamespace(bpe_words_new=new, bpe_words_free=free)
    with pytest.raises(KeyboardInterrupt):
        engine.create("words", build_ffi.new_seed())
    gc.collect()
    assert freed == made and made[0] != BUILT.ffi.NULL


# --- narrow ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 100, 1001])
def test_narrow_ids_are_16_bits_wide(engine, n):
    text = bytes(random.Random(n).choices(range(97, 123), k=n))
    encoder = engine.encoder(Tokenizer({**{byte: bytes([byte]) for byte in range(97)}, 0xFFFF: b"a"} | {
        byte: bytes([byte]) for byte in range(98, 256)}, []))
    wide = encoder.encode_utf8(text)
    for kind, code in (("u2", "H"), ("u4", "I")):
        assert array.array(code, encoder.encode_texts([text], kind)[0]).tolist() == wide
    assert wide == [0xFFFF if byte == 97 else byte for byte in text]
