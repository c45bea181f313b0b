r"""Run the cases of fixtures/suite.json with trainers that pip has, and print a table (docs/suite.md shows it).

    pip install tokenizers rustbpe gigatoken gigabpe ffbpe bpeasy fast-bpe-rs
    python benchmarks/suite.py [TOOL ...]        only these tools
    python benchmarks/suite.py --failures        also every case that fails, with the first merge that differs

A tool that has no special tokens, or other patterns, is given only the cases that it can express. "passed" counts the
cases in which all merges are the same; "before ties" those in which the merges before the first tie are; "by its rule"
those in which the merges are what the definition gives with the tool's own rule for ties. A tool runs in a process of its
own, since some print, and may end it.
"""

import argparse
import functools
import importlib.metadata
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

Case = dict[str, Any]
Tokens = list[bytes]  # what the merges make, in order
SUITE = Path(__file__).resolve().parent.parent / "fixtures" / "suite.json"
SECONDS = 60  # for all cases of a tool
SEPARATOR = "<|endoftext|>"  # of texts in a file, for gigatoken


def from_printable(token: str) -> bytes:
    """Return the bytes of a token in GPT-2's printable characters."""
    return bytes(bpe.CHARACTERS.index(character) for character in token)


def merges_wanted(case: Case) -> int:
    """Return how many merges fit into the vocabulary."""
    return case["vocab_size"] - 256 - len(case["special_tokens"])


def train_ours(case: Case, engine: str) -> Tokens:
    _, merges = bpe.train_bpe(
        None, case["vocab_size"], case["special_tokens"], texts=case["texts"], pattern=case["pattern"], engine=engine
    )
    return [left + right for left, right in merges]


def train_tokenizers(case: Case) -> Tokens:
    from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    expression = (bpe.PATTERNS | {"gpt2": bpe.PUBLISHED_GPT2})[case["pattern"]]  # as tokenizer.json spells it
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    # its trainer doesn't cut text at special tokens unless the tokenizer has them
    specials = [AddedToken(token, normalized=False, special=True) for token in case["special_tokens"]]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=case["vocab_size"], special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.add_special_tokens(specials)
    tokenizer.train_from_iterator(case["texts"], trainer)
    return [from_printable("".join(pair)) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def train_rustbpe(case: Case) -> Tokens:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(case["texts"], case["vocab_size"], pattern=bpe.PATTERNS[case["pattern"]])
    return [bytes(token) for token, _ in sorted(tokenizer.get_mergeable_ranks(), key=lambda item: item[1])][256:]


def train_gigatoken(case: Case, tie_breaking: str) -> Tokens:
    import gigatoken

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_bytes(SEPARATOR.join(case["texts"]).encode())
        options = {"tie_breaking": tie_breaking, "separator": SEPARATOR.encode()}
        _, merges = gigatoken.train_bpe(str(path), case["vocab_size"], case["special_tokens"], **options)
    return [left + right for left, right in merges]


def train_gigabpe(case: Case) -> Tokens:
    import gigabpe

    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder, f"{number}.txt")) for number in range(len(case["texts"]))]
        for path, text in zip(paths, case["texts"]):
            Path(path).write_bytes(text.encode())
        _, merges = gigabpe.train_bpe(
            paths, case["vocab_size"], special_tokens=case["special_tokens"], pretokenizer="bytelevel"
        )
    # its vocabulary has only those of the 256 bytes that occur, so it makes more merges
    return [from_printable(left + right) for left, right in merges][: merges_wanted(case)]


def train_ffbpe(case: Case, tie_break: str) -> Tokens:
    import ffbpe

    specials = case["special_tokens"]
    counter = ffbpe.PreTokenizer(specials, None, bpe.PATTERNS[case["pattern"]]).word_counter()
    counter.add_source(case["texts"])
    trainer = ffbpe.BpeTrainer(specials, tie_break=tie_break)
    trainer.add_word_counter(counter)
    trainer.train(case["vocab_size"])
    return sorted(trainer.vocab, key=trainer.vocab.__getitem__)[256 + len(specials) :]


