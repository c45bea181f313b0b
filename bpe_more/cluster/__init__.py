"""Training and encoding on a cluster: Dask, Ray, Spark, or processes of this machine.

Learning needs only the counts of words, and counts can be added. So workers count the words of their files, and split
them into buckets: a word always goes to the same one. Then one worker adds up each bucket, so it has the total count of
each of its words, and leaves out the rare ones. The driver, which is the process that calls train(), learns the merges
from the rest. They are those of one machine.

engines            what an engine has; which one a client means; opens the client of a URL; processes of this machine
dask, ray, spark   an engine each, with all calls of that package but those that open a client
tasks              what runs in workers; their reports and errors, and what happens if one is lost
counts             counts of words as bytes, and files of them
urls               files, of this machine or named by URLs

Gives: train() and encode(), which are public; shard_names(), shard_files() and counts_files(), which they write.
Uses: choices, counts, engines, tasks, urls, corpus.arrays, corpus.counting, corpus.inputs, corpus.reading, errors,
formats.saving, outputs, tokenizer, training.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import operator
import os
import posixpath
import tempfile
import zlib
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import bpe
from bpe_more import choices, outputs, training
from bpe_more.cluster import urls
from bpe_more.cluster.counts import add_part, add_part_of_file, file_of, pack, pack_frequent
from bpe_more.cluster.engines import engine_of
from bpe_more.cluster.tasks import Report, memory_hint, versions, watched
from bpe_more.corpus import arrays, counting, reading
from bpe_more.corpus.inputs import kind_of
from bpe_more.errors import package, require
from bpe_more.formats import saving
from bpe_more.tokenizer import Tokenizer

WORD_BYTES, BUCKET_BYTES = 106, 500 << 20  # the memory for a word of a bucket, and for a bucket
MOST_TASK_BYTES, LEAST_TASK_BYTES = 1 << 30, 16 << 20
MOST_PARTS = 100_000  # parts, each of a task and a bucket, that an engine hands over in some minutes


class Job(NamedTuple):
    """What all tasks of a stage need."""

    stage: str
    versions: tuple[str, ...]
    options: choices.Options  # of a task, which has one worker, and shows no progress
    folder: str = ""  # of counts, or of shards
    n_buckets: int = 0
    n_tasks: int = 0
    digest: bytes = b""  # of the plan of counts, or of the tokenizer
    tokenizer: Any = None
    begin: str | None = None
    end: str | None = None


def train(client: Any, paths: bpe.Paths, vocab_size: int, special_tokens: bpe.Strings = None, *,
          counts: str | None = None, buckets: int | None = None, task_bytes: int | None = None,
          **options: Any) -> Tokenizer:
    """Train a tokenizer on files, with the merges of one machine.

    client       a dask.distributed.Client, the module ray, a SparkSession or SparkContext, or None: processes of
                 this machine
    paths        paths and URLs of files, or patterns such as "s3://bucket/web/*.parquet"
    counts       a folder, or its URL, that keeps the counts of words: a second start counts only what is missing
    buckets      how many parts the words are divided into; by default, as many as memory needs
    task_bytes   how many bytes of files a task counts
    options      those of training.train_bpe, whose docstring explains them; workers is for None

    Raises ValueError for bad arguments, and for counts of other files or options, OSError for files, RuntimeError if
    workers are lost again and again.
    """
    checked = choices.Options(special_tokens, vocab_size=vocab_size, **options).checked()
    saving.check_special_names(checked.special_tokens, checked.pattern)
    engine = engine_of(client, checked)
    files = urls.files_of(paths)
    reading.refuse_useless_column([file.path for file in files], checked)
    if counts is not None:
        outputs.check_distinct(counts_files(counts, len(files)), [urls.place_of(file.path) for file in files])
    with contextlib.ExitStack() as stack:
        if counts is None and engine.exchange is None:
            counts = stack.enter_context(tempfile.TemporaryDirectory(prefix="bpe-counts-"))
        folder = urls.absolute(counts) if counts else ""
        job = Job("counting", versions(), checked._replace(workers=1, progress=False), folder)
        job, tasks = planned(job, files, engine.n_workers, {"buckets": buckets, "task_bytes": task_bytes})
        todo: Sequence[Any] = missing_counts(folder, tasks) if folder else tasks
        reports = through_files(engine, todo, job) if folder else engine.exchange(count_files, add, tasks, job)
        table = counting.new_table(checked)
        with memory_hint("learning"):
            for part in watched(reports, {"counting": len(todo), "adding": job.n_buckets}, checked):
                add_part(table, part)
            vocab, merges = training.learn_model(table, checked)
    return Tokenizer(vocab, merges, checked.special_tokens, checked.pattern)


def encode(client: Any, paths: bpe.Paths, tokenizer: Tokenizer, folder: str, *, begin: str | None = None,
           end: str | None = None, shards: str = ".npy", **options: Any) -> int:
    """Encode each file as a shard in a folder; return how many ids they have together.

    A shard has the name of its file, with .npy or .parquet after it, and a .json file with its size, its source and the
    digest of the tokenizer. It is made again only if one of these has changed. At the end, index.json lists all shards.

    begin     as in encode_files: the id of this special token comes before each text
    end       and this one's follows it
    shards    ".npy", or ".parquet" with a row for each text, and a column of lists, "ids"
    options   errors, column, engine, progress, and workers for None

    Raises the errors of train().
    """
    require(shards in (".npy", ".parquet"), "shards must be .npy or .parquet, not {!r}", shards)
    arrays.border_ids(tokenizer, begin, end)  # called for its errors
    checked = tokenizer.options._replace(**options).checked()
    engine = engine_of(client, checked)
    files, folder = urls.files_of(paths), urls.absolute(folder)
    reading.refuse_useless_column([file.path for file in files], checked)
    names = shard_names(files, shards)
    outputs.check_distinct(shard_files(folder, names), [urls.place_of(file.path) for file in files])
    of_task = checked._replace(workers=1, progress=False)
    job = Job("encoding", versions(), of_task, folder, digest=digest_of(tokenizer), tokenizer=tokenizer, begin=begin,
              end=end)
    reports = engine.reports(encode_file, list(zip(files, names)), job)
    entries = sorted(watched(reports, {"encoding": len(files)}, checked), key=operator.itemgetter("shard"))
    n_ids: int = sum(entry["ids"] for entry in entries)
    index = {"tokenizer": job.digest.hex(), "dtype": f"uint{8 * tokenizer.id_bytes}", "begin": begin, "end": end}
    urls.write(posixpath.join(folder, "index.json"), bpe.to_json({**index, "ids": n_ids, "shards": entries}).encode())
    return n_ids


# ------------------------------
# What the driver does
# ------------------------------

def planned(job: Job, files: Sequence[urls.File], n_workers: int,
            given: dict[str, int | None]) -> tuple[Job, list[list[str]]]:
    """Return the job with its plan, and the files of each task. A folder of counts keeps the plan it began with."""
    for name, value in given.items():
        valid = value is None or (bpe.is_integer(value) and value > 0)
        require(valid, "{} must be a positive integer, not {!r}", name, value)
    given = {name: value and operator.index(value) for name, value in given.items()}  # numpy's can't be JSON
    names = "special_tokens", "pattern", "errors", "column"  # those that counts depend on
    settings = {name: getattr(job.options, name) for name in names}
    plan = json.loads(json.dumps({**settings, "versions": job.versions, "files": files}))  # tuples become lists
    path = posixpath.join(job.folder, "plan.json")
    if job.folder and "plan.json" in urls.names_in(job.folder):
        found = urls.read_json(path, {*plan, *given})
        other = [key for key, value in plan.items() if value != found[key]]
        other += [key for key, value in given.items() if value not in (None, found[key])]
        text = "{} has counts with other {}; delete it, or name another folder"
        require(not other, text, job.folder, " and ".join(other))
        plan = found
    else:
        n_bytes = sum(file.size for file in files)
        # distinct words of text in many languages, extrapolated; English has a quarter of that
        n_words = 1.15 * n_bytes**0.75
        plan["buckets"] = given["buckets"] or max(n_workers, int(n_words * WORD_BYTES / BUCKET_BYTES) + 1)
        wanted = min(max(n_bytes // (4 * n_workers), LEAST_TASK_BYTES), MOST_TASK_BYTES)
        most_tasks = MOST_PARTS if job.folder else max(1, MOST_PARTS // plan["buckets"])
        plan["task_bytes"] = given["task_bytes"] or max(wanted, n_bytes // most_tasks + 1)
        if job.folder:
            urls.write_json(path, plan)
    tasks = divided(files, plan["task_bytes"])
    digest = hashlib.sha256(json.dumps(plan).encode()).digest()
    return job._replace(n_buckets=plan["buckets"], n_tasks=len(tasks), digest=digest), tasks


def divided(files: Sequence[urls.File], task_bytes: int) -> list[list[str]]:
    """Return the paths of the files of each task. A file is never divided."""
    tasks: list[list[str]] = []
    n_bytes = 0  # of the last task
    for file in files:
        if not tasks or n_bytes + file.size > task_bytes:
            tasks.append([])
            n_bytes = 0
        tasks[-1].append(file.path)
        n_bytes += file.size
    return tasks


def digest_of(tokenizer: Tokenizer) -> bytes:
    """Return a digest of everything that ids depend on."""
    parts = sorted(tokenizer.vocab.items()), list(tokenizer.merges), tokenizer.special_ids, tokenizer.pattern
    return hashlib.sha256(repr((*parts, tokenizer.settings())).encode()).digest()


def shard_names(files: Sequence[urls.File], ending: str) -> list[str]:
    """Return the name of each file's shard: its path below the folder that all files have in common."""
    paths = [file.path.replace(os.sep, "/") for file in files]
    require(len(set(paths)) == len(paths), "a file is given twice")
    common = posixpath.dirname(os.path.commonprefix(paths))
    return [f"{path[len(common) :].lstrip('/')}{ending}" for path in paths]


