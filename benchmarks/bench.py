"""Train the same corpus to the same size with every trainer that is installed, and print a Markdown table.

    python benchmarks/bench.py CORPUS VOCAB_SIZE [--repeat 3] [--tools "bpe.py, C;gigatoken"] [--json FILE]

Each run is a process of its own, and the tools take turns. Wall time is that of the whole process, from start to exit;
memory is the peak of anonymous memory of its largest process (a mapped file does not count), looked at every 10 ms.
All use GPT-2's pattern and the pieces between <|endoftext|>. "same merges" compares with bpe.py under the tie rule that
the tool has: "bytes", the rule of bpe.py, or "hf", that of --like huggingface.

Wanted, as far as it can be had: pip install gigatoken tokenizers rustbpe bpeasy subword-nmt
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

END = "<|endoftext|>"
GPT2 = bpe.PATTERNS["gpt2"]
SMALL = 3_000_000  # bytes up to which the slow ones run


def pieces(path: str) -> Iterator[str]:
    """The texts between special tokens, one at a time, without the whole file in memory."""
    rest = ""
    with open(path, encoding="utf-8", newline="") as file:
        while block := file.read(1 << 20):
            *whole, rest = (rest + block).split(END)
            yield from whole
    yield rest


# Each runner trains and returns (the new tokens in order, as bytes; a dict of what it can tell of its phases).


def run_bpe(path: str, size: int, engine: str, like: str | None = None) -> tuple[list[bytes], dict[str, float]]:
    rules, start = bpe.make_rules([END], "gpt2", "strict", "keep"), time.perf_counter()
    words = bpe.count_corpus(path, None, rules, None, False, bpe.Report(), engine == "c")
    counted = time.perf_counter()
    _, merges = bpe.train_from_counts(words, size, [END], engine=engine, like=like)
    phases = {"counting": counted - start, "learning": time.perf_counter() - counted}
    return [left + right for left, right in merges], phases


def run_definition(path: str, size: int) -> tuple[list[bytes], dict[str, float]]:
    words, vocab = bpe.count_words(path, [END], engine="python"), bpe.initial_vocab([END])
    for left, right, _ in bpe.learn_merges_by_definition(words, vocab, size):
        vocab[len(vocab)] = vocab[left] + vocab[right]
    return list(vocab.values())[257:], {}


def run_gigatoken(path: str, size: int) -> tuple[list[bytes], dict[str, float]]:
    import gigatoken

    _, merges = gigatoken.train_bpe(path, size, [END])
    return [left + right for left, right in merges], {}


def run_tokenizers(path: str, size: int) -> tuple[list[bytes], dict[str, float]]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(pieces(path), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [bpe.from_printable(left) + bpe.from_printable(right) for left, right in merges], {}


def run_rustbpe(path: str, size: int) -> tuple[list[bytes], dict[str, float]]:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(pieces(path), size - 1, pattern=GPT2)  # it has no special tokens
    return [bytes(token) for token, _ in sorted(tokenizer.get_mergeable_ranks(), key=lambda item: item[1])][256:], {}


def run_bpeasy(path: str, size: int) -> tuple[list[bytes], dict[str, float]]:
    import bpeasy

    vocab = bpeasy.train_bpe(pieces(path), GPT2, 1 << 20, size - 1)
    return [token for token, _ in sorted(vocab.items(), key=lambda item: item[1])][256:], {}


def run_subword_nmt(path: str, size: int) -> tuple[list[bytes], dict[str, float]]:
    import subword_nmt.learn_bpe

    with open(path, encoding="utf-8") as source, open(os.devnull, "w") as output:
        subword_nmt.learn_bpe.learn_bpe(source, output, size - 257)
    return [], {}


TOOLS = {  # name -> (package, runner, tie rule; None where the words are others)
    "bpe.py, C": ("cffi", lambda path, size: run_bpe(path, size, "c"), "bytes"),
    "gigatoken": ("gigatoken", run_gigatoken, "hf"),
    "rustbpe": ("rustbpe", run_rustbpe, "bytes"),
    "bpeasy": ("bpeasy", run_bpeasy, "bytes"),
    "tokenizers": ("tokenizers", run_tokenizers, "hf"),
    "bpe.py, Python": ("regex", lambda path, size: run_bpe(path, size, "python"), "bytes"),
    "by definition": ("regex", run_definition, "bytes"),
    "subword-nmt": ("subword-nmt", run_subword_nmt, None),
}
SLOW = {"by definition", "subword-nmt"}


def digest(tokens: list[bytes]) -> list[str]:
    """A digest of the first 1, 2, 4, ... tokens and of all, so that it is seen how far two lists agree."""
    lengths = [1 << i for i in range(24) if 1 << i < len(tokens)] + [len(tokens)]
    return [f"{n}:{hashlib.sha256(b'|'.join(t.hex().encode() for t in tokens[:n])).hexdigest()[:12]}" for n in lengths]


def anonymous_bytes(pid: int) -> int:
    """The anonymous memory of a process and of its children, the largest of them."""
    largest = 0
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            largest = max(largest, anonymous_bytes(int(child)))
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            largest = max(largest, int(line.split()[1]) * 1024)
    return largest


def measure(command: list[str]) -> dict[str, object]:
    """Run a command to its end: its wall time, peak memory, and the JSON on the last line of its output, if any."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as output:
        start, peak = time.perf_counter(), 0
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            try:
                peak = max(peak, anonymous_bytes(process.pid))
            except (OSError, ValueError):  # it, or a child, ended while it was looked at
                pass
            try:
                process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
        wall = time.perf_counter() - start
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines() or [""]
    told = json.loads(lines[-1]) if lines[-1].startswith("{") else {}
    return {"wall": wall, "peak": peak, "status": process.returncode, **told}


