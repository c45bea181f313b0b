"""The encoder in bpe_encode.c gives the ids of bpe_more.Tokenizer in Python, to the last one.

Each test of ids runs with it, and with one whose memory of words is so small that it forgets all the time. TRIALS is how
many random cases a test has.
"""

import array
import concurrent.futures
import copy
import gc
import itertools
import os
import random
import time
import types

import pytest
from test_scanners import compile_engine

import bpe
import build_ffi
from bpe_more import choices, training
from bpe_more.engine.encoder import LONG_TEXT
from bpe_more.formats.gpt2 import IgnoredMerges
from bpe_more.tokenizer import Tokenizer, encoders

BUILT, _ = choices.find_engine()  # without it, all tests here are skipped
TRIALS = int(os.environ.get("TRIALS", 100))
BYTES = {byte: bytes([byte]) for byte in range(256)}
PARTS = ["a", "b", "ab", "aa", "ba", " ", "  ", "\n", "'", "'ll", "1", "é", "字", "漢字", "😀", "\u3000", "<|", "|>", "<", "."]
PARTS += ["low", " lower", " newest", "x" * 70, "ab" * 40, "字" * 30, "aaa", "-" * 20, "AB", "'S", "/\n"]


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """The engine as it is built, and one that forgets words all the time, and whose lists Python makes."""
    folder = tmp_path_factory.mktemp("forgets")
    return {"as it is built": BUILT, "that forgets": compile_engine(folder, ["-O1", "-DCACHE_WORDS=48", "-DNO_LISTS"])}


def check(engines, tokenizer, texts):
    """The ids of some texts are those of Python: with words that are new, with words that are known, and as arrays."""
    in_python, data = encoders.Encoder(tokenizer), [text.encode() for text in texts]
    expected = [in_python.encode_utf8(text) for text in data]
    flat = list(itertools.chain(*expected))
    for name, engine in engines.items():
        encoder = engine.encoder(tokenizer)
        for text, ids in [*zip(data, expected)] * 2:
            assert encoder.encode_utf8(text) == ids, (text, name)
        for kind, code, largest in (("u2", "H", 0xFFFF), ("u4", "I", 0xFFFFFFFF)):  # narrow ids are the low 16 bits
            assert array.array(code, encoder.encode_texts(data, kind)[0]).tolist() == [token_id & largest for token_id in flat], name


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


def test_ids_are_the_same_without_the_lists_that_c_makes(engines):
    """Of a short text, a long one in parts, a batch, and after an error."""
    tokenizer = trained(["low lower newest " * 9], 20, ["<|"])
    without, encoder = engines["that forgets"].encoder(tokenizer), BUILT.encoder(tokenizer)
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
            with pytest.raises(ValueError, match="no token for the byte"):
                engine.encoder(tokenizer).encode_utf8(text.encode())
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


def test_a_character_that_several_merges_make_is_not_made_at_once_before_one_that_uses_it(engines):
    """`xx 中` comes after `中 中`, which an earlier merge's 中 must not have taken: Chinese text with merges in any order."""
    rng, differ = random.Random(8), 0
    first, second, third = (bytes([byte]) for byte in "中".encode())
    character = first + second + third
    ways = [(first, second), (second, third), (first + second, third), (first, second + third)]
    users = [(b"x", b"x"), (b"x", character), (b"xx", character), (character, character), (character, b"y"), (b"x", first), (third, b"y")]
    for _ in range(20 * TRIALS):
        pairs = rng.sample(ways + users, rng.randint(3, 11))
        known = {*BYTES.values(), *(left + right for left, right in pairs)}
        merges = [pair for pair in pairs if known.issuperset(pair)]
        differ += [left + right for left, right in merges].count(character) > 1
        tokenizer = Tokenizer(dict(enumerate(sorted(known))), tuple(merges))
        check({"as it is built": BUILT}, tokenizer, ["中", "x中", "中y", "xx中", "中中", "xx中中y"])
    assert differ > TRIALS


