"""bpe_more/cluster on each engine for tasks: the merges of one machine, the ids of encode_files, and what is kept.

    pytest -q tests/cluster
"""

import contextlib
import functools
import http.server
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from array import array

import damaged
import pytest

import bpe
from bpe_more import choices, cluster
from bpe_more.cluster import engines, urls
from bpe_more.cluster.tasks import versions
from bpe_more.corpus import counting
from bpe_more.tokenizer import Tokenizer
from shared import read_ids
from test_bpe import CORPUS, END, HERE, need

FORMATS = ["txt", "jsonl", "parquet"]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """The fixture as four files of each format, with special tokens in them: {format: pattern of paths}."""
    folder = tmp_path_factory.mktemp("corpus")
    lines = CORPUS.read_text(encoding="utf-8").splitlines(keepends=True)
    for number in range(4):
        texts = ["".join(lines[start : start + 20]) + END for start in range(number * 20, len(lines), 80)]
        (folder / f"{number}.txt").write_text("".join(texts), encoding="utf-8")
        (folder / f"{number}.jsonl").write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
        with contextlib.suppress(ImportError):
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table({"body": texts}), folder / f"{number}.parquet", row_group_size=3)
    return folder


def options_of(kind):
    if kind == "parquet":
        need("pyarrow")
    return {} if kind == "txt" else {"column": "body"}


@functools.lru_cache
def one_machine(folder, kind, min_word_count=1):
    paths = sorted(map(str, folder.glob(f"*.{kind}")))
    return Tokenizer.train(paths, 1000, [END], min_word_count=min_word_count, **options_of(kind))


@pytest.mark.parametrize("kept", [False, True], ids=["exchanged", "counts"])
@pytest.mark.parametrize("kind", FORMATS)
def test_each_engine_gives_the_merges_and_the_ids_of_one_machine(client, corpus, tmp_path, kind, kept):
    options = options_of(kind)
    paths, counts = str(corpus / f"?.{kind}"), str(tmp_path / "counts") if kept else None
    least, engine = 3 if kind == "jsonl" else 1, "python" if kept and kind == "jsonl" else "auto"
    expected = one_machine(corpus, kind, least)
    found = cluster.train(client, paths, 1000, [END], counts=counts, buckets=3, task_bytes=1, min_word_count=least, engine=engine, **options)
    assert found.merges == expected.merges and found.vocab == expected.vocab
    if kept:
        assert sorted(os.listdir(counts)) == [*(f"00000{number}.counts" for number in range(4)), "plan.json"]
    options["begin"] = END if kept else None
    n_ids = cluster.encode(client, paths, found, str(tmp_path / "ids"), end=END, **options)
    shards = json.loads((tmp_path / "ids" / "index.json").read_text())["shards"]
    assert [shard["shard"] for shard in shards] == [f"{number}.{kind}.npy" for number in range(4)]
    for number, shard in enumerate(shards):
        expected.encode_files(str(corpus / f"{number}.{kind}"), tmp_path / "one.npy", end=END, **options)
        assert read_ids(tmp_path / "ids" / shard["shard"]) == read_ids(tmp_path / "one.npy")
        assert shard["ids"] == len(read_ids(tmp_path / "one.npy")[1])
    assert n_ids == sum(shard["ids"] for shard in shards)


def test_a_column_is_for_the_files_that_have_columns_and_an_error_if_none_has(tmp_path):
    """Each file is a task, which doesn't know of the others."""
    (tmp_path / "a.jsonl").write_text('{"body": "low lower"}\n')
    (tmp_path / "b.txt").write_text("low lowest")
    paths = [str(tmp_path / "a.jsonl"), str(tmp_path / "b.txt")]
    expected = Tokenizer.train(texts=["low lower", "low lowest"], vocab_size=260)
    found = cluster.train(None, paths, 260, task_bytes=1, column="body")
    assert found.merges == expected.merges
    for shards in ".npy", ".parquet" if importlib.util.find_spec("pyarrow") else ".npy":
        n_ids = cluster.encode(None, paths, found, str(tmp_path / "ids"), column="body", shards=shards)
        assert n_ids == sum(map(len, expected.encode_batch(["low lower", "low lowest"])))
    for call in (lambda: cluster.train(None, paths[1:], 260, column="body"),
                 lambda: cluster.encode(None, paths[1:], found, str(tmp_path / "ids"), column="body")):  # fmt: skip
        with pytest.raises(ValueError, match="^no input has a column 'body': "):
            call()