def train_bpeasy(case: Case) -> Tokens:
    import bpeasy

    vocab = bpeasy.train_bpe(iter(case["texts"]), bpe.PATTERNS[case["pattern"]], 1 << 20, case["vocab_size"])
    return sorted(vocab, key=vocab.__getitem__)[256:]


def train_fast_bpe_rs(case: Case) -> Tokens:
    import fast_bpe_rs

    tokenizer = fast_bpe_rs.BPE(bpe.PATTERNS[case["pattern"]])
    tokenizer.train(case["vocab_size"], case["texts"])
    tokens = (bytes(tokenizer.decode([token_id])) for token_id in range(256, case["vocab_size"]))
    return [token for token in tokens if token]  # b"" is an id that it has not made


def train_by_rule(case: Case, key: Callable[[list[bytes], int], Any]) -> Tokens:
    """Train by definition with another tie rule: of equal counts, the smallest (key of left, key of right) is merged."""
    words = {bpe.single_bytes(word.encode()): count for word, count in case["words"].items()}
    made: Tokens = []
    while len(made) < merges_wanted(case) and (counts := bpe.count_pairs(words)):
        best = min(counts, key=lambda pair: (-counts[pair], *(key(made, token) for token in pair)))
        words = {bpe.merge_pair(word, best): count for word, count in words.items()}
        made.append(best[0] + best[1])
    return made


def greater_bytes(made: Tokens, token: bytes) -> Any:
    """The rule of bpe.py."""
    return bpe.descending(token)


def smaller_ids(made: Tokens, token: bytes) -> Any:
    """Bytes have their values as ids, and merges come after them."""
    return token[0] if len(token) == 1 else 256 + made.index(token)


def smaller_ids_of_characters(made: Tokens, token: bytes) -> Any:
    """The same, but the bytes are sorted by the printable characters that GPT-2 writes for them."""
    return ord(bpe.CHARACTERS[token[0]]) if len(token) == 1 else 0x10000 + made.index(token)


class Tool(NamedTuple):
    package: str
    train: Callable[[Case], Tokens]
    rule: Callable[[Tokens, bytes], Any] | None  # None: unknown
    patterns: str = "any"
    special_tokens: bool = True


RULES = {
    greater_bytes: "greater pair of bytes",
    smaller_ids: "smaller pair of ids",
    smaller_ids_of_characters: "smaller pair of ids, bytes sorted by their characters",
    None: "another",
}
TOOLS = {
    "bpe.py, C": Tool("cffi", functools.partial(train_ours, engine="c"), greater_bytes),
    "bpe.py, Python": Tool("regex", functools.partial(train_ours, engine="python"), greater_bytes),
    "ffbpe, largest_content": Tool("ffbpe", functools.partial(train_ffbpe, tie_break="largest_content"), greater_bytes),
    "ffbpe": Tool("ffbpe", functools.partial(train_ffbpe, tie_break="smallest_pair_id"), smaller_ids),
    "tokenizers": Tool("tokenizers", train_tokenizers, smaller_ids_of_characters),
    "gigabpe": Tool("gigabpe", train_gigabpe, smaller_ids_of_characters, "gpt2"),
    "gigatoken": Tool("gigatoken", functools.partial(train_gigatoken, tie_breaking="huggingface"), smaller_ids_of_characters, "gpt2"),
    "gigatoken, raw_token_ids": Tool("gigatoken", functools.partial(train_gigatoken, tie_breaking="raw_token_ids"), smaller_ids, "gpt2"),
    "rustbpe": Tool("rustbpe", train_rustbpe, smaller_ids, special_tokens=False),
    "bpeasy": Tool("bpeasy", train_bpeasy, smaller_ids, special_tokens=False),
    "fast-bpe-rs": Tool("fast-bpe-rs", train_fast_bpe_rs, smaller_ids, special_tokens=False),
}  # fmt: skip