def test_with_ignore_merges_a_long_word_beyond_ascii_that_is_a_token_stays_whole(engines):
    """Other long words are merged in pieces."""
    words = ["字符編碼器學", "字" * 30, "a字" * 9 + "é"]
    vocab = dict(enumerate([*BYTES.values(), *map(str.encode, words)]))
    for ignored in (True, False):
        tokenizer = Tokenizer(vocab, (), ignore_merges=ignored)
        check(engines, tokenizer, [*words, " ".join(words), "字" * 31])
        assert [len(tokenizer.encode(word)) == 1 for word in words] == [ignored] * 3


@pytest.mark.parametrize("n", [1, 256, 1024])
def test_merges_of_tokens_that_nothing_makes_are_never_made(engines, n):
    merges = [(b"ab%04d" % number, b"cd%04d" % number) for number in range(n)]
    tokens = [*BYTES.values(), *(token for pair in merges for token in (*pair, b"".join(pair))), b"ab"]
    tokenizer = Tokenizer(dict(enumerate(tokens)), [*merges, (b"a", b"b")])
    check(engines, tokenizer, ["ab0000cd0000 ab0255cd0255 ab"])
    check(engines, Tokenizer(BYTES, []), ["", "né字 x"])  # and without merges
    check(engines, Tokenizer({0: b"a", 1: b"ad"}, IgnoredMerges([])), ["ad"])  # a whole word needs no tokens of its bytes


def test_words_of_any_length_get_the_same_ids_and_long_ones_take_n_log_n(engines):
    """Short words are merged in an array, long ones in a tree; the longest are not remembered."""
    rng = random.Random(3)
    tokenizer = trained(["a" * 5000 + " " + "".join(rng.choices("abcde", k=5000))], 400)
    lengths = [*range(1, 20), *range(55, 75), 130, 1022, 1023, 1024, 1025, 5000]
    check(engines, tokenizer, [text for length in lengths for text in ("a" * length, "".join(rng.choices("abcde", k=length)))])
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
    text = " ".join("".join(rng.choices("abcd", k=700)) for _ in range(11_000)).encode()
    for data in (text, text[:100_000]):
        ids = [255 if token_id == 256 else token_id for token_id in encoder.encode_utf8(data)]
        assert bytes(ids) == data.replace(b"ab", b"\xff")


def test_threads_that_encode_at_once_use_a_cache_each():
    """Also for short texts, which take the cache of the last call if no call has it."""
    rng = random.Random(5)
    tokenizer = trained([random_text(rng, PARTS, 500)], 100, ["<|"])
    texts = [random_text(rng, PARTS, length) for length in (3000, *[20] * 50) * 8]
    expected = [encoders.Encoder(tokenizer).encode_utf8(text.encode()) for text in texts]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(tokenizer.encode, texts * 4)) == expected * 4


def test_while_a_call_uses_a_cache_no_short_text_takes_it():
    """Threads would crash, but seldom: here, C is asked at the moment at which another thread could come."""
    encoder = trained(["low lower newest"], 5).encoder
    encoder.encode("low")
    seen = []

    class Library:
        def __getattr__(self, name):
            return getattr(BUILT.lib, name)

        def bpe_encode(self, cache, *arguments):
            seen.append(encoder.for_lists.cache)
            return BUILT.lib.bpe_encode(cache, *arguments)

    encoder.engine = copy.copy(BUILT)
    encoder.engine.lib = Library()
    for _ in range(2):
        encoder.encode_texts([b"low", b"newest"])
    assert seen == [BUILT.ffi.NULL] * 2 and encoder.for_lists.cache != BUILT.ffi.NULL


# --- what can't be encoded -------------------------------------------------------------------------------------------


def test_a_byte_without_a_token_within_a_character_is_shown_with_the_character():
    tokens = [byte for byte in BYTES.values() if byte != b"\xad"]
    with pytest.raises(ValueError, match="for the byte b'\\\\xad', in '字 x'"):
        Tokenizer(dict(enumerate(tokens)), []).encode("a é字 x")


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