def test_a_second_start_counts_only_what_is_missing_and_refuses_other_counts(corpus, tmp_path):
    paths, folder = sorted(map(str, corpus.glob("?.txt"))), tmp_path / "counts"
    train = functools.partial(cluster.train, None, vocab_size=1000, counts=str(folder))
    train(paths, special_tokens=[END], task_bytes=1)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    (folder / "000002.counts").unlink()
    assert train(paths, special_tokens=[END]).merges == one_machine(corpus, "txt").merges  # with the tasks of the first
    changed = [path.name for path in folder.iterdir() if path.stat().st_mtime_ns != before[path.name]]
    assert changed == ["000002.counts"]
    # a threshold is no part of counts
    assert train(paths, special_tokens=[END], min_word_count=3).merges == one_machine(corpus, "txt", 3).merges
    assert not train(paths, special_tokens=[END], min_word_count=2**64).merges
    for other, options in [
        ("special_tokens", {}),
        ("pattern", {"special_tokens": [END], "pattern": "o200k"}),
        ("special_tokens and errors", {"errors": "replace"}),
        ("task_bytes", {"special_tokens": [END], "task_bytes": 2}),
        ("buckets", {"special_tokens": [END], "buckets": 99}),
    ]:
        with pytest.raises(ValueError, match=f"counts has counts with other {other}; delete it, or name another folder$"):
            train(paths, **options)
    with pytest.raises(ValueError, match="with other files; "):
        train(paths[1:], special_tokens=[END])
    data = (folder / "000001.counts").read_bytes()
    (folder / "000001.counts").write_bytes(bytes(32) + data[32:])
    with pytest.raises(ValueError, match="000001.counts has counts of other files or options: delete it .worker "):
        train(paths, special_tokens=[END])