def cases_for(tool: Tool) -> list[Case]:
    """Return the cases that a tool can express."""
    cases = json.loads(SUITE.read_text("utf-8"))["cases"]
    return [
        case
        for case in cases
        if tool.patterns in ("any", case["pattern"]) and (tool.special_tokens or not case["special_tokens"])
    ]


def run(name: str, cases: list[Case]) -> list[Tokens | str]:
    """Return the tokens that a tool makes of each case, or its error. If a case ends the process, another one goes on."""
    results: list[Tokens | str] = []
    while len(results) < len(cases):
        command = [sys.executable, __file__, "--run", name]
        text = json.dumps(cases[len(results) :])
        try:
            process = subprocess.run(command, input=text, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return [*results, *[f"more than {SECONDS} seconds"] * (len(cases) - len(results))]
        lines = [line.removeprefix(PREFIX) for line in process.stdout.splitlines() if line.startswith(PREFIX)]
        results += [[bytes.fromhex(token) for token in json.loads(line)] for line in lines]
        if len(results) < len(cases):
            results.append((process.stderr.strip().splitlines() or [f"status {process.returncode}"])[-1])
    return results


PREFIX = "tokens: "


def run_here(tool: Tool, cases: list[Case]) -> None:
    """Print a line of tokens for each case."""
    for case in cases:
        tokens = tool.train(case)
        print("\n" + PREFIX + json.dumps([token.hex() for token in tokens]), flush=True)


def row(name: str, failures: bool) -> str:
    """Return the line of a tool."""
    tool = TOOLS[name]
    cases = cases_for(tool)
    passed = before_ties = by_rule = 0
    first = ""
    for case, tokens in zip(cases, run(name, cases)):
        expected = [bytes.fromhex(merge.replace(" ", "")) for merge in case["merges"]]
        passed += tokens == expected
        before_ties += tokens[: case["without_ties"]] == expected[: case["without_ties"]]
        if tool.rule:
            expected = train_by_rule(case, tool.rule)
            by_rule += tokens == expected
        if tokens != expected:
            what = tokens if isinstance(tokens, str) else first_difference(tokens, expected)
            first = first or f"{case['name']}: {what}"
            if failures:
                print(f"    {name}: {case['name']}: {what}", flush=True)
    package, *option = name.split(", ")
    title = name if package == "bpe.py" else ", ".join([f"{package} {importlib.metadata.version(tool.package)}", *option])
    n = len(cases)
    parts = [title, RULES[tool.rule], f"{passed} of {n}", f"{before_ties} of {n}"]
    parts += [f"{by_rule} of {n}" if tool.rule else "-", first.replace("|", "\\|") or "none"]
    return f"| {' | '.join(parts)} |"


def first_difference(tokens: Tokens, expected: Tokens) -> str:
    """Say where two lists of tokens differ first."""
    at = next((at for at, (one, other) in enumerate(zip(tokens, expected)) if one != other), min(len(tokens), len(expected)))
    spelled = [repr(made[at])[1:] if at < len(made) else "nothing" for made in (tokens, expected)]
    return f"merge {at + 1} makes {spelled[0]}, not {spelled[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the cases of fixtures/suite.json with trainers that pip has.")
    parser.add_argument("tools", nargs="*", metavar="TOOL", help="; ".join(TOOLS))
    parser.add_argument("--failures", action="store_true", help="also print each case that fails by the tool's own rule")
    parser.add_argument("--run", metavar="TOOL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        run_here(TOOLS[args.run], json.load(sys.stdin))
        return
    print("| tool | on a tie, it merges the | passed | before ties | by its rule | first that fails by its rule |")
    print("|---|---|---:|---:|---:|---|", flush=True)
    for name in args.tools or TOOLS:
        print(row(name, args.failures), flush=True)


if __name__ == "__main__":
    main()
