"""The figures of the exercises in docs, and the pictures of the README, are what the code gives.

    PYTHONPATH=. python -m pytest -q .ci/test_docs.py
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import regex

import bpe

HERE = Path(bpe.__file__).parent
END = "<|endoftext|>"
FIXTURE = (HERE / "fixtures" / "corpus.txt").read_bytes().decode("utf-8")


def train_with_smaller_pairs(words, n_merges):
    """train_by_definition, but the smaller pair wins a tie."""
    merges = []
    while len(merges) < n_merges and (counts := bpe.count_pairs(words)):
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        words = {bpe.merge_pair(word, merges[-1]): count for word, count in words.items()}
    return merges


def longest_first(word, vocab):
    """Cut a word into tokens, taking the longest possible one each time."""
    data, tokens = b"".join(word), []
    while data:
        tokens.append(next(data[:n] for n in range(len(data), 0, -1) if data[:n] in vocab))
        data = data[len(tokens[-1]) :]
    return tuple(tokens)


def count_without_overlap(words):
    counts = Counter()
    for word, count in words.items():
        at = 0
        while at + 1 < len(word):
            counts[word[at : at + 2]] += count
            at += 2 if word[at] == word[at + 1] and word[at : at + 2] == word[at + 1 : at + 3] else 1
    return counts


def test_the_figures_of_the_exercises():
    whole = FIXTURE
    text = whole[:20_000]
    words = bpe.words_of(text)
    merges = bpe.train_bpe(None, 256 + 200, texts=[text])[1]  # equal to those of train_by_definition
    figures = {}
    other = train_with_smaller_pairs(words, 200)
    first = next(number for number in range(200) if merges[number] != other[number])
    assert (merges[first], other[first]) == ((b"e", b"n"), (b" a", b"nd"))
    figures[1] = (first + 1, len(set(merges) & set(other)))
    tokens = [left + right for left, right in bpe.train_from_counts({text.encode(): 1}, 256 + 200)[1]]
    assert tokens[0] == b"e "
    figures[2] = (sum(b" " in token[1:] for token in tokens),)
    vocab = {bytes([byte]) for byte in range(256)} | {left + right for left, right in merges}
    ours = {word: bpe.encode_by_definition(word, merges) for word in words}
    theirs = {word: longest_first(word, vocab) for word in words}
    figures[3] = tuple(sum(len(tokens[word]) * count for word, count in words.items()) for tokens in (theirs, ours))
    figures[3] += (sum(ours[word] != theirs[word] for word in words), len(words))
    runs = bpe.words_of("aaa.aaa.ab.ab.ab")
    for counts, best in ((bpe.count_pairs(runs), (b"a", b"a")), (count_without_overlap(runs), (b"a", b"b"))):
        assert max(counts, key=counts.get) == best and counts[best] == (4 if best == (b"a", b"a") else 3)
    half = bpe.train_bpe(None, 256 + 200, texts=[text[:10_000]])[1]
    first = next(number for number in range(200) if merges[number] != half[number])
    figures[5] = (len(set(merges) & set(half)), first + 1)
    new_tokens = [left + right for left, right in bpe.train_bpe(None, 256 + 200, texts=[whole])[1]]
    figures[6] = (sum("\ufffd" in token.decode(errors="replace") for token in new_tokens),)
    sentence = bpe.words_of("The ferry was late again, and the others waited in the rain.").items()
    lengths = lambda n: (len(bpe.encode_by_definition(word, merges[:n])) * count for word, count in sentence)  # noqa: E731
    figures[8] = tuple(sum(lengths(n)) for n in (0, 10, 25, 50, 100, 200))
    for name in ("docs/exercises.md", "docs/exercises.zh.md"):
        rows = dict(regex.findall(r"^\| (\d) (\|.*)$", (HERE / name).read_text(encoding="utf-8"), regex.MULTILINE))
        for number, values in figures.items():
            for value in values:
                assert regex.search(rf"(?<!\d){value:,}(?!\d)", rows[str(number)]), (name, number, values)


@pytest.mark.parametrize("name", ["tokens", "walk", "bars"])
def test_each_picture_is_the_one_that_its_script_draws(tmp_path, name):
    subprocess.run([sys.executable, HERE / f"benchmarks/{name}.py", tmp_path / "new.svg"], check=True)
    assert (tmp_path / "new.svg").read_bytes() == (HERE / f"benchmarks/{name}.svg").read_bytes()


def test_the_curve_has_the_compression_of_encoding(tmp_path):
    command = [sys.executable, HERE / "benchmarks/curve.py", tmp_path / "new.svg", HERE / "fixtures/corpus.txt"]
    told = subprocess.run([*command, "--vocab-size=1000"], check=True, capture_output=True, text=True).stdout
    texts = FIXTURE.split(END)
    ids = bpe.Tokenizer.train(texts=texts, vocab_size=1000, special_tokens=[END]).encode_batch(texts)
    ratio = len("".join(texts).encode()) / sum(map(len, ids))
    assert told.endswith(f" {ratio:.2f} |\n") and f"1k: {ratio:.2f}" in (tmp_path / "new.svg").read_text("utf-8")


def numbers_of(page):
    """The numbers on a page, without pictures; "2400 万" is 24 million."""
    text = regex.sub(r"!\[[^]]*]", "", (HERE / page).read_text(encoding="utf-8")).replace("2400 万", "24")
    return set(regex.findall(r"\d(?:[\d,.]*\d)?", text))


ENGLISH_ONLY = ["docs/design.md"]  # for maintainers


@pytest.mark.parametrize("page", [path.relative_to(HERE) for path in [HERE / "README.md", *HERE.glob("docs/*.md")]])
def test_the_chinese_page_has_all_numbers_of_the_english_one(page):
    if not page.stem.endswith(".zh") and page.as_posix() not in ENGLISH_ONLY:
        assert not numbers_of(page) - numbers_of(page.with_suffix(".zh.md"))


def test_the_version_is_the_same_everywhere():
    changelog = (HERE / "CHANGELOG.md").read_text(encoding="utf-8")
    assert regex.search(r"(?m)^## (\S+)", changelog)[1] == bpe.__version__
    for page in ("README.md", "README.zh.md"):
        text = (HERE / page).read_text(encoding="utf-8")
        assert regex.search(r"(?:Version|当前版本) (\d+\.\d+\.\d+)", text)[1] == bpe.__version__
