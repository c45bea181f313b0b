"""Measure training and encoding against the other tools that are installed, and print a Markdown table for each.

    python benchmarks/bench.py CORPUS VOCAB_SIZE [--pattern gpt2 ...] [--only training ...]
                               [--tools "gigatoken;tiktoken"] [--repeat 5] [--max-memory GB] [--json FILE]

Each run is a new process. The tools take turns (A B C A B C ...), and the tables show medians. Memory is the anonymous
memory of all processes of a tool (mapped files do not count), sampled 20 to 50 times a second. benchmarks/README.md
explains the columns, and collect.py makes a corpus.

Requires the C engine. Compares with each of these packages that is installed:
    pip install gigatoken gigabpe ffbpe rustbpe fast-bpe-rs bpeasy tokenizers tiktoken subword-nmt \\
        fastokens snaptokens splintr-rs quicktok-v1 tokie tuetoken
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from encoders import CAN_ENCODE, ENCODERS, END, SLOW_ENCODERS, pieces, save_model

import bpe
from bpe_more.patterns.steps import TIKTOKEN_CL100K

PART = 32_000_000  # bytes of the corpus that are encoded on one core
SMALL = 3_000_000  # ... by the slow tools
LARGE = 100_000_000  # bytes of the largest file that the slow tools encode
TEXTS = {5: 100, 100: 100, 1_000: 100, 100_000: 10}  # characters of a short text -> how many of them
WARM_UP = " a" * 500  # encoded before the clock starts: some tools import modules or start threads with the first text
DEFAULT_PATTERNS = ["gpt2", "cl100k", "o200k"]
SPELLED = bpe.PATTERNS | {"cl100k": TIKTOKEN_CL100K}  # as tiktoken spells them, for tools that take an expression


# ---------------------------------------------------------------------------------------------------------------------
# Training. Each function trains and returns the new tokens in order, as bytes, and the seconds that each phase took
# ---------------------------------------------------------------------------------------------------------------------

Trained = tuple[list[bytes], dict[str, float]]


def train_ours(path: str, size: int, pattern: str, engine: bpe.EngineName = "c", workers: int | None = None) -> Trained:
    times = [time.perf_counter()]
    words = bpe.count_corpus(path, None, (END,), pattern, workers, engine, False)  # the two calls of train_bpe
    times.append(time.perf_counter())
    _, merges = bpe.learn_model(words, size, (END,), engine, False)
    times.append(time.perf_counter())
    return [left + right for left, right in merges], {"counting": times[1] - times[0], "learning": times[2] - times[1]}


def train_in_python(path: str, size: int, pattern: str) -> Trained:
    return train_ours(path, size, pattern, engine="python")


def train_with_one_thread(path: str, size: int, pattern: str) -> Trained:
    return train_ours(path, size, pattern, workers=1)


def train_like_huggingface(path: str, size: int, pattern: str) -> Trained:
    """The same with another tie rule: the smaller pair of ids wins, where bytes have ids in the order of their letters."""
    order, later = sorted(range(256), key=bpe.CHARACTERS.__getitem__), itertools.count(256)
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
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern == "gpt2")
    parts = [byte_level] if pattern == "gpt2" else [pre_tokenizers.Split(Regex(bpe.PATTERNS[pattern]), "isolated"), byte_level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(pieces(path), trainer)
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [from_printable(left + right) for left, right in merges], {}


def from_printable(token: str) -> bytes:
    return codecs.charmap_encode(token, "strict", bpe.BYTE_OF)[0]


def train_rustbpe(path: str, size: int, pattern: str) -> Trained:
    import rustbpe

    tokenizer = rustbpe.Tokenizer()
    tokenizer.train_from_iterator(pieces(path), size - 1, pattern=SPELLED[pattern])  # no special tokens
    return [bytes(token) for token, _ in sorted(tokenizer.get_mergeable_ranks(), key=lambda item: item[1])][256:], {}


def train_bpeasy(path: str, size: int, pattern: str) -> Trained:
    import bpeasy

    vocab = bpeasy.train_bpe(pieces(path), SPELLED[pattern], 1 << 20, size - 1)
    return sorted(vocab, key=vocab.__getitem__)[256:], {}


def train_gigabpe(path: str, size: int, pattern: str) -> Trained:
    import gigabpe

    _, merges = gigabpe.train_bpe([path], size, special_tokens=[END], pretokenizer="bytelevel")
    return [from_printable(left + right) for left, right in merges], {}


def train_ffbpe(path: str, size: int, pattern: str) -> Trained:
    import ffbpe

    counter = ffbpe.PreTokenizer([END], END, SPELLED[pattern]).word_counter()
    counter.add_source(pieces(path))
    trainer = ffbpe.BpeTrainer([END], tie_break="largest_content")  # the tie rule of bpe.py
    trainer.add_word_counter(counter)
    trainer.train(size)
    return sorted(trainer.vocab, key=trainer.vocab.__getitem__)[257:], {}


def train_fast_bpe_rs(path: str, size: int, pattern: str) -> Trained:
    import fast_bpe_rs

    tokenizer = fast_bpe_rs.BPE(SPELLED[pattern])
    tokenizer.train(size - 1, list(pieces(path)))  # no special tokens
    return [tokenizer.decode([token_id]) for token_id in range(256, size - 1)], {}


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
    "gigabpe": ("gigabpe", train_gigabpe),
    "ffbpe": ("ffbpe", train_ffbpe),
    "rustbpe": ("rustbpe", train_rustbpe),
    "fast-bpe-rs": ("fast-bpe-rs", train_fast_bpe_rs),
    "bpeasy": ("bpeasy", train_bpeasy),
    "tokenizers": ("tokenizers", train_tokenizers),
    "bpe.py, Python": ("regex", train_in_python),
    "by definition": ("regex", train_by_definition),
    "subword-nmt": ("subword-nmt", train_subword_nmt),
}
ONLY_GPT2 = {"gigatoken", "gigabpe", "by definition", "subword-nmt"}  # the first two train with this pattern only
# These get half as many runs.
SLOW = SLOW_ENCODERS | {"tiktoken", "tuetoken", "bpeasy", "fast-bpe-rs", "by definition", "subword-nmt"}
OTHER_WORDS = {"gigabpe", "subword-nmt"}  # they split text in another way, so their merges can't be compared
LARGEST = {"by definition": 200_000, "subword-nmt": SMALL}  # bytes of the largest corpus that they train on


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
    stay_on_one_core()
    encoder = ENCODERS[tool][1](folder)
    encoder.fastest(WARM_UP.encode(), WARM_UP)
    encoder.encode(WARM_UP)
    text = "".join(beginning(path, part_for(tool)))
    data = text.encode()
    times = []
    for _ in range(4):
        start = time.perf_counter()
        found = encoder.fastest(data, text)
        times.append(time.perf_counter() - start)
        del found  # not within the time
    start = time.perf_counter()
    ids = encoder.encode(text)
    times.append(time.perf_counter() - start)
    speeds = {
        "first": len(data) / times[0],
        "again": len(data) / statistics.median(times[1:4]),
        "list": len(data) / times[4],
    }
    small = encoder.encode("".join(beginning(path, SMALL)))  # which every tool encodes
    return {**speeds, "ids": {str(part_for(tool)): digest_of_ids([ids]), str(SMALL): digest_of_ids([small])}}


def run_whole_file(tool: str, path: str, folder: str) -> dict[str, Any]:
    return {"n_ids": ENCODERS[tool][1](folder).count_file(path, f"{folder}/tokens.npy")}


def run_texts(tool: str, path: str, folder: str) -> dict[str, Any]:
    """Encode texts of several lengths on one core; returns seconds per text, all of whose words are known."""
    stay_on_one_core()
    encode = ENCODERS[tool][1](folder).encode
    whole = "".join(beginning(path, SMALL))
    told: dict[str, Any] = {"ids": {}}
    for length, n_texts in TEXTS.items():
        if length > len(whole):
            continue
        starts = range(0, len(whole) - length + 1, max((len(whole) - length) // n_texts, 1))[:n_texts]
        texts = [whole[start : start + length] for start in starts]
        told["ids"][str(length)] = digest_of_ids(map(encode, texts))
        rounds: list[float] = []
        while sum(rounds) < 0.2 or len(rounds) < 3:
            start = time.perf_counter()
            for text in texts:
                encode(text)
            rounds.append(time.perf_counter() - start)
        told[f"{length} characters"] = statistics.median(rounds) / len(texts)
    return told


def run_documents(tool: str, path: str, folder: str) -> dict[str, Any]:
    """Encode the documents of a corpus to lists, which are all kept, with one call for each, on one core."""
    stay_on_one_core()
    encode = ENCODERS[tool][1](folder).encode
    return keep_documents(tool, path, lambda documents: [encode(document) for document in documents])


def run_batch(tool: str, path: str, folder: str) -> dict[str, Any]:
    """Encode the same documents with one call for all, on all cores."""
    return keep_documents(tool, path, ENCODERS[tool][1](folder).encode_batch)


def keep_documents(tool: str, path: str, encode_all: Callable[[list[str]], list[list[int]]]) -> dict[str, Any]:
    encode_all([WARM_UP, WARM_UP])
    documents = beginning(path, part_for(tool))
    n_bytes = sum(len(document.encode()) for document in documents)
    times, after = [], 0
    for _ in range(4):
        start = time.perf_counter()
        kept = encode_all(documents)
        times.append(time.perf_counter() - start)
        after = after or anonymous_bytes(process_tree(os.getpid()))
        del kept
    speeds = {"first": n_bytes / times[0], "again": n_bytes / statistics.median(times[1:])}
    return {**speeds, "after": after, "ids": {str(SMALL): digest_of_ids(encode_all(beginning(path, SMALL)))}}


def stay_on_one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])


def part_for(tool: str) -> int:
    return SMALL if tool in SLOW_ENCODERS else PART


def beginning(path: str, n_bytes: int) -> list[str]:
    """Return the documents in the first lines of a file, at most n_bytes; or paragraphs, if there is one document."""
    with open(path, "rb") as file:
        data = file.read(n_bytes)
        if file.read(1):
            data = data[: data.rfind(b"\n") + 1]
    text = data.decode("utf-8")
    documents = text.split(END)
    if len(documents) == 1:
        documents = re.split(r"(?<=\n\n)(?!\n)", text)
    return [document for document in documents if document]


def digest_of_ids(lists: Iterable[list[int]]) -> str:
    return digest(b"".join(array("I", ids).tobytes() for ids in lists))


# ---------------------------------------------------------------------------------------------------------------------
# Measuring processes
# ---------------------------------------------------------------------------------------------------------------------


ALONE, TOGETHER = 0.02, 0.05  # seconds between samples of one process, and of several, which take longer to sample


class Job(NamedTuple):
    """What a table measures."""

    path: str
    size: int  # of the vocabulary
    pattern: str
    names: list[str]  # of the tools
    repeat: int  # runs of each tool
    max_memory: float  # bytes

    def command(self, kind: str, name: str, folder: str = "") -> list[str]:
        options = ["--pattern", self.pattern, "--folder", folder, "--run", kind, name]
        return [sys.executable, __file__, self.path, str(self.size), *options]


def process_tree(pid: int) -> list[int]:
    """Return a process and its descendants (Linux only)."""
    tree = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread or child that has just ended
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                tree += process_tree(int(child))
    return tree


def anonymous_bytes(tree: list[int]) -> int:
    """Return the anonymous memory of processes, where pages that they share count once (Linux only)."""
    if len(tree) == 1:  # shares nothing, and this file is read faster
        return field_of(f"/proc/{tree[0]}/status", "RssAnon:")
    return sum(field_of(f"/proc/{process}/smaps_rollup", "Pss_Anon:") for process in tree)


def field_of(path: str, name: str) -> int:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0  # of a process that has ended


def measure(command: list[str], max_memory: float = math.inf) -> dict[str, Any]:
    """Run a command; returns its elapsed time, peak memory, exit status and the fields of its last line, if JSON.

    A command that takes more than max_memory bytes is stopped.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start, peak, pause = time.perf_counter(), 0, ALONE
        process = subprocess.Popen(command, stdout=output, stderr=errors)
        while process.poll() is None:
            try:
                tree = process_tree(process.pid)
                pause = ALONE if len(tree) == 1 else TOGETHER
                peak = max(peak, anonymous_bytes(tree))
                if peak > max_memory:
                    process.kill()
            except (OSError, ValueError):  # the process or a child ended meanwhile
                pass
            try:
                process.wait(pause)
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


