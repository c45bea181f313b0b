"""Measure training and encoding against the other tools that are installed, and print a Markdown table for each.

    python benchmarks/bench.py CORPUS VOCAB_SIZE [--pattern gpt2 ...] [--only training] [--tools "bpe.py, C;gigatoken"]
                               [--repeat 5] [--max-memory GB] [--json FILE]

Each run is a new process. The tools take turns (A B C A B C ...), and the tables show medians. Times are for the whole
process, from start to exit. Memory is peak anonymous memory of the largest process (mapped files do not count), sampled
every 10 ms. benchmarks/README.md explains the columns, and collect.py makes a corpus.

Requires the C engine. Compares with each of these packages that is installed:
    pip install gigatoken rustbpe bpeasy tokenizers tiktoken subword-nmt
"""

from __future__ import annotations

import argparse
import codecs
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

END = "<|endoftext|>"
PART = 32_000_000  # bytes of the corpus that are encoded on one core
SMALL = 3_000_000  # ... by the slow tools
LARGE = 100_000_000  # bytes of the largest file that the slow tools encode
DEFAULT_PATTERNS = ["gpt2", "cl100k", "o200k"]


def pieces(path: str) -> Iterator[str]:
    """Yield the texts between special tokens, one at a time, without reading the whole file into memory."""
    parts: list[str] = []
    with open(path, encoding="utf-8", newline="") as file:
        while block := file.read(1 << 20) + file.readline():  # up to a line ending, so that no special token is cut
            first, *others = block.split(END)
            parts.append(first)
            for other in others:
                yield "".join(parts)
                parts = [other]
    yield "".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# Training. Each function trains and returns the new tokens in order, as bytes, and the seconds that each phase took
# ---------------------------------------------------------------------------------------------------------------------

Trained = tuple[list[bytes], dict[str, float]]


def train_ours(path: str, size: int, pattern: str, **given: Any) -> Trained:
    given = {"engine": "c", "pattern": pattern, "vocab_size": size, **given}
    options = bpe.check_options("count learn", [END], **given)
    times = [time.perf_counter()]
    words = bpe.count_corpus(bpe.Corpus(path, None, options))
    times.append(time.perf_counter())
    tokens = [left + right for left, right, *_ in bpe.learn(words, options)]
    times.append(time.perf_counter())
    return tokens, {"counting": times[1] - times[0], "learning": times[2] - times[1]}


def train_in_python(path: str, size: int, pattern: str) -> Trained:
    return train_ours(path, size, pattern, engine="python")


def train_with_one_thread(path: str, size: int, pattern: str) -> Trained:
    return train_ours(path, size, pattern, workers=1)


def train_like_huggingface(path: str, size: int, pattern: str) -> Trained:
    """The same with another tie rule: the smaller pair of ids wins, where bytes have ids in the order of their letters."""
    order, later = [*bpe.PRINTABLE, *bpe.OTHER_BYTES], itertools.count(256)
    bpe.descending = lambda token: order.index(token[0]) if len(token) == 1 else next(later)  # type: ignore
    return train_ours(path, size, pattern, engine="python")


def train_by_definition(path: str, size: int, pattern: str) -> Trained:
    counts = bpe.count_words(path, [END], pattern=pattern, engine="python")
    words = {tuple(bytes([byte]) for byte in word): count for word, count in counts.items()}
    return [left + right for left, right in bpe.train_by_definition(words, size - 257)], {}


def train_gigatoken(path: str, size: int, pattern: str) -> Trained:
    import gigatoken

    _, merges = gigatoken.train_bpe(path, size, [END])
    return [left + right for left, right in merges], {}


