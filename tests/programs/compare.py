"""Compare the ids of a model with those of its own tool, on many texts.

    python tests/programs/compare.py FOLDER                    a folder with tokenizer.json, or such a file: with tokenizers
    python tests/programs/compare.py FILE.tiktoken --pattern cl100k    with tiktoken
    python tests/programs/compare.py tekken.json               with mistral-common, which finds no special tokens in text
    python tests/programs/compare.py FOLDER --texts FILE       each line of a file is one more text

Prints how long loading took and how many texts get equal ids: each text alone, all as a batch, as a stream, and as a
file, with the engine that the model gets. The exit status is 1 if a text differs, and 2 if the model is refused, with
the reasons. It needs the packages tokenizers, tiktoken or mistral-common.
"""

from __future__ import annotations

import argparse
import array
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]
import clients  # noqa: E402 (the texts)

import bpe  # noqa: E402
from bpe_more.command import summary  # noqa: E402
from bpe_more.formats.tiktoken import read_tiktoken  # noqa: E402
from bpe_more.patterns import steps  # noqa: E402
from bpe_more.tokenizer import Tokenizer  # noqa: E402

FORMS = [  # what normalizing changes, or digits and kana first, or what only looks like that
    "e\u0301", "\u0301", "\u0958.", "\u1112\u1161\u11ab", "\u2126", "ﬁ", "™", "①", "か\u3099", "ｶﾞ", "=\u0338", "Ａ１", "＜EOT＞", "½",
    "字かな漢字1234567", "12 345", "1\n2", "....", "    x", "\t\t\tif", "HTML5's", "naïve", "Straße",
]  # fmt: skip


def texts_for(specials: list[str], count: int) -> list[str]:
    """Return texts with traps, random ones, and ones with special tokens and parts of them."""
    rng = random.Random(46)
    halves = [half for token in specials[:20] for half in (token, token[: len(token) // 2], token[len(token) // 2 :])]
    words = steps.find_words((Path(__file__).parents[2] / "fixtures/corpus.txt").read_text("utf-8"), "gpt2")
    parts = [*FORMS, *halves, *rng.sample(words, 500)]
    mixed = ["".join(rng.choices(rng.choice([parts, FORMS]), k=rng.randint(1, 40))) for _ in range(count)]
    texts = [*clients.TRAPS, *clients.make_texts(count // 3, rng), *mixed]
    # letters that are newer than the tools' versions of Unicode are a known exception
    return [re.sub(f"[{''.join(clients.NEWEST)}]", "a", text) for text in texts]


def load(path: Path, pattern: str) -> tuple[Tokenizer, Callable[[str], list[int]], float]:
    """Load a model here and in its own tool; return (ours, a function of theirs, seconds of theirs)."""
    start = time.process_time()
    if path.suffix == ".tiktoken":
        import tiktoken

        vocab, merges = read_tiktoken(path)
        ours = Tokenizer(vocab, merges, ["<|endoftext|>"], pattern)
        start = time.process_time()
        ranks = {token: rank for rank, token in vocab.items()}
        pat_str = bpe.PATTERNS.get(pattern, pattern)
        theirs = tiktoken.Encoding("theirs", pat_str=pat_str, mergeable_ranks=ranks, special_tokens=ours.special_ids)
        return ours, lambda text: theirs.encode(text, allowed_special="all"), time.process_time() - start
    if path.name.startswith("tekken"):
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        model = Tekkenizer.from_file(path)
        seconds = time.process_time() - start
        return Tokenizer.load(path).ordinary, lambda text: model.encode(text, bos=False, eos=False), seconds
    import tokenizers

    tokenizer: Any = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
    seconds = time.process_time() - start
    return Tokenizer.load(path), lambda text: tokenizer.encode(text, add_special_tokens=False).ids, seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="FOLDER")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="a UTF-8 file; each line is a text")
    parser.add_argument("--pattern", default="gpt2", help="of a .tiktoken file (default: gpt2)")
    parser.add_argument("--count", type=int, default=500, help="how many random texts (default: 500)")
    args = parser.parse_args()
    start = time.process_time()
    try:
        ours, encode, seconds = load(args.model, args.pattern)
    except ValueError as error:
        print(f"refused: {error}")
        return 2
    print(f"loaded in {time.process_time() - start - seconds:.2f} s of CPU, its own tool takes {seconds:.2f} s")
    texts = texts_for(list(ours.special_tokens), args.count)
    if args.texts:
        texts += args.texts.read_text(encoding="utf-8").splitlines(keepends=True)
    expected = [encode(text) for text in texts]
    whole = "".join(texts)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "text.txt").write_bytes(whole.encode())
        ours.encode_files(Path(folder, "text.txt"), Path(folder, "ids.npy"), workers=1)
        data = Path(folder, "ids.npy").read_bytes()[128:]
    kind = "H" if max(ours.vocab) < 1 << 16 else "I"
    found = [
        ("one by one", [ours.encode(text) for text in texts], expected),
        ("as a batch", ours.encode_batch(texts), expected),
        ("as streams", [list(ours.encode_iterable(text[i : i + 7] for i in range(0, len(text), 7))) for text in texts], expected),
        ("as a file", [array.array(kind, data).tolist()], [encode(whole)]),
    ]
    different = 0
    for name, ids, wanted in found:
        wrong = [(text, a, b) for text, a, b in zip(texts, ids, wanted) if a != b]
        different += len(wrong)
        print(f"{name}: {len(ids) - len(wrong)} of {len(ids)} equal")
        for text, a, b in wrong[:2]:
            first = next((i for i, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
            print(f"    {text[:80]!a}: from id {first} on, {a[first : first + 4]} for {b[first : first + 4]}")
    print(f"engine: {summary.engine_used(ours.options)}")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
