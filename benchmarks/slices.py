"""How fast slices of texts are encoded, next to fastokens (to lists) and gigatoken (to arrays), in turns.

    pip install fastokens gigatoken
    python benchmarks/slices.py english.txt code.txt

The first corpus is cut into texts of several lengths, the others only into pieces of 400,000 characters. The model is
trained on each corpus, with GPT-2's pattern and 32,000 tokens.
"""

import argparse
import gc
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import encoders

import bpe

MOST = 20_000_000  # characters of a corpus
Call = Callable[[Any, list[str]], object]


def load_fastokens(folder: str) -> Any:
    import fastokens

    return fastokens.Tokenizer.from_file(f"{folder}/{encoders.KNOWN}")


def load_gigatoken(folder: str) -> Any:
    import gigatoken

    return gigatoken.Tokenizer.from_json(Path(folder, encoders.KNOWN).read_bytes())


def one_by_one(tokenizer: Any, texts: list[str]) -> object:
    encode = tokenizer.encode
    return [encode(text) for text in texts]


# for each kind of call: ours, theirs, how their tokenizer is loaded
CALLS: dict[str, tuple[Call, Call, Callable[[str], Any]]] = {
    "fastokens": (one_by_one, lambda other, texts: [other.encode(text).ids for text in texts], load_fastokens),
    "fastokens, batch": (
        lambda ours, texts: ours.encode_batch(texts),
        lambda other, texts: [encoding.ids for encoding in other.encode_batch(texts)],
        load_fastokens,
    ),
    "gigatoken, arrays": (lambda ours, texts: ours.encode_arrays(texts, workers=1), one_by_one, load_gigatoken),
}


def compare(kind: str, name: str, folder: str, texts: list[str], rounds: int, known: bool) -> None:
    """Print a row. Each round has new tokenizers; with known, both have encoded the texts before."""
    ours, theirs, load = CALLS[kind]
    runs: list[tuple[float, ...]] = []
    for number in range(rounds):
        both = [(ours, bpe.Tokenizer.load(folder)), (theirs, load(folder))]
        times: list[tuple[float, ...]] = [(), ()]
        for call, tokenizer in both:
            tokenizer.encode("hi")
            if known:
                call(tokenizer, texts)
        for index in (0, 1) if number % 2 else (1, 0):
            call, tokenizer = both[index]
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            result = call(tokenizer, texts)
            times[index] = time.perf_counter() - wall, time.process_time() - cpu
            del result
        runs.append(times[0] + times[1])
    wall, cpu, their_wall, their_cpu = (statistics.median(column) * 1e3 for column in zip(*runs))
    ratios = [statistics.median(run[index + 2] / run[index] for run in runs) for index in (0, 1)]
    cells = f"{wall:,.1f} | {cpu:,.1f} | {their_wall:,.1f} | {their_cpu:,.1f} | {ratios[0]:.2f} | {ratios[1]:.2f}"
    print(f"| {name}, {'known' if known else 'first time'} | {kind} | {cells} |", flush=True)


def cut(text: str, n: int) -> list[str]:
    return [text[start : start + n] for start in range(0, len(text), n)]


def rows_of(path: str, is_first: bool) -> Iterable[tuple[str, str, list[str], tuple[bool, ...]]]:
    """Yield (kind of call, name, texts, whether their words are known) for the rows of a corpus."""
    text = Path(path).read_text(encoding="utf-8")[:MOST].replace(encoders.END, "")
    if is_first:
        yield "fastokens, batch", "texts of 100 characters", cut(text, 100), (False, True)
        yield "fastokens, batch", "texts of 4,000 characters", cut(text, 4000), (False, True)
        yield "gigatoken, arrays", "texts of 4,000 characters", cut(text, 4000), (False, True)
        for n in (5, 100, 1000):
            yield "fastokens", f"texts of {n:,} characters", cut(text[: MOST // 10], n), (True,)
        words = sorted(set(text.split()))
        random.Random(1).shuffle(words)
        for n in (100, 1000):
            yield "fastokens", f"texts of {n:,} characters, each word new", cut(" ".join(words), n), (False,)
    yield "fastokens", f"pieces of {Path(path).name}", cut(text, 400_000), (False, True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+")
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    print("| texts | other | ms | CPU ms | other, ms | CPU ms | ratio | of CPU |\n|---|---|---:|---:|---:|---:|---:|---:|")
    for path in args.corpora:
        with tempfile.TemporaryDirectory() as folder:
            encoders.save_model(path, 32_000, "gpt2", folder)
            for kind, name, texts, states in rows_of(path, path == args.corpora[0]):
                for known in states:
                    compare(kind, name, folder, texts, args.repeat, known)


if __name__ == "__main__":
    main()
