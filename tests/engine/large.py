"""Train on more than 2 GB of text, made on the spot, and encode it: `python tests/engine/large.py`, with 4 GB of space.

The text is the fixture many times, with a special token after each. So its counts are those of one, times their number, and its
ids are those of one, again and again; both are computed in Python, from the fixture alone. No offset or length fits 31 bits.
"""

import hashlib
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE))
import bpe  # noqa: E402
from bpe_more import Tokenizer, count_words, find_engine, train_bpe, train_from_counts  # noqa: E402

END = "<|endoftext|>"
BYTES = 2**31 + 2**26


def main() -> None:
    assert find_engine()[0], find_engine()[1]
    begun = time.monotonic()
    text = (HERE / "fixtures/corpus.txt").read_text(encoding="utf-8") + END
    n = BYTES // len(text.encode()) + 1
    counts = count_words(None, [END], texts=[text], engine="python")
    expected = train_from_counts({word: n * count for word, count in counts.items()}, 2000, [END], engine="python")
    tokenizer = Tokenizer(*expected, [END])
    ids = bpe.Tokenizer(*expected, [END]).encode_in_python(text)
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder, "text.txt"), Path(folder, "ids.npy")
        block = text.encode() * 100
        with open(path, "wb") as file:
            for _ in range(n // 100):
                file.write(block)
            file.write(text.encode() * (n % 100))
        assert train_bpe(path, 2000, [END], engine="c") == expected, "other merges"
        print(f"{path.stat().st_size:,} bytes: the merges of {n:,} times the counts; {time.monotonic() - begun:.0f} s", flush=True)
        assert tokenizer.encode_files(path, output, engine="c") == n * len(ids), "another number of ids"
        piece = b"".join(number.to_bytes(2, sys.byteorder) for number in ids)
        wanted, found = hashlib.sha256(), hashlib.sha256()
        for _ in range(n):
            wanted.update(piece)
        with open(output, "rb") as file:
            file.seek(128)
            while block := file.read(1 << 20):
                found.update(block)
        assert found.digest() == wanted.digest(), "other ids"
    print(f"{n * len(ids):,} ids, those of one text again and again; {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