def train_tokenizers(path: str, size: int, pattern: str) -> Trained:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    split = Regex(bpe.JSON_PATTERNS[pattern])
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    parts = [byte_level] if pattern == "gpt2" else [pre_tokenizers.Split(split, "isolated"), byte_level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(pieces(path), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [codecs.charmap_encode(left + right, "strict", bpe.BYTE_OF)[0] for left, right in merges], {}


def train_rustbpe(path: str, size: int, pattern: str) -> Trained:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(pieces(path), size - 1, pattern=bpe.PATTERNS[pattern])  # no special tokens
    return [bytes(token) for token, _ in sorted(tokenizer.get_mergeable_ranks(), key=lambda item: item[1])][256:], {}


def train_bpeasy(path: str, size: int, pattern: str) -> Trained:
    import bpeasy

    vocab = bpeasy.train_bpe(pieces(path), bpe.PATTERNS[pattern], 1 << 20, size - 1)
    return sorted(vocab, key=vocab.__getitem__)[256:], {}


def train_subword_nmt(path: str, size: int, pattern: str) -> Trained:
    import subword_nmt.learn_bpe

    with open(path, encoding="utf-8") as source, open(os.devnull, "w") as output:
        subword_nmt.learn_bpe.learn_bpe(source, output, size - 257)
    return [], {}


HF = "bpe.py, Python, hf"
TRAINERS: dict[str, tuple[str, Callable[[str, int, str], Trained]]] = {  # name -> (package, function)
    "bpe.py, C": ("cffi", train_ours),
    "bpe.py, C, one thread": ("cffi", train_with_one_thread),
    HF: ("regex", train_like_huggingface),  # runs once, as the reference for merges
    "gigatoken": ("gigatoken", train_gigatoken),
    "rustbpe": ("rustbpe", train_rustbpe),
    "bpeasy": ("bpeasy", train_bpeasy),
    "tokenizers": ("tokenizers", train_tokenizers),
    "bpe.py, Python": ("regex", train_in_python),
    "by definition": ("regex", train_by_definition),
    "subword-nmt": ("subword-nmt", train_subword_nmt),
}
ONLY_GPT2 = {"gigatoken", "by definition", "subword-nmt"}  # one pattern is enough; subword-nmt splits at spaces
LARGEST = {"by definition": 200_000, "subword-nmt": SMALL}  # bytes of the largest corpus that they train on


# ---------------------------------------------------------------------------------------------------------------------
# Encoding. Each function loads the model in a folder and returns three functions:
#   (data: bytes, text: str) -> token ids, in the tool's fastest form
#   (data: bytes, text: str) -> token ids, as a list
#   (path, output) -> the number of token ids in a file: bpe.py writes them to a file, other tools keep them in memory
# ---------------------------------------------------------------------------------------------------------------------

Encode = Callable[[bytes, str], Any]
Loaded = tuple[Encode, Encode, Callable[[str, str], int]]


def load_ours(folder: str) -> Loaded:
    tokenizer = bpe.Tokenizer.load(folder)
    encoder = tokenizer.encoder  # built before the clock starts, like the other tools' encoders
    return (
        lambda data, text: encoder.encode_array(data, "u4"),
        lambda data, text: tokenizer.encode(text),
        tokenizer.encode_files,
    )


def load_in_python(folder: str) -> Loaded:
    tokenizer = bpe.Tokenizer.load(folder)
    tokenizer.encoder = tokenizer.python_encoder

    def encode(data: bytes, text: str) -> list[int]:
        return tokenizer.encode(text)

    return encode, encode, lambda path, output: tokenizer.encode_files(path, output, engine="python")


# gigatoken recognizes patterns by their spelling: gpt2 as bpe.py spells it, cl100k in an older spelling.
GIGATOKEN_PATTERNS = {"gpt2": bpe.GPT2}
GIGATOKEN_PATTERNS["cl100k"] = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
GIGATOKEN_PATTERNS["cl100k"] += r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def load_gigatoken(folder: str) -> Loaded:
    import gigatoken

    model = json.loads(Path(folder, "tokenizer.json").read_bytes())
    spelling = model["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    spelling["Regex"] = GIGATOKEN_PATTERNS.get(Path(folder).name, spelling["Regex"])
    tokenizer = gigatoken.Tokenizer.from_json(json.dumps(model))
    return (
        lambda data, text: tokenizer.encode(data),
        lambda data, text: tokenizer.encode(data).tolist(),
        lambda path, output: sum(map(len, tokenizer.encode_files(path))),
    )


def load_tiktoken(folder: str) -> Loaded:
    from concurrent.futures import ThreadPoolExecutor

    import tiktoken

    vocab, pattern = bpe.Tokenizer.load(folder).vocab, bpe.PATTERNS[Path(folder).name]
    ranks = {token: token_id for token_id, token in vocab.items() if token != END.encode()}
    encoding = tiktoken.Encoding("ours", pat_str=pattern, mergeable_ranks=ranks, special_tokens={END: 256})

    def encode_file(path: str, output: str) -> int:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = list(pool.map(encoding.encode_to_numpy, pieces(path)))
        return sum(map(len, found)) + len(found) - 1

    return (
        lambda data, text: encoding.encode_to_numpy(text, allowed_special="all"),
        lambda data, text: encoding.encode(text, allowed_special="all"),
        encode_file,
    )


def load_tokenizers(folder: str) -> Loaded:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")

    def encode_file(path: str, output: str) -> int:
        found = tokenizer.encode_batch_fast(list(pieces(path)))
        return sum(map(len, found)) + len(found) - 1

    def encode(data: bytes, text: str) -> list[int]:
        return tokenizer.encode_batch_fast([text])[0].ids  # faster than encode(), which also computes offsets

    return encode, encode, encode_file


ENCODERS: dict[str, tuple[str, Callable[[str], Loaded]]] = {  # name -> (package, function)
    "bpe.py, C": ("cffi", load_ours),
    "gigatoken": ("gigatoken", load_gigatoken),
    "tiktoken": ("tiktoken", load_tiktoken),
    "tokenizers": ("tokenizers", load_tokenizers),
    "bpe.py, Python": ("regex", load_in_python),
}
SLOW_ENCODERS = {"tokenizers", "bpe.py, Python"}


# ---------------------------------------------------------------------------------------------------------------------
# The work of a measured process; the last line of its output is JSON
# ---------------------------------------------------------------------------------------------------------------------


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def run_training(tool: str, path: str, size: int, pattern: str) -> dict[str, Any]:
    """Return digests of the first 1, 2, 4, ... tokens and of all tokens, which show how far two lists agree."""
    tokens, phases = TRAINERS[tool][1](path, size, pattern)
    lengths = [1 << i for i in range(24) if 1 << i < len(tokens)] + [len(tokens)]
    return {"tokens": [digest(b"|".join(t.hex().encode() for t in tokens[:n])) for n in lengths], **phases}


def run_one_core(tool: str, path: str, folder: str) -> dict[str, Any]:
    """Encode the beginning of a corpus in memory, on one core; returns bytes per second and digests of the ids."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    encode, encode_to_list, _ = ENCODERS[tool][1](folder)
    n_bytes = SMALL if tool in SLOW_ENCODERS else PART
    data, text = beginning(path, n_bytes)
    times = []
    for function in (encode, encode, encode, encode, encode_to_list):
        start = time.perf_counter()
        ids = function(data, text)
        times.append(time.perf_counter() - start)
        if len(times) < 5:
            del ids
    speeds = {
        "first": len(data) / times[0],
        "again": len(data) / statistics.median(times[1:4]),
        "list": len(data) / times[4],
    }
    small = encode_to_list(*beginning(path, SMALL))
    digests = {str(n): digest(array("I", found).tobytes()) for n, found in ((n_bytes, ids), (SMALL, small))}
    return {**speeds, "ids": digests}


def beginning(path: str, n_bytes: int) -> tuple[bytes, str]:
    """Return the first lines of a file, at most n_bytes, as bytes and as str."""
    with open(path, "rb") as file:
        data = file.read(n_bytes)
        if file.read(1):
            data = data[: data.rfind(b"\n") + 1]
    return data, data.decode("utf-8")


def run_whole_file(tool: str, path: str, folder: str) -> dict[str, Any]:
    return {"n_ids": ENCODERS[tool][1](folder)[2](path, f"{folder}/tokens.npy")}


# ---------------------------------------------------------------------------------------------------------------------
# Measuring processes
# ---------------------------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    repeat: int  # runs of each tool
    max_memory: float  # bytes


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous memory of the largest process among a process and its children (Linux only)."""
    largest = 0
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            largest = max(largest, anonymous_bytes(int(child)))
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            largest = max(largest, int(line.split()[1]) * 1024)
    return largest


def measure(command: list[str], max_memory: float = math.inf) -> dict[str, Any]:
    """Run a command; returns its elapsed time, peak memory, exit status and the fields of its last line, if JSON.

    A command that takes more than max_memory bytes is stopped.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start, peak = time.perf_counter(), 0
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        while process.poll() is None:
            try:
                peak = max(peak, anonymous_bytes(process.pid))
                if peak > max_memory:
                    process.kill()
            except (OSError, ValueError):  # the process or a child ended meanwhile
                pass
            try:
                process.wait(0.01)
            except subprocess.TimeoutExpired:
                continue
        seconds = time.perf_counter() - start
        lines = [last_line(file) for file in (output, errors)]
        if peak > max_memory:
            lines[1] = f"more than {max_memory / 1e9:.0f} GB after {seconds:.0f} s"
    told = json.loads(lines[0]) if lines[0].startswith("{") else {}
    return {
        "seconds": seconds,
        "peak": peak,
        "status": process.returncode,
        "error": lines[1] * bool(process.returncode),
        **told,
    }


def last_line(file: Any) -> str:
    file.seek(0)
    return (file.read().decode(errors="replace").strip().splitlines() or [""])[-1]


def in_turns(kind: str, tools: dict[str, list[str]], limits: Limits) -> dict[str, list[dict[str, Any]]]:
    """Run the tools' commands in turn, limits.repeat times; returns the runs of each tool."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in tools}
    for number in range(limits.repeat):
        for name, command in tools.items():
            if number and runs[name][-1]["status"]:
                continue  # would fail again
            runs[name].append(run := measure(command, limits.max_memory))
            failed = f" failed: {run['error']}" if run["status"] else ""
            print(f"{kind}, {name}: {run['seconds']:.2f} s{failed}", file=sys.stderr)
    return runs


def median(runs: list[dict[str, Any]], key: str) -> float | None:
    """Return the median of a field; None if it is missing or a run failed."""
    told = [run[key] for run in runs if key in run and not run["status"]]
    return statistics.median(told) if told and len(told) == len(runs) else None


def speed(value: float | None) -> str:
    """Format bytes per second as MB/s: 431, 26, 4.1."""
    return cell(value, "{:,.1f}" if value and value < 9.95e6 else "{:,.0f}", 1e6)


def cell(value: float | None, form: str = "{:.2f} s", unit: float = 1) -> str:
    return form.format(value / unit) if value else "–"


# ---------------------------------------------------------------------------------------------------------------------
# The two tables
# ---------------------------------------------------------------------------------------------------------------------


def training_rows(path: str, size: int, pattern: str, names: list[str], limits: Limits) -> tuple[list[str], list[Any]]:
    def command(name: str) -> list[str]:
        return [sys.executable, __file__, path, str(size), "--pattern", pattern, "--run", "training", name]

    usable = [name for name in TRAINERS if name in names and (pattern == "gpt2" or name not in ONLY_GPT2)]
    usable = [name for name in usable if os.path.getsize(path) <= LARGEST.get(name, sys.maxsize)]
    small = os.path.getsize(path) <= LARGE  # Hugging Face's rule is tried in Python, which is slow
    hf = measure(command(HF)) if small else {}
    results = in_turns(f"training, {pattern}", {name: command(name) for name in usable}, limits)
    ours = results["bpe.py, C"]
    expected = {"bytes": ours[0].get("tokens", []), "hf": hf.get("tokens", [])}
    rows = []
    for name, runs in results.items():
        seconds = median(runs, "seconds")
        ratio = seconds / (median(ours, "seconds") or seconds) if seconds else None
        cells = [cell(seconds), *(cell(median(runs, phase)) for phase in ("counting", "learning"))]
        cells += [cell(median(runs, "peak"), "{:,.0f} MB", 1e6), cell(ratio, "{:.1f}")]
        rows.append(f"| {pattern} | {name} | {' | '.join(cells)} | {same_merges(runs[0], expected)} |")
    return rows, [{"task": "training", "tool": name, **run} for name, runs in results.items() for run in runs]


def same_merges(run: dict[str, Any], expected: dict[str, list[str]]) -> str:
    """'yes (hf)' or 'no (the first 2,048 merges agree)'."""
    if run["status"]:
        return run["error"] if run["error"].startswith("more than") else "failed"
    tokens, agree = run["tokens"], 0
    for rule, other in expected.items():
        if tokens == other:
            return f"yes ({rule})"
        while tokens[: agree + 1] == other[: agree + 1] and agree < len(tokens):
            agree += 1
    if len(tokens) == 1:
        return "other words"  # no comparable merges
    if not expected["hf"]:
        return "not compared"
    return f"no (the first {1 << agree >> 1:,} merges agree)" if agree else "no"


def encoding_rows(path: str, size: int, pattern: str, names: list[str], limits: Limits) -> tuple[list[str], list[Any]]:
    usable, n_bytes = [name for name in ENCODERS if name in names], os.path.getsize(path)
    with tempfile.TemporaryDirectory() as top:
        folder = f"{top}/{pattern}"
        bpe.Tokenizer.train(path, size, [END], pattern=pattern).save(folder)

        def command(kind: str, name: str) -> list[str]:
            return [sys.executable, __file__, path, str(size), "--folder", folder, "--run", kind, name]

        whole = [name for name in usable if n_bytes <= LARGE or name not in SLOW_ENCODERS]
        one_core = in_turns(f"one core, {pattern}", {name: command("one-core", name) for name in usable}, limits)
        files = in_turns(f"whole file, {pattern}", {name: command("whole-file", name) for name in whole}, limits)
    ours, n_ids = one_core["bpe.py, C"][0], files["bpe.py, C"][0].get("n_ids")
    rows = []
    for name, runs in one_core.items():
        of_file = files.get(name, [])
        seconds = median(of_file, "seconds")
        cells = [speed(median(runs, key)) for key in ("first", "again", "list")]
        cells += [cell(seconds), speed(n_bytes / seconds if seconds else None), cell(median(of_file, "peak"), "{:,.0f} MB", 1e6)]
        same = runs[0].get("ids", {}).items() <= ours.get("ids", {}).items()
        same = same and all(run.get("n_ids") == n_ids for run in of_file)
        failed = any(run["status"] for run in runs + of_file)
        rows.append(f"| {pattern} | {name} | {' | '.join(cells)} | {'failed' if failed else 'yes' if same else 'no'} |")
    told = [{"task": "encoding, one core", "tool": name, **run} for name, runs in one_core.items() for run in runs]
    told += [{"task": "encoding, whole file", "tool": name, **run} for name, runs in files.items() for run in runs]
    return rows, told


TRAINING_HEAD = """\
| pattern | tool | whole process | counting | learning | peak memory | × ours | same merges |
|---|---|---:|---:|---:|---:|---:|---|"""
ENCODING_HEAD = """\
| pattern | tool | one core, first time (MB/s) | words known (MB/s) | to a list (MB/s) | whole file, whole process | MB/s | peak memory | same ids |
|---|---|---:|---:|---:|---:|---:|---:|---|"""
TASKS = {"training": (TRAINING_HEAD, training_rows), "encoding": (ENCODING_HEAD, encoding_rows)}


def choose_tools(asked: str | None) -> list[str]:
    """Return the tools to run, bpe.py first. Raises SystemExit if a requested tool is unknown or not installed."""
    try:
        bpe.check_options("learn", [], engine="c")
    except ValueError as error:
        raise SystemExit(f"bench.py: {error}") from None
    packages = {name: package for table in (TRAINERS, ENCODERS) for name, (package, _) in table.items()}
    names = [name.strip() for name in (asked or ";".join(packages)).split(";") if name.strip() != HF]
    if unknown := [name for name in names if name not in packages]:
        known = "; ".join(name for name in packages if name != HF)
        raise SystemExit(f"bench.py: unknown tool {unknown[0]!r}; use {known}")
    installed = {d.metadata["Name"].lower().replace("_", "-") for d in importlib.metadata.distributions()}
    absent = sorted({packages[name] for name in names} - installed)
    if absent:
        print(f"bench.py: not installed: pip install {' '.join(absent)}", file=sys.stderr)
        if asked:
            raise SystemExit(1)
    names = [name for name in names if packages[name] not in absent]
    return list(dict.fromkeys(["bpe.py, C", *names]))


def conditions(repeat: int, names: list[str]) -> str:
    """Describe how the tables were measured, with the versions of all tools."""
    packages = sorted({table[name][0] for table in (TRAINERS, ENCODERS) for name in names if name in table})
    versions = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    python = sys.version.split()[0]
    return f"Medians of {repeat}; {os.cpu_count()} cores; Python {python}, {', '.join(versions)}; {time.strftime('%Y-%m-%d')}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("vocab_size", type=int)
    parser.add_argument(
        "--pattern",
        action="append",
        choices=list(bpe.PATTERNS),
        help=f"may be repeated (default: {', '.join(DEFAULT_PATTERNS)})",
    )
    parser.add_argument("--only", choices=list(TASKS), help="one of the two tables")
    parser.add_argument("--tools", help="names, separated by semicolons (default: all installed tools)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--max-memory", type=float, default=math.inf, metavar="GB", help="stop a process that takes more")
    parser.add_argument("--json", metavar="FILE", help="append raw results, one line per process")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # the task and the tool of a measured process
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # ... and the folder of its model
    args = parser.parse_args()
    path, size = args.corpus, args.vocab_size
    if args.run:
        kind, tool = args.run
        runners = {"one-core": run_one_core, "whole-file": run_whole_file}
        if kind == "training":
            told = run_training(tool, path, size, args.pattern[0])
        else:
            told = runners[kind](tool, path, args.folder)
        print(f"\n{json.dumps(told)}", flush=True)
        return
    if not os.path.isfile(path):
        raise SystemExit(f"bench.py: no such file: {path}")
    tools, name, n_bytes = choose_tools(args.tools), os.path.basename(path), os.path.getsize(path)
    print(f"`{name}`, {n_bytes / 1e6:,.1f} MB, vocabulary {size:,}. {conditions(args.repeat, tools)}")
    for task in [args.only] if args.only else TASKS:
        head, make_rows = TASKS[task]
        print(f"\n{head}", flush=True)
        for pattern in args.pattern or DEFAULT_PATTERNS:
            rows, lines = make_rows(path, size, pattern, tools, Limits(args.repeat, args.max_memory * 1e9))
            print("\n".join(rows), flush=True)
            if args.json:
                about = {"corpus": name, "bytes": n_bytes, "vocab_size": size, "pattern": pattern}
                with open(args.json, "a", encoding="utf-8") as file:
                    for line in lines:
                        kept = {key: value for key, value in line.items() if key not in ("tokens", "ids")}
                        file.write(json.dumps({**about, **kept}) + "\n")


if __name__ == "__main__":
    main()