def shard_files(folder: str, names: Sequence[str]) -> list[str]:
    """Return the paths of all files that encode() may write, as urls.place_of() spells them."""
    place = urls.place_of(folder)
    return [posixpath.join(place, name) for name in ["index.json", *names, *(f"{name}.json" for name in names)]]


def counts_files(folder: str, most_tasks: int) -> list[str]:
    """Return the paths of all files that train() may write in a folder of counts, as urls.place_of() spells them."""
    place = urls.place_of(folder)
    return [posixpath.join(place, name) for name in ["plan.json", *map(counts_name, range(most_tasks))]]


def missing_counts(folder: str, tasks: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the tasks, with their numbers, whose counts aren't in the folder yet."""
    there = urls.names_in(folder)
    return [(number, task) for number, task in enumerate(tasks) if counts_name(number) not in there]


def through_files(engine: Any, numbered: Sequence[Any], job: Job) -> Generator[Report, None, None]:
    """Count words into files, and add up the buckets in all files; yield the reports of tasks."""
    yield from engine.reports(write_counts, numbered, job)
    yield from engine.reports(add_files, range(job.n_buckets), job._replace(stage="adding"))


# ------------------------------
# What workers do
# ------------------------------

def count_files(job: Job, paths: Sequence[str]) -> Report:
    """Count the words of files; the result has a part for each bucket."""
    with urls.fetched(paths) as local:
        corpus = reading.Corpus(local, None, job.options._replace(column=column_for(local, job.options)))
        table = corpus.count()
    _, n_words, _ = table.totals()
    buckets: list[tuple[list[bytes], array[int]]] = [([], array("Q")) for _ in range(job.n_buckets)]
    for word, n in table.copy().items():
        words, counts = buckets[zlib.crc32(word) % job.n_buckets]  # hash() of bytes differs between processes
        words.append(word)
        counts.append(n)
    return Report(list(itertools.starmap(pack, buckets)), corpus.bytes_read, n_words)


def write_counts(job: Job, numbered: tuple[int, Sequence[str]]) -> Report:
    """Count the words of files into a file, which is complete as soon as it has its name."""
    number, paths = numbered
    report = count_files(job, paths)
    urls.write(posixpath.join(job.folder, counts_name(number)), file_of(start_of_counts(job, number), report.result))
    return report._replace(result=None)


def counts_name(number: int) -> str:
    """Return the name of the file with the counts of a task."""
    return f"{number:06}.counts"


def start_of_counts(job: Job, number: int) -> bytes:
    """Return the 32 bytes that only the counts of this task, in this plan, begin with."""
    return hashlib.sha256(job.digest + counts_name(number).encode()).digest()


def add_files(job: Job, number: int) -> Report:
    """Add up a bucket from the counts of all tasks."""
    table = counting.new_table(job.options)
    for task in range(job.n_tasks):
        path = posixpath.join(job.folder, counts_name(task))
        add_part_of_file(table, path, start_of_counts(job, task), job.n_buckets, number)
    return Report(pack_frequent(table, job.options.min_word_count))


def add(job: Job, parts: Iterable[bytes]) -> Report:
    """Add up a bucket."""
    table = counting.new_table(job.options)
    for part in parts:
        add_part(table, part)
    return Report(pack_frequent(table, job.options.min_word_count))


def column_for(paths: Iterable[str], options: choices.Options) -> str | None:
    """Return the column of the files of a task, or None if they have no columns, as others of the same run have."""
    return options.column if any(kind_of(path, options)[0] for path in paths) else None


def encode_file(job: Job, item: tuple[urls.File, str]) -> Report:
    """Encode a file, unless its shard is there; the result is the shard's entry in index.json."""
    (path, size, stamp), name = item
    target, options = posixpath.join(job.folder, name), job.options
    given = {"errors": options.errors, "column": options.column, "begin": job.begin, "end": job.end}
    entry: dict[str, Any] = {"shard": name, "source": [path, size, stamp], "tokenizer": job.digest.hex(), **given}
    names = urls.names_in(posixpath.dirname(target))
    if {posixpath.basename(target), posixpath.basename(target) + ".json"} <= names:
        found = urls.read_json(f"{target}.json", ("shard", "tokenizer"))
        is_whole = found.get("bytes") == urls.size_of(target) and isinstance(found.get("ids"), int)
        if {**found, **entry} == found and is_whole:  # a copy may end too early
            return Report(found)
    urls.remove(f"{target}.json")  # first: it must never describe another shard
    with urls.fetched([path]) as [local], urls.written(target) as new:
        given["column"] = column_for([local], options)
        corpus = job.tokenizer.corpus_of(local, None, workers=1, engine=options.engine, **given)
        encode_corpus = arrays.encode_corpus if name.endswith(".npy") else encode_rows
        n_ids = encode_corpus(job.tokenizer, corpus, new)
    entry |= {"bytes": urls.size_of(target), "ids": n_ids}
    urls.write_json(f"{target}.json", entry)
    return Report(entry, size, n_ids)


def encode_rows(tokenizer: Tokenizer, corpus: reading.Corpus, output: str) -> int:
    """Write the ids of a file as Parquet, with a row for each of its texts; return how many ids there are."""
    pyarrow, parquet = package("pyarrow", output), package("pyarrow.parquet", output)
    id_bytes, options = tokenizer.id_bytes, corpus.options
    borders = arrays.border_ids(tokenizer, corpus.begin, corpus.end)
    if any(borders):
        tokenizer = tokenizer.ordinary
    encoder = tokenizer.encoder_for(options.engine)
    encode_texts = functools.partial(arrays.encode_leaving_out, encoder, f"u{id_bytes}", options.errors)
    results: Iterator[Any] = ((ids, ends) for _, (ids, ends, _) in corpus.results(encode_texts, True))
    [(format_of_rows, _)] = corpus.kinds
    if not format_of_rows:  # the whole file is one text, even if it is empty
        text = b"".join(ids for ids, _ in results)
        results = iter([(text, [len(text) // id_bytes])])
    kind = pyarrow.uint16() if id_bytes == 2 else pyarrow.uint32()
    schema = pyarrow.schema([("ids", pyarrow.large_list(kind))])
    n_added = sum(map(bool, borders))  # to each text
    n_ids = 0
    with outputs.new_files([output]) as [file], parquet.ParquetWriter(file, schema) as writer:
        for ids, ends in results:
            places = [0, *(end + number * n_added for number, end in enumerate(ends, 1))]
            data = pyarrow.py_buffer(arrays.with_borders(ids, ends, id_bytes, borders))
            values = pyarrow.Array.from_buffers(kind, places[-1], [None, data])
            rows = pyarrow.LargeListArray.from_arrays(pyarrow.array(places, pyarrow.int64()), values)
            writer.write_table(pyarrow.table([rows], schema))
            n_ids += places[-1]
    return n_ids