def in_turns(kind: str, job: Job, names: list[str], folder: str = "") -> dict[str, list[dict[str, Any]]]:
    """Run the tools in turn, job.repeat times, or half as often if they are slow; returns the runs of each tool."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for number in range(job.repeat):
        for name in names:
            if number >= (job.repeat + 1) // 2 and name in SLOW:
                continue
            if number and runs[name][-1]["status"]:
                continue  # would fail again
            runs[name].append(run := measure(job.command(kind, name, folder), job.max_memory))
            failed = f" failed: {run['error']}" if run["status"] else ""
            print(f"{kind}, {job.pattern}, {name}: {run['seconds']:.2f} s{failed}", file=sys.stderr)
    return runs


def median(runs: list[dict[str, Any]], key: str) -> float | None:
    """Return the median of a field; None if it is missing or a run failed."""
    told = [run[key] for run in runs if key in run and not run["status"]]
    return statistics.median(told) if told and len(told) == len(runs) else None


def speed(value: float | None) -> str:
    """Format bytes per second as MB/s: 431, 26, 4.1."""
    return cell(value, "{:,.1f}" if value and value < 9.95e6 else "{:,.0f}", 1e6)


def memory(value: float | None) -> str:
    return cell(value, "{:,.0f} MB", 1e6)


def cell(value: float | None, form: str = "{:.2f} s", unit: float = 1) -> str:
    return form.format(value / unit) if value else "–"


# ---------------------------------------------------------------------------------------------------------------------
# The tables. Each function returns the rows for one pattern, and the raw results
# ---------------------------------------------------------------------------------------------------------------------

Table = tuple[list[str], list[dict[str, Any]]]
Runs = dict[str, list[dict[str, Any]]]


def training_rows(job: Job) -> Table:
    usable = [name for name in TRAINERS if name in job.names and (job.pattern == "gpt2" or name not in ONLY_GPT2)]
    usable = [name for name in usable if os.path.getsize(job.path) <= LARGEST.get(name, sys.maxsize)]
    small = os.path.getsize(job.path) <= LARGE  # Hugging Face's rule is tried in Python, which is slow
    hf = measure(job.command("training", HF)) if small else {}
    results = in_turns("training", job, usable)
    ours = results["bpe.py, C"]
    expected = {"bytes": ours[0].get("tokens", []), "hf": hf.get("tokens", [])}
    rows = []
    for name, runs in results.items():
        seconds = median(runs, "seconds")
        ratio = seconds / (median(ours, "seconds") or seconds) if seconds else None
        cells = [cell(seconds), *(cell(median(runs, phase)) for phase in ("counting", "learning"))]
        cells += [memory(median(runs, "peak")), cell(ratio, "{:.1f}"), same_merges(name, runs[0], expected)]
        rows.append(row(job, name, cells))
    return rows, raw("training", results)


def same_merges(name: str, run: dict[str, Any], expected: dict[str, list[str]]) -> str:
    """'yes (hf)' or 'no (the first 2,048 merges agree)'."""
    if run["status"]:
        return run["error"] if run["error"].startswith("more than") else "failed"
    tokens, agree = run["tokens"], 0
    for rule, other in expected.items():
        if tokens == other:
            return f"yes ({rule})"
        while tokens[: agree + 1] == other[: agree + 1] and agree < len(tokens):
            agree += 1
    if name in OTHER_WORDS:
        return "other words"
    if not expected["hf"]:
        return "not compared"
    return f"no (the first {1 << agree >> 1:,} merges agree)" if agree else "no"


def encoding_rows(job: Job) -> Table:
    usable, n_bytes = encoders_for(job), os.path.getsize(job.path)
    with model_folder(job) as folder:
        one_core = in_turns("one-core", job, usable, folder)
        whole = [name for name in usable if n_bytes <= LARGE or name not in SLOW_ENCODERS]
        files = in_turns("whole-file", job, whole, folder)
    rows = []
    for name, runs in one_core.items():
        of_file = files.get(name, [])
        seconds = median(of_file, "seconds")
        cells = [speed(median(runs, key)) for key in ("first", "again", "list")]
        cells += [cell(seconds), speed(n_bytes / seconds if seconds else None), memory(median(of_file, "peak"))]
        rows.append(row(job, name, [*cells, same_ids(name, one_core, files)]))
    return rows, raw("encoding, one core", one_core) + raw("encoding, whole file", files)


def texts_rows(job: Job) -> Table:
    with model_folder(job) as folder:
        results = in_turns("texts", job, encoders_for(job), folder)
    rows = []
    for name, runs in results.items():
        medians = [median(runs, f"{length} characters") for length in TEXTS]
        cells = [cell(value, "{:,.1f}" if value and value < 9.95e-6 else "{:,.0f}", 1e-6) for value in medians]
        rows.append(row(job, name, [*cells, same_ids(name, results)]))
    return rows, raw("texts", results)


def documents_rows(job: Job) -> Table:
    with model_folder(job) as folder:
        one_core = in_turns("documents", job, encoders_for(job), folder)
        batch = in_turns("batch", job, encoders_for(job), folder)
    rows = []
    for name in one_core:
        cells = [speed(median(results[name], key)) for results in (one_core, batch) for key in ("first", "again")]
        cells += [memory(median(results[name], "after")) for results in (one_core, batch)]
        rows.append(row(job, name, [*cells, same_ids(name, one_core, batch)]))
    return rows, raw("documents, one thread", one_core) + raw("documents, batch", batch)


def encoders_for(job: Job) -> list[str]:
    return [name for name in ENCODERS if name in job.names and job.pattern in CAN_ENCODE.get(name, bpe.PATTERNS)]


@contextlib.contextmanager
def model_folder(job: Job) -> Iterator[str]:
    """Train with bpe.py, and yield a folder with the model."""
    with tempfile.TemporaryDirectory() as top:
        save_model(job.path, job.size, job.pattern, f"{top}/{job.pattern}")
        yield f"{top}/{job.pattern}"


def same_ids(name: str, *all_results: Runs) -> str:
    """Return 'yes' if the digests and numbers of ids in all runs are those of bpe.py."""
    same = True
    for results in all_results:
        ours = results["bpe.py, C"][0]
        for run in results.get(name, []):
            if run["status"]:
                return "failed"
            same = same and run.get("n_ids") == ours.get("n_ids")
            same = same and run.get("ids", {}).items() <= ours.get("ids", {}).items()
    return "yes" if same else "no"


def row(job: Job, name: str, cells: list[str]) -> str:
    return f"| {job.pattern} | {name} | {' | '.join(cells)} |"


def raw(task: str, results: Runs) -> list[dict[str, Any]]:
    return [{"task": task, "tool": name, **run} for name, runs in results.items() for run in runs]


TRAINING_HEAD = """\
| pattern | tool | whole process | counting | learning | peak memory | × ours | same merges |
|---|---|---:|---:|---:|---:|---:|---|"""
ENCODING_HEAD = """\
| pattern | tool | one core, first time (MB/s) | words known (MB/s) | to a list (MB/s) | whole file, whole process | MB/s | peak memory | same ids |
|---|---|---:|---:|---:|---:|---:|---:|---|"""
TEXTS_HEAD = """\
| pattern | tool | 5 characters (µs) | 100 (µs) | 1,000 (µs) | 100,000 (µs) | same ids |
|---|---|---:|---:|---:|---:|---|"""
DOCUMENTS_HEAD = """\
| pattern | tool | one by one, first time (MB/s) | words known (MB/s) | one batch, first time (MB/s) | words known (MB/s) | memory, one by one | memory, batch | same ids |
|---|---|---:|---:|---:|---:|---:|---:|---|"""
TASKS = {
    "training": (TRAINING_HEAD, training_rows),
    "encoding": (ENCODING_HEAD, encoding_rows),
    "texts": (TEXTS_HEAD, texts_rows),
    "documents": (DOCUMENTS_HEAD, documents_rows),
}


def choose_tools(asked: str | None) -> list[str]:
    """Return the tools to run, bpe.py first. Raises SystemExit if a requested tool is unknown or not installed."""
    try:
        bpe.choose_engine("c")
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


def version_of(name: str) -> str:
    """Return the version of a tool."""
    if name.startswith(("bpe.py", "by definition")):
        return bpe.__version__
    return importlib.metadata.version((TRAINERS.get(name) or ENCODERS[name])[0])


def processor() -> str:
    """Return the name of the processor."""
    try:
        found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def conditions(repeat: int, names: list[str]) -> str:
    """Describe how the tables were measured, with the versions of all tools."""
    packages = sorted({table[name][0] for table in (TRAINERS, ENCODERS) for name in names if name in table})
    versions = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    runs = f"{repeat} ({(repeat + 1) // 2} of {', '.join(sorted(SLOW & {*names}))})" if SLOW & {*names} else repeat
    python = f"Python {sys.version.split()[0]}, bpe.py {bpe.__version__}"
    return f"Medians of {runs}; {os.cpu_count()} cores; {python}, {', '.join(versions)}; {time.strftime('%Y-%m-%d')}."


RUNNERS = {
    "one-core": run_one_core,
    "whole-file": run_whole_file,
    "texts": run_texts,
    "documents": run_documents,
    "batch": run_batch,
}


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
    parser.add_argument("--only", action="append", choices=list(TASKS), help="one of the tables; may be repeated")
    parser.add_argument("--tools", help="names, separated by semicolons (default: all installed tools)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--max-memory", type=float, default=math.inf, metavar="GB", help="stop a tool that takes more")
    parser.add_argument("--json", metavar="FILE", help="append raw results, one line per process")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # the task and the tool of a measured process
    parser.add_argument("--folder", help=argparse.SUPPRESS)  # ... and the folder of its model
    args = parser.parse_args()
    path, size = args.corpus, args.vocab_size
    if args.run:
        kind, tool = args.run
        if kind == "training":
            told = run_training(tool, path, size, args.pattern[0])
        else:
            told = RUNNERS[kind](tool, path, args.folder)
        print(f"\n{json.dumps(told)}", flush=True)
        return
    if not os.path.isfile(path):
        raise SystemExit(f"bench.py: no such file: {path}")
    tools, name, n_bytes = choose_tools(args.tools), os.path.basename(path), os.path.getsize(path)
    print(f"`{name}`, {n_bytes / 1e6:,.1f} MB, vocabulary {size:,}. {conditions(args.repeat, tools)}")
    about = {"corpus": name, "bytes": n_bytes, "vocab_size": size, "processor": processor()}
    for task in args.only or TASKS:
        head, make_rows = TASKS[task]
        print(f"\n{head}", flush=True)
        for pattern in args.pattern or DEFAULT_PATTERNS:
            rows, lines = make_rows(Job(path, size, pattern, tools, args.repeat, args.max_memory * 1e9))
            print("\n".join(rows), flush=True)
            if args.json:
                append_results(args.json, {**about, "pattern": pattern}, lines)


def append_results(path: str, about: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    date = time.strftime("%Y-%m-%d")
    with open(path, "a", encoding="utf-8") as file:
        for run in runs:
            kept = {key: value for key, value in run.items() if key not in ("tokens", "ids")}
            file.write(json.dumps({**about, "date": date, "version": version_of(run["tool"]), **kept}) + "\n")


if __name__ == "__main__":
    main()
