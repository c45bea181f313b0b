"""Encode texts with other packages that load our folders, and compare the ids with those of bpe_more.Tokenizer.

    python tests/programs/clients.py                  with the packages that this Python can import
    python tests/programs/clients.py --npm FOLDER     with those in FOLDER/node_modules too
    python tests/programs/clients.py --all            with all versions in ENVIRONMENTS, each installed in a folder of its own

A model with each named pattern is saved, and loaded by each client. A table tells how many texts get other ids; below it
are the reasons, from EXCEPTIONS. The exit status is 1 if a text differs for no known reason. The last two need Node and
npm.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
import bpe  # noqa: E402
from bpe_more.patterns import steps  # noqa: E402
from bpe_more.patterns.steps import TIKTOKEN_CL100K  # noqa: E402
from bpe_more.tokenizer import Tokenizer  # noqa: E402

PYTHON_CLIENTS = ["transformers", "tokenizers", "tiktoken", "gigatoken"]
NODE_CLIENTS = ["@huggingface/tokenizers", "@huggingface/transformers"]
ENVIRONMENTS = [  # what --all installs together
    ["transformers==4.57.*", "tokenizers", "tiktoken==0.7.*"],
    ["transformers==5.*", "tokenizers", "tiktoken", "gigatoken"],
    ["transformers==4.45.*", "tokenizers==0.20.*"],
    ["tokenizers>=1.0.0rc1"],
    ["@huggingface/transformers@4", "@huggingface/tokenizers"],
    ["@huggingface/transformers@3.8"],
]

# --- the texts -------------------------------------------------------------------------------------------------------

SPECIALS = ["<|endoftext|>", "<|pad|>", "<|pad|>!"]
NEWEST = [*map(chr, (0x2EBF0, 0x1C89, 0x105C0, 0x16EA0, 0x323B0))]  # letters of Unicode 15.1, 16 (two) and 17 (two)
FIRST_LETTERS = [0x61, 0xC0, 0x391, 0x410, 0x561, 0x5D0, 0x627, 0x905, 0x995, 0xB85, 0xE01, 0x10D0, 0x1200, 0x1780]
FIRST_LETTERS += [0x1C5, 0x2B0, 0x3041, 0x30A1, 0x4E00, 0xAC00, 0xFF21, 0x10330, 0x10400, 0x1D400, 0x20000]
KINDS = {
    "words": steps.find_words((ROOT / "fixtures/corpus.txt").read_text(encoding="utf-8")[:20_000], "gpt2"),
    "letters": [chr(first + i) for first in FIRST_LETTERS for i in range(20)],
    "digits": list("0123456789٠١٢٣०१२三四５６Ⅳⅳ²³½௧௨𝟘𝟙"),
    "contractions": ["It's", "IT'S", "don't", "DON'T", "we'll", "WE'LL", "they've", "'RE", "it’s", "'s'S", "''s"],
    "punctuation": list(".,!?;:-_()[]{}<>|/\\\"'`~@#$%^&*+=«»“”、。！？€£¥©™→∞"),
    "spaces": [*filter(str.isspace, map(chr, range(0x3001))), "\u200b", "\u2060"],
    "line ends": ["\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\t\n", "  ", "\u2028", "\u2029", "\v", "\f"],
    "emoji": ["😀", "👍🏽", "👩‍👩‍👧", "🇫🇷", "1️⃣", "❤️", "☃", "🏴‍☠️"],
    "marks": ["\u0301", "\u0308", "\u20dd", "\u0903", "\u093e", "\u0e31", "\u064e", "\ufe0f", "e\u0301", "\u200d"],
    "specials": [*SPECIALS[:2], "<|pad|", "<|", "|>", "a", " "],
}
RARE = [  # what EXCEPTIONS are about, in texts of their own, so that one exception does not hide another
    ["\ufeff", "\u0085", "a", "s", " ", "\n", ".", "1"],
    ["'\u017f", "\u017f", "'\u212a", "\u212a", "a", "s", " ", "\n", ".", "1"],
    [*NEWEST, "a", "\n", " ", ".", "1"],
    [*SPECIALS, "a", " ", "\n", "<|pad|"],
]
TRAPS = [
    "", " ", "  ", " \na", " \n\na", "a \n", "a\n \n", "a   ", "a\t", "a\n", "\n\n\na", "a\r\n", "\r\n\r\na",
    ".\r\n\r\n", "a\r\rb", "a\u00a0b", "a\u00a0", "\u00a0\u00a0b", "a\u3000b", "\ufeffa", "a\ufeff", "a\ufeff b",
    "a\u0085b", "a \u0085", "it's", "IT'S", "it'\u017f", "it'\u017fa", "'S", "'s", "'ll'LL", "'lL", "don't've", "’s",
    "\u0301", "\u0301a", "e\u0301", " \u0301", "\u20dd\u20dd", "\u0903", "123456", "1234567 8", "１２３４", "12三", "x²y",
    "0x1F", "3.14", "/usr/bin/", "a//b", "<|pad|><|pad|>", "a <|pad|> b", " <|pad|> ", "<|pad|>\n", "\n<|pad|>",
    "  <|pad|>", "<|pad|>\u0301", "a\n <|pad|>", "<|endoftext|><|endoftext|>", "<|pad|><|endoftext|>", "<|pad|",
    "<|pad|>!", "今天天气很好，我们去公园。", "한국어 문장", "สวัสดีชาวโลก", "नमस्ते दुनिया", "🇫🇷🇫🇷",
    "👩‍👩‍👧", "camelCase HTTPServer ǅungla", "\x00", "\x7f\x80", "\uffff", "\U0010ffff",
    *NEWEST, *(f"a{letter}b" for letter in NEWEST),
]  # fmt: skip


def make_texts(count: int, rng: random.Random) -> list[str]:
    """Make random texts, each from one to three kinds of pieces; one in three has rare pieces too."""
    texts = []
    for number in range(count):
        kinds = rng.sample(list(KINDS.values()), rng.randint(1, 3)) + RARE[number % 12 : number % 12 + 1]
        texts.append("".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 40))))
    return texts


# --- the known exceptions --------------------------------------------------------------------------------------------

NEW_UNICODE = "a letter that is newer than the package's version of Unicode"
EXCEPTIONS = [  # expressions for client, pattern, and text or error; and the reason
    ("^(tiktoken|tokenizers 0|transformers)|Unicode 1[0-6]", "", "[\U00016ea0\U000323b0]", NEW_UNICODE),
    (r"^(tiktoken 0\.7|tokenizers 0\.20|transformers 4\.45)", "", "[\U0002ebf0\u1c89\U000105c0]", NEW_UNICODE),
    ("Unicode 15", "", "[\U0002ebf0\u1c89\U000105c0]", NEW_UNICODE),
    ("^(@|tokenizers 1)", "o200k", "'\u017f", "'\u017f (the long s) is not taken as 's"),
    ("^tiktoken", "", r"<\|pad\|>!", "of two special tokens that begin at the same place, the shorter one is taken"),
    ("^tokenizers 1", "cl100k", "needs a system-regex backend", "this build has no general regular expressions"),
    ("^gigatoken", "gpt2|cl100k", "Unknown pre_tokenizer Split", "it knows other spellings of this pattern only"),
    ("^@huggingface/transformers 3", "", "[\ufeff\x85]", r"\s matches U+FEFF in JavaScript, and not U+0085"),
]
UNKNOWN = "not known"


def reason_for(*found: str) -> str:
    """Return why a client is known to have other ids with a pattern for a text, or an error when it loads it."""
    return next((reason for *known, reason in EXCEPTIONS if all(map(re.search, known, found))), UNKNOWN)


# --- the clients -----------------------------------------------------------------------------------------------------


def load_client(client: str, folder: str) -> Callable[[str], list[int]]:
    """Load a folder in a Python package; return a function from a text to ids."""
    package = importlib.import_module(client)
    if client == "transformers":
        tokenizer = package.AutoTokenizer.from_pretrained(folder)
        return lambda text: tokenizer(text)["input_ids"]
    if client == "tokenizers":
        tokenizer = package.Tokenizer.from_file(f"{folder}/tokenizer.json")
        return lambda text: tokenizer.encode(text).ids
    if client == "tiktoken":
        model = Tokenizer.load(folder)
        special_ids = model.special_ids
        pattern = {**bpe.PATTERNS, "cl100k": TIKTOKEN_CL100K}[model.pattern]  # as tiktoken spells it
        ranks = {token: token_id for token_id, token in model.vocab.items() if token_id not in special_ids.values()}
        encoding = package.Encoding("ours", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special_ids)
        return lambda text: encoding.encode(text, allowed_special="all")
    tokenizer = package.Tokenizer(folder)
    return lambda text: tokenizer.encode(text).tolist()


def check_roles(folder: str) -> None:
    """Save a folder with transformers, then over it with bpe.py: what transformers added must be kept."""
    import transformers

    theirs = transformers.AutoTokenizer.from_pretrained(folder, eos_token=SPECIALS[0], pad_token=SPECIALS[1])
    theirs.chat_template = "{% for message in messages %}{{ message['content'] + eos_token }}{% endfor %}"
    theirs.save_pretrained(folder)
    Tokenizer.load(folder).save(folder)
    again = transformers.AutoTokenizer.from_pretrained(folder)
    for name in ("eos_token", "pad_token", "chat_template", "model_input_names"):
        kept, expected = getattr(again, name), getattr(theirs, name)
        assert kept == expected, f"{name} was {expected!r}, and is {kept!r} after Tokenizer.save"
    roles = {"bos_token": SPECIALS[2], "eos_token": SPECIALS[1]}
    Tokenizer.load(folder).save(folder, **roles, chat_template="{{ bos_token }}\n{{ eos_token }}")
    for _ in range(2):  # written by bpe.py, and then by transformers and bpe.py
        again = transformers.AutoTokenizer.from_pretrained(folder)
        assert (again.bos_token, again.eos_token, again.pad_token) == (SPECIALS[2], SPECIALS[1], SPECIALS[1])
        assert again.apply_chat_template([{"role": "user", "content": ""}], tokenize=False) == f"{SPECIALS[2]}\n{SPECIALS[1]}"
        again.save_pretrained(folder)
        Tokenizer.load(folder).save(folder)


def encode_in_child(client: str, work: Path) -> None:
    """Print JSON as clients.mjs does; called in a process whose Python has the client."""
    content = json.loads((work / "texts.json").read_bytes())
    ids: dict[str, Any] = {}
    for pattern in content["patterns"]:
        try:
            encode = load_client(client, str(work / pattern))
            ids[pattern] = [encode(text) for text in content["texts"]]
        except BaseException as error:  # a panic in Rust is no Exception
            ids[pattern] = f"{type(error).__name__}: {error}"
    if client == "transformers":
        shutil.rmtree(work / "roles", ignore_errors=True)  # of another version
        shutil.copytree(work / "qwen2", work / "roles")
        check_roles(str(work / "roles"))
    print(json.dumps({"name": client, "version": importlib.metadata.version(client), "ids": ids}))


def commands_for(folder: Path, names: list[str]) -> list[list[str]]:
    """Return the commands that encode with packages of Python or in node_modules."""
    python = [str(folder / "bin/python"), __file__, "--child"]
    node = ["node", str(Path(__file__).with_suffix(".mjs"))]
    return [[*python, name] if name in PYTHON_CLIENTS else [*node, name, str(folder)] for name in names]


def install(packages: list[str], folder: Path) -> list[list[str]]:
    """Install packages in a new folder; return the commands that encode with them."""
    names = [re.split("[=<>]|(?!^)@", package)[0] for package in packages]
    if names[0] in PYTHON_CLIENTS:
        venv.create(folder, with_pip=True)
        command = [folder / "bin/python", "-m", "pip", "install", "--quiet", "regex", "jinja2", *packages]
    else:
        folder.mkdir()  # without --ignore-scripts, npm would download more binaries
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", *packages]
    subprocess.run(command, cwd=folder, check=True)
    return commands_for(folder, names)


# --- the comparison --------------------------------------------------------------------------------------------------


def prepare(work: Path) -> tuple[list[str], dict[str, list[list[int]]]]:
    """Save a model for each pattern, and the texts; return the texts and our ids.

    All have the vocabulary of texts that were not split into words. So its tokens cross the ends of words, and text
    that a client splits in other places gets other ids.
    """
    training = make_texts(3000, random.Random(1)) + TRAPS * 20
    training += (ROOT / "fixtures/corpus.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    whole = Tokenizer.train(texts=training, vocab_size=4000, special_tokens=SPECIALS, pattern="(?s:.+)")
    texts = TRAPS + make_texts(500, random.Random(2))
    ids = {}
    for pattern in bpe.PATTERNS:
        Tokenizer(whole.vocab, whole.merges, SPECIALS, pattern).save(work / pattern)
        ids[pattern] = Tokenizer.load(work / pattern).encode_batch(texts)
    (work / "texts.json").write_text(json.dumps({"patterns": list(ids), "texts": texts}), encoding="utf-8")
    return texts, ids


def compare(client: str, pattern: str, theirs: Any, texts: list[str], ours: list[list[int]]) -> tuple[str, list[str]]:
    """Return a cell of the table, and the reason for each difference; print the first unknown differences."""
    if isinstance(theirs, str):  # an error
        cell, different = "does not load", [(theirs, [], [])]
    else:
        different = [found for found in zip(texts, theirs, ours) if found[1] != found[2]]
        cell = str(len(different))
    reasons = [reason_for(client, pattern, text) for text, *_ in different]
    unknown = [found for found, reason in zip(different, reasons) if reason == UNKNOWN]
    for text, their_ids, our_ids in unknown[:3]:
        print(f"{client}, {pattern}: {text!a}\n    {their_ids}\n    {our_ids}", file=sys.stderr)
    return cell, reasons


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--npm", type=Path, metavar="FOLDER", help="compare with the packages in its node_modules too")
    parser.add_argument("--all", action="store_true", help="install each version, and compare with it")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("work", nargs="?", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        encode_in_child(args.child, args.work)
        return 0

    rows: dict[str, list[str]] = {}
    reasons: Counter[tuple[str, str]] = Counter()  # (client, reason) -> differences, with all patterns together
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        texts, ours = prepare(work)
        if args.all:
            environments = [install(packages, work / str(i)) for i, packages in enumerate(ENVIRONMENTS)]
            commands = [command for several in environments for command in several]
        else:
            commands = commands_for(Path(sys.prefix), list(filter(importlib.util.find_spec, PYTHON_CLIENTS)))
        if args.npm:
            installed = [name for name in NODE_CLIENTS if (args.npm / "node_modules" / name).exists()]
            assert installed, f"{args.npm}/node_modules has none of {NODE_CLIENTS}"
            commands += commands_for(args.npm.resolve(), installed)
        assert commands, f"there is none of {PYTHON_CLIENTS}"
        for command in commands:
            output = subprocess.run([*command, str(work)], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
            found = json.loads(output.splitlines()[-1])
            client = f"{found['name']} {found['version']}"
            cells = [compare(client, pattern, found["ids"][pattern], texts, ours[pattern]) for pattern in ours]
            rows[client] = [cell for cell, _ in cells]
            reasons.update((client, reason) for _, several in cells for reason in several)

    print(f"{datetime.date.today()}, {len(texts)} texts: how many of them get other ids than ours\n")
    print("| client |", " | ".join(ours), "|\n|---|" + "---|" * len(ours))
    for client in sorted(rows):
        print(f"| {client} |", " | ".join(rows[client]), "|")
    print()
    for (client, reason), count in sorted(reasons.items()):
        print(f"- {client}: {reason} ({count})")
    return int(any(reason == UNKNOWN for _, reason in reasons))


if __name__ == "__main__":
    sys.exit(main())
