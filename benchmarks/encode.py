"""Encode a text with a vocabulary trained on it: speed on one core, and the memory that encode_iterable takes.

    python benchmarks/encode.py CORPUS [VOCAB_SIZE]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

END = "<|endoftext|>"


def resident_bytes() -> int:
    """The resident memory of this process (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def first_lines(path: str, characters: int) -> Iterator[str]:
    """The lines of a file, until there are so many characters."""
    with open(path, encoding="utf-8", newline="") as file:
        for line in file:
            yield line
            characters -= len(line)
            if characters < 0:
                return


def main() -> None:
    path, size = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    vocab, merges = bpe.train_bpe(path, size, [END])
    tokenizer, before = bpe.Tokenizer(vocab, merges, [END]), resident_bytes()
    count = sum(1 for _ in tokenizer.encode_iterable(first_lines(path, 5_000_000)))
    print(f"encode_iterable, the first 5 MB: {count:,} ids, {(resident_bytes() - before) / 1e6:.1f} MB more memory")
    with open(path, encoding="utf-8", newline="") as file:
        text = file.read()
    times = []
    for _ in range(3):
        tokenizer = bpe.Tokenizer(vocab, merges, [END])  # with an empty cache
        start = time.perf_counter()
        ids = tokenizer.encode(text)
        times.append(time.perf_counter() - start)
    assert tokenizer.decode(ids) == text
    print(f"encode: {len(text.encode()) / statistics.median(times) / 1e6:.1f} MB/s, median of 3, {len(ids):,} ids")


if __name__ == "__main__":
    main()