def test_a_changed_file_is_another_file(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("low low lower")
    train = functools.partial(cluster.train, None, text, 258, counts=str(tmp_path / "counts"))
    assert train().merges == [(b"o", b"w"), (b"l", b"ow")]
    os.utime(text, (1, 1))
    with pytest.raises(ValueError, match="with other files; "):
        train()


def test_shards_are_made_again_only_for_another_tokenizer_file_or_option(corpus, tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.txt").write_bytes((corpus / f"{number}.txt").read_bytes())
    tokenizer, ids = one_machine(corpus, "txt"), tmp_path / "ids"
    made = lambda: {path.name: path.stat().st_mtime_ns for path in sorted(ids.glob("*.npy"))}  # noqa: E731
    encode = functools.partial(cluster.encode, None, str(tmp_path / "?.txt"), folder=str(ids))
    n_ids = encode(tokenizer=tokenizer)
    first = made()
    assert encode(tokenizer=tokenizer) == n_ids and made() == first
    (ids / "1.txt.npy").unlink()
    assert encode(tokenizer=tokenizer) == n_ids and made().keys() == first.keys()
    second = made()
    assert second["0.txt.npy"] == first["0.txt.npy"]
    encode(tokenizer=one_machine(corpus, "txt", 3))
    third = made()
    assert not set(second.values()) & set(third.values())
    encode(tokenizer=tokenizer)
    assert encode(tokenizer=tokenizer, end=END) > n_ids
    fourth = made()
    os.utime(tmp_path / "0.txt", (1, 1))
    encode(tokenizer=tokenizer, end=END)
    assert [name for name in fourth if made()[name] != fourth[name]] == ["0.txt.npy"]
    # a run that was killed between the shard and its .json
    (ids / "1.txt.npy.json").unlink()
    encode(tokenizer=tokenizer, end=END)
    assert [name for name in fourth if made()[name] != fourth[name]] == ["0.txt.npy", "1.txt.npy"]
    index = json.loads((ids / "index.json").read_text())
    assert index["tokenizer"] == json.loads((ids / "0.txt.npy.json").read_text())["tokenizer"]
    assert index["dtype"] == "uint16" and index["end"] == END


def test_a_shard_with_another_begin_is_made_again(corpus, tmp_path):
    tokenizer = Tokenizer.train(CORPUS, 300, [END, "<s>"])
    encode = functools.partial(cluster.encode, None, str(corpus / "1.txt"), tokenizer, str(tmp_path))
    n_ids = len(tokenizer.encode_ordinary((corpus / "1.txt").read_text(encoding="utf-8")))
    encode()
    for begin, end, more in ((END, None, 1), ("<s>", None, 1), ("<s>", END, 2)):
        assert encode(begin=begin, end=end) == n_ids + more
        ids = read_ids(tmp_path / "1.txt.npy")[1]
        assert ids[0] == tokenizer.special_ids[begin] and (end is None or ids[-1] == tokenizer.special_ids[end])
        index = json.loads((tmp_path / "index.json").read_text())
        assert (index["begin"], index["end"]) == (begin, end)
    with pytest.raises(ValueError, match=r"begin must be a special token of the model \(.*, <s>\), not '<t>'"):
        encode(begin="<t>")


@pytest.mark.parametrize("kind", FORMATS)
def test_shards_in_parquet_have_a_row_for_each_text(corpus, tmp_path, kind):
    parquet = need("pyarrow.parquet")
    tokenizer, options = one_machine(corpus, "txt"), options_of(kind)
    options |= {"begin": END, "end": END}
    n_ids = cluster.encode(None, str(corpus / f"1.{kind}"), tokenizer, str(tmp_path), shards=".parquet", **options)
    table = parquet.read_table(tmp_path / f"1.{kind}.parquet")
    assert str(table.schema.field("ids").type) == "large_list<element: uint16>"
    rows = table["ids"].to_pylist()
    texts = [json.loads(line)["body"] for line in (corpus / "1.jsonl").open()]
    texts = ["".join(texts)] if kind == "txt" else texts
    end = tokenizer.special_ids[END]
    assert rows == [[end, *tokenizer.encode_ordinary(text), end] for text in texts]
    assert n_ids == sum(map(len, rows))


def test_a_large_text_is_one_row_and_ids_beyond_65535_are_uint32(tmp_path):
    parquet = need("pyarrow.parquet")
    text = CORPUS.read_text(encoding="utf-8") * 25  # more than a slice
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    tokenizer = Tokenizer({**dict(enumerate(bpe.BYTES)), 70_000: b"th"}, [(b"t", b"h")])
    cluster.encode(None, str(tmp_path / "text.txt"), tokenizer, str(tmp_path), shards=".parquet")
    table = parquet.read_table(tmp_path / "text.txt.parquet")
    assert table["ids"].to_pylist() == [tokenizer.encode(text)]
    assert str(table.schema.field("ids").type) == "large_list<element: uint32>"


@pytest.mark.parametrize(("name", "text", "rows", "rows_with_end"), [
    ("empty.txt", "", [[]], [[256]]),  # one text, which is empty
    ("empty.jsonl", "", [], []),  # no text
    ("empty_text.jsonl", '{"body": ""}\n', [[]], [[256]]),
])
def test_an_empty_file_has_the_same_ids_in_parquet_in_npy_and_in_the_index(tmp_path, name, text, rows, rows_with_end):
    parquet = need("pyarrow.parquet")
    (tmp_path / name).write_text(text)
    tokenizer, column = Tokenizer.train(CORPUS, 300, [END]), None if name.endswith(".txt") else "body"
    for end, expected in (None, rows), (END, rows_with_end):
        for shards in ".parquet", ".npy":
            n_ids = cluster.encode(None, tmp_path / name, tokenizer, str(tmp_path), end=end, shards=shards, column=column)
            index = json.loads((tmp_path / "index.json").read_text())
            assert [n_ids, index["ids"], index["shards"][0]["ids"]] == [sum(map(len, expected))] * 3
        assert parquet.read_table(tmp_path / f"{name}.parquet")["ids"].to_pylist() == expected
        assert read_ids(tmp_path / f"{name}.npy")[1] == [token for row in expected for token in row]


# ------------------------------
# Counts
# ------------------------------

def test_counts_keep_empty_words_large_numbers_and_any_bytes():
    words = {b"": 1, bytes(range(256)): 2**55 - 1, b"\0": 7}  # 2**63 - 249 bytes
    table = counting.WordTable()
    cluster.add_part(table, cluster.pack(words, array("Q", words.values())))
    assert table == words


@pytest.mark.parametrize(("sizes", "workers", "folder", "buckets", "n_tasks"), [
    ([1000] * 10, 4, "", 4, 1),  # a little text is one task
    ([100 << 20] * 10, 2, "", 1, 10),  # 125 MB for a task
    ([100 << 20] * 10, 2, "counts", 1, 10),
    # 1.15 * (2**30 * 1000)**0.75 = 1.213e9 words, times 106 bytes = 245.3 times 500 MB; a task has 1 GB
    ([1 << 30] * 1000, 100, "counts", 246, 1000),
    ([1 << 30] * 1000, 100, "", 246, 500),  # about 100,000 parts: a task has 2.5 GB, so two files
])
def test_tasks_and_buckets_follow_from_sizes_and_workers(sizes, workers, folder, buckets, n_tasks, tmp_path):
    files = [urls.File(f"/{number}", size, "") for number, size in enumerate(sizes)]
    folder = str(tmp_path / folder) if folder else ""
    job = cluster.Job("counting", versions(), choices.Options().checked(), folder)
    planned, divided = cluster.planned(job, files, workers, {"buckets": None, "task_bytes": None})
    assert [path for task in divided for path in task] == [file.path for file in files]
    assert (planned.n_buckets, len(divided)) == (max(buckets, workers), n_tasks) and planned.n_tasks == n_tasks


# ------------------------------
# URLs
# ------------------------------

@pytest.fixture
def web(corpus):
    """A web server for the corpus: its address."""
    need("aiohttp")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(corpus)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_each_engine_reads_urls_and_writes_to_them(client, corpus, tmp_path, web):
    need("fsspec")
    paths = [f"{web}/{number}.txt" for number in range(4)]
    counts, ids = (tmp_path / "counts").as_uri(), (tmp_path / "ids").as_uri()
    for _ in range(2):
        found = cluster.train(client, paths, 1000, [END], counts=counts, task_bytes=1)
        assert found.merges == one_machine(corpus, "txt").merges
        n_ids = cluster.encode(client, paths, found, ids)
    assert n_ids == len(found.encode((corpus / "0.txt").read_text(encoding="utf-8"))) + sum(
        len(read_ids(tmp_path / "ids" / f"{number}.txt.npy")[1]) for number in range(1, 4)
    )
    assert len(os.listdir(tmp_path / "ids")) == 9 and len(os.listdir(tmp_path / "counts")) == 5


@pytest.mark.parametrize("kind", FORMATS)
def test_an_object_store_has_texts_counts_and_shards(corpus, tmp_path, kind):
    fsspec, distributed = need("fsspec"), need("distributed")
    store = fsspec.filesystem("memory")  # that of this process, so workers are threads of it
    store.store.clear()
    for number in range(4):
        store.pipe(f"/bucket/web/{number}.{kind}", (corpus / f"{number}.{kind}").read_bytes())
    options = options_of(kind)
    paths, counts = f"memory://bucket/web/*.{kind}", "memory://bucket/counts"
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
        for _ in range(2):
            found = cluster.train(client, paths, 1000, [END], counts=counts, task_bytes=1, **options)
            assert found.merges == one_machine(corpus, kind).merges
        n_ids = cluster.encode(client, paths, found, "memory://bucket/ids", **options)
        names = [path.rpartition("/")[2] for path in store.ls("/bucket/ids", detail=False)]
        assert sorted(names) == sorted([f"{number}.{kind}.npy{end}" for number in range(4) for end in ("", ".json")] + ["index.json"])
        found.encode_files(str(corpus / f"0.{kind}"), tmp_path / "one.npy", **options)
        assert store.cat(f"/bucket/ids/0.{kind}.npy") == (tmp_path / "one.npy").read_bytes()
        assert n_ids == json.loads(store.cat("/bucket/ids/index.json"))["ids"]
        store.pipe(f"/bucket/web/3.{kind}", b"low")  # another file now
        with pytest.raises(ValueError, match="memory://bucket/counts has counts with other files; "):
            cluster.train(client, paths, 1000, [END], counts=counts, **options)
    store.store.clear()


def test_two_dots_after_a_link_mean_the_folder_above_where_it_leads(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("there/inner")
    (tmp_path / "text.txt").write_text("another file")
    (tmp_path / "there" / "text.txt").write_text("low")
    tokenizer = Tokenizer.train(CORPUS, 300, [END])
    for folder in ("link/../ids", "link/.."):
        assert cluster.encode(None, "link/../text.txt", tokenizer, folder) == len(tokenizer.encode("low"))
        assert read_ids(os.path.realpath(folder) + "/text.txt.npy")[1] == tokenizer.encode("low")
    assert os.listdir(tmp_path / "there" / "ids") and not (tmp_path / "ids").exists()


def test_what_is_read_is_never_written_if_urls_name_it(tmp_path):
    store = need("fsspec").filesystem("memory")
    store.store.clear()
    text, tokenizer = b"low low lower", Tokenizer({}, [])
    (tmp_path / "index.json").write_bytes(text)
    (tmp_path / "plan.json").write_bytes(text)
    for name in ("index.json", "plan.json"):
        store.pipe(f"/bucket/{name}", text)
        names = [
            ("memory://bucket/*.json", "memory:///bucket/"), ("memory:///bucket/" + name, "memory://bucket"),
            (str(tmp_path / name), tmp_path.as_uri()), ((tmp_path / name).as_uri(), str(tmp_path)),
        ]  # fmt: skip
        for path, folder in names:
            with pytest.raises(ValueError, match="is the same file as"):
                if name == "plan.json":
                    cluster.train(None, path, 300, counts=folder)
                else:
                    cluster.encode(None, path, tokenizer, folder)
        assert store.cat(f"/bucket/{name}") == (tmp_path / name).read_bytes() == text
    assert len(store.find("/bucket")) == len(os.listdir(tmp_path)) == 2
    store.store.clear()


def test_errors_name_the_url(corpus, web):
    with pytest.raises(OSError, match=f"^{web}/none.txt: No such file$"):
        cluster.train(None, [f"{web}/0.txt", f"{web}/none.txt"], 300)
    with pytest.raises(OSError, match=r"^/nowhere/none.txt: No such file$"):
        cluster.train(None, ["/nowhere/none.txt"], 300)


# ------------------------------
# The command line, and the page
# ------------------------------

@contextlib.contextmanager
def url_of(client):
    """The URL for --cluster that means the cluster of a client."""
    if client is None:
        yield "local"
    elif hasattr(client, "scheduler_info"):
        yield client.scheduler.address.replace("tcp://", "dask://")
    elif hasattr(client, "get_runtime_context"):
        need("grpc")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        address = client.get_runtime_context().gcs_address
        server = [sys.executable, "-m", "ray.util.client.server", "--mode", "legacy", "--address", address, "--host", "127.0.0.1", "--port", str(port)]
        with subprocess.Popen(server, stderr=subprocess.DEVNULL) as process:
            try:
                yield f"ray://127.0.0.1:{port}"
            finally:
                process.kill()
    else:
        pytest.skip("spark:// needs a master and a worker, which take a minute to start")


def test_the_command_line_trains_and_encodes_with_each_url(client, corpus, tmp_path):
    paths, expected = str(corpus / "?.jsonl"), one_machine(corpus, "jsonl")
    with url_of(client) as url:

        def run(*arguments):
            command = [sys.executable, "-m", "bpe_more", paths, *arguments, "--cluster", url, "--column", "body"]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
            assert done.returncode == 0, done.stderr
            return done.stderr

        for _ in range(2 if client is None else 1):  # the second one only adds
            output = run("1000", "--counts", "counts", "--task-bytes", "1", "--buckets", "3")
            assert "1,000 = 256 bytes + 1 special token + 743 merges" in output
        output = run("--encode", "ids", "--end", END)
    assert len(os.listdir(tmp_path / "counts")) == 5
    found = Tokenizer.load(tmp_path / "bpeModel")
    assert found.merges == expected.merges and found.vocab == expected.vocab
    n_ids = json.loads((tmp_path / "ids" / "index.json").read_text())["ids"]
    assert f"encoded        {n_ids:,} tokens" in output
    for number in range(4):
        expected.encode_files(str(corpus / f"{number}.jsonl"), tmp_path / "one.npy", end=END, column="body")
        assert (tmp_path / "ids" / f"{number}.jsonl.npy").read_bytes() == (tmp_path / "one.npy").read_bytes()


@pytest.mark.parametrize(("arguments", "message"), [
    (["text.txt", "300", "--counts", "x"], "--counts needs --cluster"),
    (["text.txt", "300", "--task-bytes", "1"], "--task-bytes needs --cluster"),
    (["-", "300", "--cluster", "local"], "--cluster can't read standard input: write the text to files"),
    (["text.txt", "300", "--cluster", "local", "--explain", "1"], "--explain, --compare and --extend don't work with --cluster"),
    (["text.txt", "300", "--cluster", "dsk://x"], "--cluster must be dask://HOST:PORT, ray://HOST:PORT, spark://HOST:PORT or local, not 'dsk://x'"),
    (["none*.txt", "300", "--cluster", "local"], "none*.txt: no file has such a name"),
    (["text.txt", "300", "--cluster", "local", "--buckets", "0"], "buckets must be a positive integer, not 0"),
    ([".", "300", "--cluster", "local"], ". is a folder; name its files: ./*.txt"),
])
def test_mistakes_on_the_command_line_are_one_line_with_a_way_out(tmp_path, monkeypatch, main, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("low lower lowest")
    assert main(*arguments) == (2, "", f"error: {message}\n")


def test_a_cluster_that_cannot_be_reached_is_named(monkeypatch):
    need("distributed")
    assert engines.SCHEDULER_SECONDS <= 5  # Dask itself would wait for 30 seconds
    monkeypatch.setattr(engines, "SCHEDULER_SECONDS", 0.3)
    start = time.monotonic()
    with pytest.raises(OSError, match="^dask://127.0.0.1:1: .*imed out"), engines.connected("dask://127.0.0.1:1"):
        pass
    assert time.monotonic() - start < 15


def test_a_client_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="^client must be a dask.distributed.Client, the module ray, .* not 'x'$"):
        cluster.train("x", "text.txt", 300)


def test_progress_shows_tasks_bytes_words_and_the_memory_of_the_driver(corpus, capsys):
    cluster.train(None, str(corpus / "?.txt"), 300, task_bytes=1, progress=True)
    assert re.search(r"counting, 0 MB, 0 words; driver [\d,]+ MB: 0 of 4 tasks \(0%\), 0 tasks/s", capsys.readouterr().err)


def test_the_module_and_the_page_are_short():
    assert len((HERE / "bpe_more" / "cluster" / "__init__.py").read_text(encoding="utf-8").splitlines()) <= 350
    assert len((HERE / "docs" / "cluster.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_a_plan_or_a_description_that_is_not_ours_may_be_that_of_another_program(corpus, tmp_path):
    """So it may have to stay, and the message names the other way out."""
    train = functools.partial(cluster.train, None, str(corpus / "1.txt"), 300, counts=str(tmp_path / "counts"))
    encode = functools.partial(cluster.encode, None, str(corpus / "1.txt"), one_machine(corpus, "txt"), str(tmp_path / "ids"))
    for run, name in (train, "counts/plan.json"), (encode, "ids/1.txt.npy.json"):
        run()
        (tmp_path / name).write_text('{"name": "x"}')
        with pytest.raises(ValueError, match=rf"^[^\n]*/{name} is damaged, or another program's; delete it, or name another folder\b"):
            run()


def test_a_shard_whose_description_lacks_its_number_of_ids_is_made_again(corpus, tmp_path):
    encode = functools.partial(cluster.encode, None, str(corpus / "1.txt"), one_machine(corpus, "txt"), str(tmp_path / "ids"))
    n_ids = encode()
    name = str(tmp_path / "ids" / "1.txt.npy.json")
    entry = urls.read_json(name, ("shard", "ids"))
    urls.write_json(name, {key: value for key, value in entry.items() if key != "ids"})
    assert encode() == n_ids and urls.read_json(name, ("shard",))["ids"] == n_ids


@pytest.mark.parametrize("shards", [".npy", ".parquet"])
def test_a_shard_of_another_size_is_made_again(corpus, tmp_path, shards):
    if shards == ".parquet":
        need("pyarrow")
    tokenizer = one_machine(corpus, "txt")
    encode = functools.partial(cluster.encode, None, str(corpus / "1.txt"), tokenizer, str(tmp_path), shards=shards)
    n_ids = encode()
    path = tmp_path / f"1.txt{shards}"
    data = path.read_bytes()
    for other in (data[:100], b"", data + b"\0"):
        path.write_bytes(other)
        assert encode() == n_ids and path.read_bytes() == data
    # a description of version 0.8 has neither a size nor a digest
    about = json.loads((tmp_path / f"1.txt{shards}.json").read_text())
    del about["digest"], about["bytes"]
    (tmp_path / f"1.txt{shards}.json").write_text(json.dumps(about))
    path.write_bytes(data[:100])
    assert encode() == n_ids and path.read_bytes() == data


def test_random_damage_gives_the_right_result_or_an_error_with_the_file():
    outcomes = damaged.check(range(200), 2)
    assert min(outcomes.values()) > 20 and sum(outcomes.values()) == 200


def test_buckets_and_task_bytes_must_be_integers(corpus, tmp_path):
    path = str(corpus / "1.txt")
    for name in ("buckets", "task_bytes"):
        for value in ("3", 0, -1, 3.0, True):
            with pytest.raises(ValueError, match=f"^{name} must be a positive integer, not {value!r}$"):
                cluster.train(None, path, 300, counts=str(tmp_path / "counts"), **{name: value})


def test_a_cluster_of_dask_and_a_closed_client_are_refused(corpus):
    distributed = need("distributed")
    with distributed.LocalCluster(n_workers=0, dashboard_address=":0") as local:
        with pytest.raises(TypeError, match=r"^client must be a dask.distributed.Client, .*; connect to it: Client\(cluster\)$"):
            cluster.train(local, str(corpus / "1.txt"), 300)
        with distributed.Client(local) as client:
            pass
        with pytest.raises(ValueError, match=r"^the Dask client is closed; connect a new one: Client\(address\)$"):
            cluster.train(client, str(corpus / "1.txt"), 300)
    with pytest.raises(TypeError, match="^client must be a dask.distributed.Client, "):
        cluster.train(distributed, str(corpus / "1.txt"), 300)


def test_a_url_whose_package_is_missing_is_named():
    fsspec = need("fsspec")
    fsspec.register_implementation("far", "no_such_package.FarFileSystem", errtxt="Install no_such_package")
    with pytest.raises(ImportError, match="^far://bucket/a.txt: Install no_such_package$"):
        cluster.train(None, "far://bucket/a.txt", 300)
