"""Collect text files from folders and downloaded packages into one corpus, with <|endoftext|> after each file.

    python benchmarks/collect.py OUT SOURCE [SOURCE ...] [--suffix .py ...] [--bytes 30000000] [--random-words 24000000]

SOURCE is a folder or an archive (.tar.gz, .tgz, .zip, .whl). Files are taken in the order of their paths, each text only
once, if they are valid UTF-8 and at most 10 MB. The same sources give the same corpus; its SHA-256 is printed, so that
two people can check that they measure on the same text. benchmarks/README.md lists sources for several kinds of text.

--random-words adds words that are made of five random syllables each, and nearly all of them distinct: the hardest text
for a trainer, since its memory grows with the number of distinct words.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import tarfile
import zipfile
from collections.abc import Iterator

END = b"\n<|endoftext|>\n"
LARGEST = 10_000_000  # bytes of a file
SUFFIXES = [".c", ".h", ".html", ".js", ".json", ".md", ".po", ".pod", ".py", ".rs", ".rst", ".ts", ".txt"]

File = tuple[str, bytes]  # path, content


def files_in_folder(folder: str, suffixes: tuple[str, ...]) -> Iterator[File]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for path in (os.path.join(parent, name) for name in sorted(names) if name.endswith(suffixes)):
            if os.path.isfile(path) and not os.path.islink(path) and os.path.getsize(path) <= LARGEST:
                try:
                    with open(path, "rb") as file:
                        yield path, file.read()
                except OSError:  # not readable by this user
                    continue


def files_in_zip(path: str, suffixes: tuple[str, ...]) -> Iterator[File]:
    with zipfile.ZipFile(path) as archive:
        for member in sorted(archive.infolist(), key=lambda member: member.filename):
            if member.filename.endswith(suffixes) and member.file_size <= LARGEST:
                yield member.filename, archive.read(member)


def files_in_tar(path: str, suffixes: tuple[str, ...]) -> Iterator[File]:
    with tarfile.open(path) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            if member.isfile() and member.name.endswith(suffixes) and member.size <= LARGEST:
                yield member.name, archive.extractfile(member).read()  # type: ignore[union-attr]


def files_in(source: str, suffixes: tuple[str, ...]) -> Iterator[File]:
    """Yield the files of a folder or archive, sorted by path."""
    if os.path.isdir(source):
        return files_in_folder(source, suffixes)
    if zipfile.is_zipfile(source):
        return files_in_zip(source, suffixes)
    if os.path.isfile(source) and tarfile.is_tarfile(source):
        return files_in_tar(source, suffixes)
    raise SystemExit(f"collect.py: {source} is not a folder or an archive")


def texts(sources: list[str], suffixes: tuple[str, ...], output: str) -> Iterator[bytes]:
    """Yield each distinct text once."""
    seen = set()
    for source in sources:
        for path, data in files_in(source, suffixes):
            digest = hashlib.sha256(data).digest()
            if not data or digest in seen or os.path.abspath(path) == os.path.abspath(output):
                continue
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                continue
            seen.add(digest)
            yield data


def random_words(n_words: int) -> Iterator[bytes]:
    """Yield lines of 1,000 random words, the same ones on every machine."""
    random.seed(2026)
    vowels = ("a", "e", "i", "o", "u", "an", "en", "or")
    syllables = [consonant + vowel for consonant in "bcdfghjklmnprstvwz" for vowel in vowels]
    pairs = [left + right for left in syllables for right in syllables]
    for _ in range(0, n_words, 1000):
        parts = (random.choices(of, k=1000) for of in (pairs, pairs, syllables))
        yield " ".join(map("".join, zip(*parts))).encode() + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", metavar="OUT")
    parser.add_argument("sources", metavar="SOURCE", nargs="+")
    parser.add_argument("--suffix", action="append", help=f"may be repeated (default: {' '.join(SUFFIXES)})")
    parser.add_argument("--bytes", type=int, default=1 << 62, help="the largest corpus (default: no limit)")
    parser.add_argument("--random-words", type=int, default=0, metavar="N", help="add N random words, in thousands")
    args = parser.parse_args()
    n_files, n_bytes, total = 0, 0, hashlib.sha256()
    with open(args.output, "wb") as output:
        for data in texts(args.sources, tuple(args.suffix or SUFFIXES), args.output):
            if n_bytes + len(data) + len(END) > args.bytes:
                break
            output.write(data + END)
            total.update(data + END)
            n_files, n_bytes = n_files + 1, n_bytes + len(data) + len(END)
        for line in random_words(args.random_words):
            output.write(line)
            total.update(line)
            n_bytes += len(line)
    print(f"{args.output}: {n_files:,} files, {n_bytes:,} bytes, SHA-256 {total.hexdigest()}")


if __name__ == "__main__":
    main()
