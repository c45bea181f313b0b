"""Compare the C engine with the Python engine on random texts: `python tests/engine/fuzz.py 30s`, or `... 30s FOLDER SEED`.

Words, merges and token ids, for all named patterns and random ones, with special tokens that nest and overlap; of whole texts,
and of files that are cut into slices of a few bytes, with bytes that aren't UTF-8. It does so for the build in a folder, or for
two, since the scanner differs between them: the default, and one without GNU C.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import warnings
from array import array
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import regex
from random_patterns import WORDS, random_pattern

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parents[2]))
import bpe
from bounds import bounded, choose_seed
from bpe_more import choices, training
from bpe_more.corpus import reading, slicing
from bpe_more.patterns import steps
from bpe_more.tokenizer import Tokenizer, encoders

HERE = Path(__file__).resolve().parents[2]
PARTS = [*WORDS, "e", "t", "'VE", "23", "½", "<", "<|"]
STEPS: list[Any] = [(r"\p{N}", "gpt2"), ("gpt2", r"\p{N}{1,3}"), (r"\p{L}+", "aa|e", "cl100k"), ("[^\\n]+\\n?", "ab|b")]
STEPS += [(r"\p{N}{1,3}", "[一-龥]+", r"['.!/][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|\s+(?!\S)|\s+")]
SPECIALS = [[], ["<|endoftext|>"], ["<|", "<|<|"], ["字", " 's"], ["aa", "a "], ["\n\n", "\u3000"], ["<|", "|>", "<||>", "<|a"]]


def choose_pattern(rng: random.Random) -> Any:
    """A named pattern, steps, or a random one that C supports, and in which regex finds the same with search and match."""
    if rng.random() < 0.2:
        return rng.choice(STEPS)
    pattern = random_pattern(rng)
    try:
        supported = not choices.find_engine()[0].pattern(steps.check_pattern(pattern))[1]
    except ValueError:
        supported = False
    return pattern if supported and "(?i:" not in pattern and r"\P" not in pattern else rng.choice(list(bpe.PATTERNS))


def split(pattern: Any, text: str) -> list[str]:
    """The matches that regex finds, and the text between them."""
    if not isinstance(pattern, str):
        words = [text]
        for step in pattern:
            words = [word for piece in words for word in split(step, piece)]
        return words
    places = [0, *(place for match in regex.finditer(bpe.PATTERNS.get(pattern, pattern), text) for place in match.span()), len(text)]
    return [text[start:end] for start, end in zip(places, places[1:]) if start < end]


def compare(numbers: Iterable[int], seed: int) -> None:
    assert choices.find_engine()[0], choices.find_engine()[1]
    warnings.simplefilter("ignore")  # few words give few merges, and a warning each time
    for number in numbers:
        place = f"seed {seed + number}"
        rng = random.Random(seed + number)
        specials, pattern = rng.choice(SPECIALS), choose_pattern(rng)
        parts = rng.sample(PARTS, rng.randint(1, len(PARTS))) + specials
        texts = ["".join(rng.choices(parts, k=rng.randint(0, 1000))) for _ in range(2)]
        in_python, in_c = ({"engine": engine, "pattern": pattern} for engine in ("python", "c"))
        words = training.count_words(None, specials, texts=texts, **in_python)
        assert training.count_words(None, specials, texts=texts, **in_c) == words, f"{place}: other words"
        if not words:  # both texts are empty, and no words to learn from are an error
            continue
        options = {
            "min_word_count": rng.choice([1, 1, 2]), "min_frequency": rng.choice([1, 1, 3]),
            "vocab_size": 256 + len(specials) + rng.choice([5, 100, 1000]),
        }  # fmt: skip
        vocab, merges = training.train_from_counts(words, special_tokens=specials, **options, engine="python")
        assert training.train_from_counts(words, special_tokens=specials, **options, engine="c") == (vocab, merges), f"{place}: other merges"
        tokenizer = Tokenizer(vocab, merges, specials, pattern)
        assert tokenizer.encoder is not None
        for text in texts:
            ids = tokenizer.encode(text)
            cuts = [0, *sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 30))), len(text)]
            pieces = [text[start:end] for start, end in zip(cuts, cuts[1:])]
            encoder, tokenizer._made_encoder = tokenizer.encoder, encoders.Encoder(tokenizer)
            assert tokenizer.encode(text) == ids, f"{place}: other ids"
            assert list(tokenizer.encode_iterable(pieces)) == ids, f"{place}: other ids in a stream (python)"
            tokenizer._made_encoder = encoder
            for stream in (text, pieces):
                assert list(tokenizer.encode_iterable(stream)) == ids, f"{place}: other ids in a stream"
            assert tokenizer.decode(ids) == text, f"{place}: another text"
        n_tokens = rng.choice([1, 20, 300])
        more = [tokenizer.extend(texts=texts[::-1], n_tokens=n_tokens, engine=engine) for engine in ("python", "c")]
        assert more[0].vocab == more[1].vocab and more[0].merges == more[1].merges, f"{place}: other merges in an extension"
        compare_cut(rng, tokenizer, texts[0], place)
    print(f"{number + 1} random texts: both engines agree")


def compare_cut(rng: random.Random, tokenizer: Any, text: str, place: str) -> None:
    """The words and ids of a file, cut into small slices, against those of its whole text, as regex finds them."""
    data, options = bytearray(text.encode()), {"errors": "replace"}
    for _ in range(rng.choice([0, 0, 3])):
        data.insert(rng.randint(0, len(data)), rng.choice([0xFF, 0x80, 0xE5]))
    whole = data.decode(errors="replace")
    specials, pattern = tokenizer.special_tokens, tokenizer.pattern
    longest_first = sorted(specials, key=len, reverse=True)
    pieces = regex.split("|".join(map(regex.escape, longest_first)), whole) if specials else [whole]
    words = Counter(word.encode() for piece in pieces for word in split(pattern, piece))
    slicing.SLICE_BYTES, slicing.WINDOW_BYTES = rng.choice([(1, 9), (7, 11), (100, 13), (1000, 64)])
    reading.SLICE_BYTES_IN_C = slicing.SLICE_BYTES
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "text.txt"), Path(folder, "ids.npy")
        path.write_bytes(data)
        for engine in ("python", "c"):
            counts = training.count_words(path, specials, pattern=pattern, engine=engine, workers=1, **options)
            assert counts == words, f"{place}: other words where the text is cut ({engine})"
            tokenizer.encode_files(path, output, engine=engine, workers=1, **options)
            assert array("H", output.read_bytes()[128:]).tolist() == tokenizer.encode(whole), f"{place}: other ids where it is cut ({engine})"
    slicing.SLICE_BYTES, reading.SLICE_BYTES_IN_C, slicing.WINDOW_BYTES = 1 << 20, 2 << 20, 64 << 10


def main() -> None:
    bound, *folder_and_seed = sys.argv[1:]
    if folder_and_seed:
        compare(bounded(bound), choose_seed(folder_and_seed[1:]))
        return
    builds = [[], ["-O2 -DPLAIN_C"]]
    for flags in builds:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bpe.py", "bpe_fast.c", "build_ffi.py"):
                shutil.copy(HERE / name, folder)
            shutil.copytree(HERE / "bpe_more", f"{folder}/bpe_more")
            subprocess.run([sys.executable, f"{folder}/build_ffi.py", *flags], check=True)
            subprocess.run([sys.executable, __file__, bound, folder], check=True)


if __name__ == "__main__":
    main()