def versions(names: list[str]) -> str:
    import importlib.metadata

    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


def table(results: dict[str, list[dict]], path: str, size: int) -> str:
    """Markdown: a row for each tool, with medians."""
    import statistics

    rows = ["| | wall time | counting | learning | peak memory | × ours | same merges |", "|---|---:|---:|---:|---:|---:|---|"]
    ours = statistics.median(run["wall"] for run in results["bpe.py, C"])
    expected = {rule: results[name][0]["tokens"] for rule, name in (("bytes", "bpe.py, C"), ("hf", "bpe.py, C, hf"))}
    for name, runs in results.items():
        if name == "bpe.py, C, hf":
            continue
        wall, peak = (statistics.median(run[key] for run in runs) for key in ("wall", "peak"))
        phases = [statistics.median(run[key] for run in runs) if key in runs[0] else None for key in ("counting", "learning")]
        cells = [f"{wall:.2f} s"] + [f"{phase:.2f} s" if phase else "" for phase in phases]
        tokens, rule = runs[0].get("tokens"), TOOLS[name][2] if name in TOOLS else None
        if any(run["status"] for run in runs):
            same = "failed"
        elif not rule:
            same = "other words" if name in TOOLS else ""
        elif tokens == expected[rule]:
            same = f"yes ({rule})"
        else:
            same = f"no, {agreement(tokens, expected)}"
        rows.append(f"| {name} | {' | '.join(cells)} | {peak / 1e6:,.0f} MB | {wall / ours:.1f} | {same} |")
    megabytes = os.path.getsize(path) / 1e6
    return f"`{os.path.basename(path)}`, {megabytes:,.1f} MB, vocabulary {size:,}:\n\n" + "\n".join(rows)


def agreement(tokens: list[str], expected: dict[str, list[str]]) -> str:
    """How many of the first merges agree with either rule: the largest power of two that does."""
    best = max((sum(1 for _ in common_prefix(tokens, other)), rule) for rule, other in expected.items())
    return f"the first {1 << best[0] >> 1:,} or more ({best[1]})"


def common_prefix(a: list[str], b: list[str]) -> Iterator[str]:
    for x, y in zip(a, b):
        if x != y:
            return
        yield x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("vocab_size", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--tools", help="names, with semicolons between (default: all that are installed)")
    parser.add_argument("--json", help="append the results to this file, a line each")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a tool: train, print a line of JSON
    args = parser.parse_args()
    if args.one:
        like = "huggingface" if args.one == "bpe.py, C, hf" else None
        runner = (lambda path, size: run_bpe(path, size, "c", like)) if like else TOOLS[args.one][1]
        tokens, phases = runner(args.corpus, args.vocab_size)
        print(json.dumps({"tokens": digest(tokens), **phases}), flush=True)
        return
    import importlib.metadata  # not before: a measured process should not pay for it

    names = args.tools.split(";") if args.tools else list(TOOLS)
    if os.path.getsize(args.corpus) > SMALL:
        names = [name for name in names if name not in SLOW]
    installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
    absent = [name for name in names if TOOLS[name][0] not in installed]
    names = [name for name in names if name not in absent]
    command = [sys.executable, __file__, args.corpus, str(args.vocab_size), "--one"]
    results: dict[str, list[dict]] = {"bpe.py, C, hf": [measure([*command, "bpe.py, C, hf"])]}  # also warms the page cache
    wc = ["env", "LC_ALL=C.UTF-8", "wc", "-w", args.corpus]
    for _ in range(args.repeat):
        for name in names:
            results.setdefault(name, []).append(measure([*command, name]))
        results.setdefault("`wc -w`", []).append(measure(wc))
    print(table(results, args.corpus, args.vocab_size), "\n")
    print(f"Medians of {args.repeat}, taken in turn; {os.cpu_count()} cores; Python {sys.version.split()[0]};", end=" ")
    print(versions(sorted({TOOLS[name][0] for name in TOOLS})) + f"; {time.strftime('%Y-%m-%d')}.")
    if absent:
        print("Absent:", ", ".join(absent))
    if args.json:
        with open(args.json, "a", encoding="utf-8") as file:
            for name, runs in results.items():
                for run in runs:
                    size = os.path.getsize(args.corpus)
                    line = {"tool": name, "corpus": os.path.basename(args.corpus), "bytes": size, "vocab_size": args.vocab_size}
                    file.write(json.dumps({**line, **{key: run[key] for key in ("wall", "peak", "status")}}) + "\n")


if __name__ == "__main__":
    main()
