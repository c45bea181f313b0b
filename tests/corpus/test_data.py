"""Text in Arrow's memory and in files of several kinds gives what the same texts give as a list of strings.

    pytest -q tests/corpus/test_data.py

It needs the packages pyarrow, zstandard, orjson, polars, pandas, duckdb and datasets; without one, its tests are skipped,
but with BPE_REQUIRE_PACKAGES they fail.
"""

import errno
import gzip
import io
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bpe_more import choices, training
from bpe_more.corpus import reading, slicing
from bpe_more.tokenizer import Tokenizer
from shared import BAD_UTF8, in_both_engines, least_seconds, one_line, read_ids, wait_for  # noqa: F401 (tests run once)
from test_bpe import END, FIXTURE, HERE, need

pa = need("pyarrow")
pq = need("pyarrow.parquet")
ipc, feather, arrow_dataset = map(need, ("pyarrow.ipc", "pyarrow.feather", "pyarrow.dataset"))
zstandard = need("zstandard")
need("orjson")
pl, pd, duckdb, datasets = map(need, ("polars", "pandas", "duckdb", "datasets"))

import bpe  # noqa: E402
from bpe_more.corpus import arrow, data  # noqa: E402 (which imports orjson)

TEXTS = ["", *FIXTURE[:6_000].splitlines(keepends=True), "", f"字 {END} é\U0001f600", "", "no end"]
MODEL = training.train_bpe(texts=TEXTS, vocab_size=400, special_tokens=[END])


@pytest.fixture
def tokenizer(engine):
    """A tokenizer that is made after the engine is chosen."""
    return Tokenizer(*MODEL, [END])


def outcome(call, *arguments, **options):
    """What a call returns, or its error."""
    try:
        return call(*arguments, **options)
    except ValueError as error:
        return str(error)


# --- Arrow -----------------------------------------------------------------------------------------------------------

ARRAYS = {
    **{name: (lambda texts, name=name: pa.array(texts, name)) for name in arrow.LAYOUTS if name != "null"},
    "dictionary": lambda texts: pa.array(texts, "string").dictionary_encode(),
    "dictionary of large_string": lambda texts: pa.array(texts, "large_string").dictionary_encode(),
}
LIBRARIES = {
    **ARRAYS,
    "slice": lambda texts: pa.array(["é", None, *texts, None])[2:-1],
    "chunks": lambda texts: pa.chunked_array([texts[:5], [], texts[5:6], texts[6:]], "string"),
    "batch": lambda texts: pa.record_batch({"text": texts}),
    "table": lambda texts: pa.table({"text": texts}),
    "slice of a table": lambda texts: pa.table({"text": ["", *texts, ""]}).slice(1, len(texts)),
    "reader": lambda texts: pa.table({"text": texts}).to_reader(max_chunksize=7),
    "generator of batches": lambda texts: iter(pa.table({"text": texts}).to_batches(max_chunksize=7)),
    "list of arrays": lambda texts: [pa.array(texts[:9]), pa.array(texts[9:], "large_string")],
    "polars": pl.Series,
    "polars, categories": lambda texts: pl.Series(texts, dtype=pl.Categorical),
    "polars, a frame": lambda texts: pl.DataFrame({"text": texts}),
    "pandas": pd.Series,
    "pandas, in Python's memory": lambda texts: pd.Series(texts, dtype="string[python]"),
    "pandas, objects": lambda texts: pd.Series(texts, dtype=object),
    "pandas, categories": lambda texts: pd.Series(texts, dtype="category"),
    "pandas, a frame": lambda texts: pd.DataFrame({"text": texts}),
    "duckdb": lambda texts: duckdb.from_arrow(pa.table({"text": pa.array(texts, "string")})).select("text"),
    "datasets": lambda texts: datasets.Dataset.from_dict({"text": texts}).with_format("arrow").iter(100),
    "datasets, shuffled back": lambda texts: datasets.Dataset.from_dict({"text": texts[::-1]}).select(
        range(len(texts) - 1, -1, -1)).with_format("arrow"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_arrow_gives_what_a_list_of_strings_gives(tmp_path, engine, tokenizer, name):
    new = lambda: LIBRARIES[name](TEXTS)  # noqa: E731 (an iterator is used up by one call)
    options = {"special_tokens": [END], "engine": engine}
    assert training.train_bpe(texts=new(), vocab_size=400, **options) == MODEL
    assert Tokenizer.train(texts=new(), vocab_size=300, **options).merges == MODEL[1][: 300 - 257]
    assert training.count_words(texts=new(), **options) == training.count_words(texts=TEXTS, **options)
    expected = [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch(new()) == expected
    ids, offsets = tokenizer.encode_arrays(new())
    assert list(ids) == list(itertools.chain(*expected)) and list(offsets) == list(itertools.accumulate(map(len, expected), initial=0))
    for end, texts in (None, expected), (END, [[*tokenizer.encode_ordinary(text), tokenizer.special_ids[END]] for text in TEXTS]):
        tokenizer.encode_files(None, tmp_path / "ids.npy", texts=new(), end=end, engine=engine)
        assert read_ids(tmp_path / "ids.npy")[1] == list(itertools.chain(*texts))


@pytest.mark.parametrize("name", ARRAYS)
def test_random_slices_and_chunks_give_what_their_strings_give(engine, tokenizer, monkeypatch, name):
    rng = random.Random(name)
    monkeypatch.setattr("bpe_more.corpus.reading.BATCH_BYTES", 2000)  # so that a chunk makes several slices
    for _ in range(5):
        texts = ["".join(rng.choices(["a", " ", "the", "é", "字", "\U0001f600", END], k=rng.choice([0, 1, 3, 50]))) for _ in range(rng.choice([0, 3, 300]))]
        whole, cuts = ARRAYS[name](texts), sorted(rng.choices(range(len(texts) + 1), k=rng.randint(0, 9)))
        chunks = [whole.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, len(texts)])]
        for value in (pa.chunked_array(chunks), iter(chunks), whole.slice(len(texts) // 3)):
            expected = texts if not isinstance(value, pa.Array) else texts[len(texts) // 3 :]
            assert tokenizer.encode_batch(value) == list(map(tokenizer.encode, expected))
        assert training.count_words(texts=chunks, engine=engine) == training.count_words(texts=texts, engine=engine)
    assert not tokenizer.encode_batch(ARRAYS[name]([])) and training.train_bpe(texts=[whole[:0], pa.array(["a"])], vocab_size=256)


@pytest.mark.parametrize("name", [*ARRAYS, "chunks", "polars", "pandas", "duckdb"])
def test_a_null_is_an_error_with_its_number_as_none_in_a_list_is(engine, tokenizer, name):
    texts = ["a b"] * 3000 + [None] + ["c"] * 20
    for call in (lambda texts, **o: training.train_bpe(texts=texts, vocab_size=257, engine=engine, **o), tokenizer.encode_batch):
        told, of_list = outcome(call, LIBRARIES[name](texts)), outcome(call, texts)
        assert told == "texts[3000]: text must be a str, not null; errors='replace' makes it an empty one"
        assert of_list == "texts[3000]: text must be a str, not NoneType"
    assert tokenizer.encode_batch(LIBRARIES[name](texts), errors="replace") == tokenizer.encode_batch([text or "" for text in texts])


def test_the_bytes_behind_a_null_are_no_text(tokenizer):
    """Arrow allows any bytes there."""
    whole = pa.array(["a", "secret", "b"])
    hidden = pa.Array.from_buffers(pa.string(), 3, [pa.py_buffer(b"\x05"), *whole.buffers()[1:]])
    assert hidden.to_pylist() == ["a", None, "b"]
    assert tokenizer.encode_batch(hidden, errors="replace") == [[97], [], [98]]


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("name", ["binary", "large_binary", "binary_view", "dictionary"])
def test_invalid_utf8_is_an_error_with_its_row_and_byte(engine, tokenizer, name, bad):
    texts = [b"a", b"b", b"xy" + bad, b"c"]
    array = pa.array(texts, "binary").dictionary_encode() if name == "dictionary" else pa.array(texts, name)
    for call in (lambda texts, **o: training.train_bpe(texts=texts, vocab_size=257, engine=engine, **o), tokenizer.encode_batch, tokenizer.encode_arrays):
        told = outcome(call, array)
        assert told.startswith("texts[2]: 'utf-8' codec can't decode byte") and "position 2" in told and told.endswith("makes it U+FFFD")
        assert call(array, errors="replace") == call([text.decode("utf-8", "replace") for text in texts])


def test_a_byte_without_a_token_is_the_same_error_as_in_a_list(engine):
    small = Tokenizer({0: b"a", 1: b"b", 2: b"ab"}, [(b"a", b"b")])
    texts = ["ab"] * 2500 + ["abc"] + ["z"]
    for name in ("string", "string_view", "polars", "chunks"):
        assert outcome(small.encode_batch, LIBRARIES[name](texts)) == outcome(small.encode_batch, texts) != []


@pytest.mark.parametrize(("texts", "text"), [
    (pa.array([1, 2]), r"texts\[0\]: text must be a str, not int64"),
    (pa.table({"text": ["a"], "n": [1]}), r"texts must be one column, not text, n; select one of them, as in texts=table\['text'\]"),
    (pl.DataFrame({"text": ["a"], "n": [1]}), "texts must be one column, not text, n"),
    ([pa.array(["a"]), "b"], "after a column of Arrow, texts has a str"), (["b", pa.array(["a"])], r"texts\[1\]: text must be a str, not StringArray"),
    ([pa.array(["a"] * 5), pa.array([1.5])], r"texts\[5\]: text must be a str, not double"),
    (pa.array([["a"]]), r"texts\[0\]: text must be a str, not list<"), (pd.Series([1, 2]), r"texts\[0\]: text must be a str, not int"),
    (datasets.Dataset.from_dict({"text": ["a", "b"]}).select([1]).data, r'other rows; pass its dataset.with_format\("arrow"\)'),
])  # fmt: skip
def test_what_is_no_column_of_text_is_an_error(texts, text):
    with pytest.raises(ValueError, match=text):
        training.train_bpe(texts=texts, vocab_size=300)


ROWS_OF_DATASETS = datasets.Dataset.from_dict({"n": [1, 2], "text": ["a b", "c"]})
TABLE = pa.table({"n": [1, 2], "text": ["a b", "c"]})
WITHOUT_A_COLUMN = {  # name -> an object with columns, from a folder with a.parquet
    "LazyFrame": lambda: pl.LazyFrame(TABLE.to_pydict()),
    "FileSystemDataset": lambda: arrow_dataset.dataset("a.parquet"),
    "InMemoryDataset": lambda: arrow_dataset.dataset(TABLE),
    "ParquetFile": lambda: pq.ParquetFile("a.parquet"),
    "ParquetDataset": lambda: pq.ParquetDataset("a.parquet"),
    "Dataset": lambda: ROWS_OF_DATASETS,
    "IterableDataset": lambda: ROWS_OF_DATASETS.to_iterable_dataset(),
    "DataFrame": lambda: pytest.importorskip("dask.dataframe").from_pandas(TABLE.to_pandas(), npartitions=1),
    "DatasetDict": lambda: datasets.DatasetDict({"train": ROWS_OF_DATASETS, "test": ROWS_OF_DATASETS}),
    "IterableDatasetDict": lambda: datasets.IterableDatasetDict({"train": ROWS_OF_DATASETS.to_iterable_dataset()}),
}


@pytest.mark.parametrize("name", WITHOUT_A_COLUMN)
def test_an_object_with_columns_is_an_error_with_the_call_that_gives_one(tmp_path, monkeypatch, tokenizer, name):
    """The call in the error is run: it gives the two texts."""
    monkeypatch.chdir(tmp_path)
    pq.write_table(TABLE, "a.parquet")
    texts = WITHOUT_A_COLUMN[name]()
    told = []
    for call in (lambda texts: training.train_bpe(texts=texts, vocab_size=300), tokenizer.encode_batch, tokenizer.encode_arrays):
        with pytest.raises(TypeError, match=rf"^texts must be a column of strings, not an? {name}; pass .*texts") as caught:
            call(texts)
        told.append(str(caught.value))
    assert len(set(told)) == 1 and ("'train'" in told[0]) == ("Dict" in name)
    way = told[0].rpartition("as in ")[2].rpartition("; pass ")[2]
    assert tokenizer.encode_batch(eval(way, {"texts": texts})) == list(map(tokenizer.encode, ["a b", "c"]))


def test_a_folder_of_datasets_is_an_error_that_names_its_files_which_are_read(tmp_path, monkeypatch, error):
    monkeypatch.chdir(tmp_path)
    single = {n: bytes([n]) for n in range(256)}
    ROWS_OF_DATASETS.select([1, 0]).save_to_disk("saved")
    datasets.DatasetDict({"train": ROWS_OF_DATASETS}).save_to_disk("both")
    for folder, files, texts in ("saved", "data-*.arrow", ["c", "a b"]), ("both", os.path.join("*", "data-*.arrow"), ["a b", "c"]):
        told = f"{folder} is a folder from save_to_disk; name its files ({os.path.join(folder, files)})"
        assert error(folder, 300) == f"error: {told}"
        assert outcome(training.count_words, folder) == told
        paths = list(Path(folder).glob(files))
        assert Tokenizer(single, []).encode_files(paths, "ids.npy") and read_ids("ids.npy")[1] == list(b"".join(map(str.encode, texts)))


@pytest.mark.parametrize("offsets", [[0, 5, 3], [0, 2, 2**31 - 1], [-9, 0, 2], [2, 1, 0], [9, 9, 9]])
def test_offsets_that_lead_out_of_the_text_are_an_error_before_c_reads_it(offsets, tokenizer):
    places = bytearray(12)
    array = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(places), pa.py_buffer(b"abc")])
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1]), array)
    places[:] = b"".join(place.to_bytes(4, sys.byteorder, signed=True) for place in offsets)  # pyarrow would refuse them before
    for value in (array, words):
        with pytest.raises(ValueError, match=r"^texts\[0\]: "):
            tokenizer.encode_batch(value)


def test_a_series_is_read_as_strings_without_pyarrow(tokenizer, monkeypatch):
    find = bpe.importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "pyarrow" else find(name))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert tokenizer.encode_batch(pl.Series(TEXTS)) == tokenizer.encode_batch(TEXTS)
    with pytest.raises(ImportError, match=r"^text in Arrow's memory needs the package pyarrow: pip install pyarrow$"):
        tokenizer.encode_batch(pl.DataFrame({"text": TEXTS}))


def test_surrogates_in_a_series_of_objects_are_those_of_a_list(tokenizer):
    texts = ["a", "\ud83d\ude00", "\ud800"]
    series = pd.Series(texts, dtype=object)
    assert outcome(tokenizer.encode_batch, series) == outcome(tokenizer.encode_batch, texts)
    assert tokenizer.encode_batch(series, errors="replace") == tokenizer.encode_batch(texts, errors="replace")


def test_many_small_arrays_are_read_together(monkeypatch):
    """Each was a task for a worker, of 0.3 ms."""
    monkeypatch.setattr(slicing, "SLICE_TEXTS", 1000)
    texts = [FIXTURE[place : place + 9] for place in range(1500)]
    arrays = [pa.array([text]) for text in texts]
    for columns in ([pa.chunked_array(arrays)], arrays, (pa.record_batch({"text": column}) for column in arrays)):
        slices = list(arrow.slices_of_arrow(columns, 1 << 20, "strict"))
        assert len(slices) == 2 and [rows.first for rows in slices] == [0, slicing.SLICE_TEXTS]
        assert [text.decode() for rows in slices for text in rows.texts] == texts
    mixed = [pa.array([text], name) for text, name in zip(texts[:9], itertools.cycle(["string", "large_string", "string_view"]))]
    slices = list(arrow.slices_of_arrow(mixed, 1 << 20, "strict"))
    assert [text.decode() for rows in slices for text in rows.texts] == texts[:9]
    assert [rows.first for rows in slices] == [0, 1, 3, 4, 6, 7]  # a view becomes a large_string


REPEATED = {  # 300 MB of text, in which every second row repeats a long one
    "groups.parquet": "write(row_group_size=200)",
    "one.parquet": "write()",
    "many rows.parquet": "write(row_group_size=10**6)",
    "dictionary": "count(texts=dictionary)",
    "views": "count(texts=polars.concat([polars.Series(words.to_pylist())] * n, rechunk=False).rechunk())",
}


def in_python(code, **options):
    return subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True, **options).stdout


def memory_of(calls, code):
    """{name: value} for expressions with status(), which is the most memory so far, in MB.

    Each runs in a process of its own, with the packages already imported.
    """
    return json.loads(in_python(f"""import json, os, re, pyarrow
from bpe_more import training
{code}
def status():  # not ru_maxrss, which begins with the memory of the process above
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
used = {{}}
for name, call in {calls!r}.items():
    reading, writing = os.pipe()
    if not os.fork():
        os.write(writing, str(eval(call)).encode())
        os._exit(0)
    os.close(writing)
    used[name] = int(open(reading).read())
    os.wait()
print(json.dumps(used))"""))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self/status")
def test_memory_is_bounded_by_bytes_of_text_not_by_rows(tmp_path):
    """It was all of the text, and more than an array of Arrow may have was an error."""
    calls = {name: f"columns(name) or {call}" for name, call in REPEATED.items()}
    used = memory_of(calls, f"""import pyarrow.compute, pyarrow.parquet, polars
def columns(name):
    global n, path, words, dictionary
    n, path = 20_000 if "many rows" in name else 500, {str(tmp_path)!r} + "/" + name
    words = pyarrow.array(["a" * (300_000_000 // n), "b"])
    dictionary = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1] * n), words)
def count(*paths, **texts):
    before = status()
    assert training.count_words(*paths, **texts, workers=1) == {{words[0].as_py().encode(): n, b"b": n}}
    return status() - before
def write(**options):
    pyarrow.parquet.write_table(pyarrow.table({{"text": dictionary}}), path, **options, store_schema=False)
    return count(path)
""")
    assert max(used.values()) < 200, used


# --- files -----------------------------------------------------------------------------------------------------------

def lines_of(texts, rng=None):
    """JSON Lines; with rng, in different spellings, with blank lines."""
    def line(text):
        row = json.dumps({"id": 1, "text": text, "tags": ["x"]}, ensure_ascii=bool(rng and rng.random() < 0.5))
        return row + (rng.choice(["\n", "\r\n", " \n", "\n\n", "\n \n"]) if rng else "\n")

    return "".join(map(line, texts)).encode()


def write_parquet(path, texts, kind="string", **options):
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, kind), "messages": [["x"]] * len(texts)})
    pq.write_table(table, path, **options)


def write_arrow(path, texts, new=ipc.new_file, kind="string", rows=100):
    table = pa.table({"id": range(len(texts)), "text": pa.array(texts, kind)})
    with new(path, table.schema) as writer:
        writer.write_table(table, rows)


def frames(content, **options):
    """Zstandard in several frames, with one to skip between them."""
    compress = zstandard.ZstdCompressor(**options).compress
    middle = len(content) // 3
    return compress(content[:middle]) + b"\x50\x2a\x4d\x18\x03\0\0\0abc" + compress(content[middle:]) + compress(b"")


ROWS = {
    "a.parquet": lambda path, texts: write_parquet(path, texts),
    "groups.parquet": lambda path, texts: write_parquet(path, texts, row_group_size=50, compression="zstd"),
    "plain.parquet": lambda path, texts: write_parquet(path, texts, "large_string", use_dictionary=False, write_page_checksum=True),
    "view.parquet": lambda path, texts: write_parquet(path, texts, "string_view", row_group_size=300),
    "binary.PARQUET": lambda path, texts: write_parquet(path, texts, "binary", store_schema=False),
    "category.parquet": lambda path, texts: pd.DataFrame({"text": pd.Categorical(texts)}).to_parquet(path),
    "dictionaries.parquet": lambda path, texts: write_parquet(path, pd.Categorical(texts), None, row_group_size=3),
    "tiny.parquet": lambda path, texts: write_parquet(path, texts, row_group_size=1),
    "polars.parquet": lambda path, texts: pl.DataFrame({"text": texts}).write_parquet(path, row_group_size=100),
    "duckdb.parquet": lambda path, texts: duckdb.from_arrow(pa.table({"text": texts})).write_parquet(str(path)),
    "datasets.parquet": lambda path, texts: datasets.Dataset.from_dict({"text": texts}).to_parquet(path, batch_size=100),
    "a.arrow": write_arrow,
    "stream.arrow": lambda path, texts: write_arrow(path, texts, ipc.new_stream, "large_string", 7),
    "a.feather": lambda path, texts: feather.write_feather(pa.table({"id": range(len(texts)), "text": texts}), path, "zstd"),
    "categories.FEATHER": lambda path, texts: write_arrow(path, pd.Categorical(texts), kind=None),
    "polars.arrow": lambda path, texts: pl.DataFrame({"text": texts}).write_ipc(path, compression="lz4"),
    "a.jsonl": lambda path, texts: path.write_bytes(lines_of(texts)),
    "spelled.ndjson": lambda path, texts: path.write_bytes(lines_of(texts, random.Random(1)).rstrip()),
    "a.json": lambda path, texts: datasets.Dataset.from_dict({"text": texts}).to_json(path),
    "a.jsonl.gz": lambda path, texts: path.write_bytes(gzip.compress(lines_of(texts)[:999]) + gzip.compress(lines_of(texts)[999:])),
    "a.jsonl.zst": lambda path, texts: path.write_bytes(frames(lines_of(texts))),
    "a.json.ZST": lambda path, texts: path.write_bytes(frames(lines_of(texts), write_checksum=True, write_content_size=False)),
}  # fmt: skip
PACKED = {
    "a.txt.gz": lambda content: gzip.compress(content[:5]) + gzip.compress(content[5:]),
    "a.zst": frames,
    "checked.txt.zst": lambda content: frames(content, write_checksum=True, write_content_size=False),
}


@pytest.mark.parametrize(("engine", "large"), [("c", False), ("c", True), ("python", False)], indirect=["engine"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_files_are_documents(tmp_path, engine, tokenizer, monkeypatch, name, large):
    monkeypatch.chdir(tmp_path)
    if large:  # as if each row group, and each line, were longer than a slice
        monkeypatch.setattr(arrow, "GROUP_BYTES", 100)
        monkeypatch.setattr("bpe_more.corpus.reading.SLICE_BYTES_IN_C", 3000)
        monkeypatch.setattr("bpe_more.corpus.slicing.SLICE_BYTES", 3000)
    ROWS[name](Path(name), TEXTS)
    Path("text.txt").write_text("a text file\n")
    options = {"special_tokens": [END], "engine": engine}
    assert training.train_bpe(name, 400, **options) == MODEL
    counts = training.count_words(["text.txt", name, "text.txt"], **options)
    assert counts == training.count_words(texts=["a text file\n", *TEXTS, "a text file\n"], **options)
    for end in None, END:
        assert tokenizer.encode_files([name, "text.txt"], "ids.npy", end=end, engine=engine)
        tokenizer.encode_files(None, "expected.npy", texts=[*TEXTS, "a text file\n"], end=end)
        assert Path("ids.npy").read_bytes() == Path("expected.npy").read_bytes()


def test_small_row_groups_are_read_together_and_errors_have_their_rows(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    write_parquet(path, [*TEXTS, None, "a"], row_group_size=2)
    options = choices.Options(column="text", errors="replace")
    [rows] = reading.Corpus(path, None, options).slices()
    assert list(rows.read()) == [text.encode() for text in [*TEXTS, "", "a"]]
    size = len("".join(TEXTS).encode())
    assert 4 <= len(list(reading.Corpus(path, None, options).slices(size // 4))) < 20  # of 46 row groups, with their headers
    for most in (slicing.SLICE_TEXTS, 4):  # rows of a slice: the row is in the first slice, and in a later one
        monkeypatch.setattr(slicing, "SLICE_TEXTS", most)
        with pytest.raises(ValueError, match=rf"a\.parquet\[{len(TEXTS)}\]: text must be a str, not null"):
            training.count_words(path)


@pytest.mark.parametrize("name", PACKED)
def test_compressed_text_is_the_text(tmp_path, engine, tokenizer, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    content = FIXTURE[:90_000].encode()
    for text in (content, b""):
        Path(name).write_bytes(PACKED[name](text))
        Path("a.txt").write_bytes(text)
        assert training.count_words(name, [END], engine=engine) == training.count_words("a.txt", [END], engine=engine)
        for end in None, END:
            tokenizer.encode_files([name, "a.txt"], "ids.npy", end=end, engine=engine)
            tokenizer.encode_files(["a.txt", "a.txt"], "expected.npy", end=end)
            assert Path("ids.npy").read_bytes() == Path("expected.npy").read_bytes()


def test_zstandard_with_a_long_window_is_read(tmp_path):
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()  # doesn't know the size
    (tmp_path / "a.zst").write_bytes(stream.compress(FIXTURE.encode()) + stream.flush())
    assert training.count_words(tmp_path / "a.zst") == training.count_words(texts=[FIXTURE])


def test_the_command_line_reads_rows(tmp_path, monkeypatch, main):
    monkeypatch.chdir(tmp_path)
    half = len(TEXTS) // 2
    pq.write_table(pa.table({"body": TEXTS[:half], "text": ["x"] * half}), "a.parquet")
    Path("b.jsonl.zst").write_bytes(frames(b"".join(json.dumps({"body": text}).encode() + b"\n" for text in TEXTS[half:])))
    assert main("a.parquet", "b.jsonl.zst", 400, "--column", "body", "--quiet") == (0, "", "")
    tokenizer = Tokenizer.load("bpeModel")
    assert tokenizer.merges == MODEL[1]
    status, _, stderr = main("a.parquet", "b.jsonl.zst", "--column=body", "--encode", "ids.npy", "--end", END)
    assert status == 0 and f"{len(''.join(TEXTS).encode()):,} bytes as " in stderr
    tokenizer.encode_files(None, "expected.npy", texts=TEXTS, end=END)
    assert Path("ids.npy").read_bytes() == Path("expected.npy").read_bytes()


def test_json_can_be_read_as_text(tmp_path, monkeypatch, main):
    monkeypatch.chdir(tmp_path)
    Path("rows.json").write_text('[\n{"text": "low lower"}\n]')
    expected = training.train_bpe(texts=[Path("rows.json").read_text()], vocab_size=260)
    assert training.train_bpe("rows.json", 260, column=None) == expected
    assert main("rows.json", 261, "--as", "text", "--quiet") == (0, "", "")
    assert Tokenizer.load("bpeModel").merges == expected[1]
    assert main("rows.json", "--encode", "ids.npy", "--as", "text", "--quiet") == (0, "", "")
    assert Tokenizer.load("bpeModel").decode(read_ids("ids.npy")[1]) == Path("rows.json").read_text()
    told = main("rows.json", 261)[2]
    assert told == f"error: rows.json: a JSON array, not an object in each line; jq -c '.[]' converts it; {data.AS_TEXT}\n"
    assert "leave out --column, or --as" in main("rows.json", 261, "--as", "text", "--column", "body")[2]


def bad_rows(*rows):
    return b"\n".join([b'{"text": "a"}', b"", *rows])


TWICE = pa.table([["a"], ["b"]], names=["text", "text"])
FILES_WITH_ERRORS = {  # name -> content, error
    "nosuch.parquet": ({"body": ["a"], "n": [1]}, r"nosuch\.parquet: no column of strings 'text'; there are: body \(choose with column=, or --column\)$"),
    "nested.parquet": ({"text": [["a"]], "body": ["a"]}, r"column 'text' has list<element: string>, not strings; columns of strings: body \("),
    "numbers.parquet": ({"text": [1]}, r"numbers\.parquet: column 'text' has int64, not strings; columns of strings: none \("),
    "null.parquet": ({"text": ["a", None]}, r"null\.parquet\[1\]: text must be a str, not null; errors='replace' makes it an empty one$"),
    "utf8.parquet": ({"text": [b"a", b"b\xff"]}, r"utf8\.parquet\[1\]: 'utf-8' codec can't decode byte 0xff in position 1: .*U\+FFFD$"),
    "text.parquet": (b"plain text", r"text\.parquet: Parquet "),
    "null.arrow": (lambda path: write_arrow(path, ["a", None], rows=1), r"null\.arrow\[1\]: text must be a str, not null; errors='replace'"),
    "numbers.feather": (lambda path: feather.write_feather(pa.table({"text": [1]}), path), r"feather: column 'text' has int64, not strings; columns of strings: none"),
    "key.feather": (lambda path: feather.write_feather(pa.table({"a": ["x"], "n": [1]}), path), r"no column of strings 'text'; there are: a \("),
    "twice.feather": (lambda path: feather.write_feather(TWICE, path), r"twice\.feather: 2 columns have the name 'text'$"),
    "twice.parquet": (lambda path: pq.write_table(TWICE, path), r"twice\.parquet: 2 columns have the name 'text'$"),
    "cut.arrow": (b"ARROW1\0\0cut", r"cut\.arrow: "),
    "empty.arrow": (b"", r"empty\.arrow: not a file of Arrow, or a stream$"),
    "text.feather": (b"plain text", r"text\.feather: not a file of Arrow, or a stream$"),
    "empty.parquet": (b"", r"empty\.parquet: Parquet file size is 0 bytes$"),
    "key.jsonl": (bad_rows(b'{"a": "x", "n": 1}'), r"key\.jsonl, line 3: no column of strings 'text'; there are: a \("),
    "null.jsonl": (bad_rows(b'{"text": null}'), r"null\.jsonl, line 3: text must be a str, not null; errors='replace' makes it an empty one$"),
    "numbers.jsonl": (bad_rows(b'{"text": 1}'), r"line 3: column 'text' has int, not strings; columns of strings: none \("),
    "nested.jsonl": (bad_rows(b'{"text": [{"role": "user"}], "id": "7"}'), r"line 3: column 'text' has list, not strings; columns of strings: id \("),
    "list.jsonl": (bad_rows(b'["text"]'), r"line 3: not an object with the key 'text', but \['text'\]$"),
    "bad.jsonl": (bad_rows(b'{"text": "a"'), r"bad\.jsonl, line 3: not JSON: Expecting ',' delimiter in column 13; column=None"),
    "deep.jsonl": (bad_rows(b"[" * 10**5), r"deep\.jsonl, line 3: not JSON: maximum recursion depth"),
    "bom.jsonl": (bad_rows(b'\xef\xbb\xbf{"text": "a"}'), r"line 3: not JSON: Unexpected UTF-8 BOM"),
    "array.jsonl": (b'\xef\xbb\xbf \n[{"text": "a"}]', r"array\.jsonl: a JSON array, not an object in each line; jq -c '\.\[\]' converts it; column=None"),
    "pretty.json": (json.dumps({"text": "a"}, indent=1).encode(), r"pretty\.json, line 1: an object in several lines; jq -c \. writes each"),
    "later.json": (bad_rows(b'{"n": 1,', b'"text": "a"}'), r"later\.json, line 3: an object in several lines; jq -c \. writes each"),
    "twice.jsonl": (bad_rows(b'{"text": "a"},{"text": "b"}'), r"twice\.jsonl, line 3: not JSON: Extra data in column 14; "),
    "utf8.jsonl": (bad_rows(b'{"text": "a\xff"}'), r"utf8\.jsonl, line 3: 'utf-8' codec can't decode byte 0xff in position 11: .*; errors='replace' makes it U\+FFFD$"),
    "half.jsonl": (bad_rows(b'{"text": "\\ud800"}'), r"half\.jsonl, line 3: .*surrogates not allowed; errors='replace' makes it U\+FFFD$"),
    "cut.jsonl.gz": (gzip.compress(lines_of(TEXTS))[:-30], r"cut\.jsonl\.gz: Compressed file ended before"),
    "cut.jsonl.zst": (frames(lines_of(TEXTS))[:-30], r"cut\.jsonl\.zst: the file ends too early$"),
    "archive.zst": (zstandard.compress(b"name") + zstandard.compress(b"\0" * 253 + b"ustar"), r"archive\.zst is a tar archive; extract it"),
    "cut.txt.zst": (frames(FIXTURE.encode())[:-30], r"cut\.txt\.zst: the file ends too early$"),
    "not.txt.gz": (b"plain text", r"not\.txt\.gz: Not a gzipped file"),
    "not.txt.zst": (b"plain text", r"not\.txt\.zst: .*Unknown frame descriptor"),
    "more.txt.gz": (gzip.compress(b"a") + b"more", r"more\.txt\.gz: Not a gzipped file"),
    "utf8.txt.gz": (gzip.compress(b"ab\xff"), r"utf8\.txt\.gz: not valid UTF-8 at byte 2 "),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES_WITH_ERRORS)
def test_errors_name_the_file_and_the_row_and_nothing_is_written(tmp_path, monkeypatch, error, engine, tokenizer, name):
    monkeypatch.chdir(tmp_path)
    tokenizer.save("bpeModel")
    before = {path: path.read_bytes() for path in Path("bpeModel").iterdir()}
    content, text = FILES_WITH_ERRORS[name]
    if callable(content):
        content(name)
    else:
        Path(name).write_bytes(content) if isinstance(content, bytes) else pq.write_table(pa.table(content), name)
    with pytest.raises(ValueError, match=text):
        training.train_bpe(name, 300, engine=engine)
    with pytest.raises(ValueError, match=text):
        tokenizer.encode_files(name, "ids.npy", engine=engine)
    told = error(name, 300)
    hint = "; if it is compressed" if "not valid UTF-8 at" in told else "\n"
    text = text.replace("errors='replace'", "--errors replace").rstrip("$")
    assert pytest.importorskip("regex").search(text, told.partition(hint)[0])
    error(name, "--encode", "ids.npy")
    assert {path: path.read_bytes() for path in Path("bpeModel").iterdir()} == before
    assert set(os.listdir()) - {"words.txt"} == {"bpeModel", name}


@pytest.mark.parametrize(("name", "texts"), [
    ("null.parquet", ["a", ""]), ("utf8.parquet", ["a", "b\ufffd"]), ("null.jsonl", ["a", ""]), ("key.jsonl", ["a", ""]),
    ("utf8.jsonl", ["a", "a\ufffd"]), ("half.jsonl", ["a", "\ufffd"]), ("utf8.txt.gz", ["ab\ufffd"]),
])  # fmt: skip
def test_with_replace_nulls_are_empty_and_wrong_bytes_are_replaced(tmp_path, engine, tokenizer, name, texts):
    content, _ = FILES_WITH_ERRORS[name]
    (tmp_path / name).write_bytes(content) if isinstance(content, bytes) else pq.write_table(pa.table(content), tmp_path / name)
    for end in None, END:
        tokenizer.encode_files(tmp_path / name, tmp_path / "ids.npy", errors="replace", engine=engine, end=end)
        ids = [[*tokenizer.encode_ordinary(text), *([tokenizer.special_ids[END]] if end else [])] for text in texts]
        assert read_ids(tmp_path / "ids.npy")[1] == list(itertools.chain(*ids))


def test_a_file_without_the_column_is_an_error_before_the_first_file_is_read(tmp_path):
    write_parquet(tmp_path / "a.parquet", ["a"])
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match="no column of strings 'body'"):
        training.train_bpe([tmp_path / "bad.txt", tmp_path / "a.parquet"], 300, column="body")


def test_an_error_without_a_row_names_the_line_of_its_text(tmp_path):
    """A vocabulary without a byte is found by the encoder, which counts texts, not lines."""
    small = Tokenizer({0: b"a"}, [])
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "a"}\n\n\n{"text": "aa"}\n{"text": "ab"}\n')
    write_parquet(tmp_path / "a.parquet", ["a", "aa", "ab"])
    for name, place in ("a.jsonl", "a.jsonl, line 5: "), ("a.parquet", r"a.parquet\[2\]: "):
        with pytest.raises(ValueError, match=f"{place}the vocabulary has no token for the byte b'b'"):
            small.encode_files(tmp_path / name, tmp_path / "ids.npy")


def random_line(rng):
    """A line that may be JSON, with a text or not, and UTF-8."""
    strings = ['"a"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', '"\x01"', '"é字"', "null", "1", "1e999", "NaN", "-0", "[]", '{"text": "b"}', '"\\x"', ""]
    keys = [rng.choice(['"text"', '"te\\u0078t"', '"n"', "text"]) for _ in range(rng.randint(0, 3))]
    line = ("{" + ", ".join(f"{key}: {rng.choice(strings)}" for key in keys) + rng.choice(["}", "}", "}", "", "} x"])).encode()
    line = line.replace(b"a", rng.choice([b"\xff", b"\xed\xa0\x80"])) if rng.random() < 0.1 else line
    return b"\xef\xbb\xbf" + line if rng.random() < 0.1 else line


def read_lines(monkeypatch, *arguments):
    """The texts or the error of some lines, which are the same without orjson."""
    results = []
    for parse in need("orjson").loads, data.plain_json:
        monkeypatch.setattr(data, "fast_json", parse)
        result = outcome(data.read_lines, "a.jsonl", *arguments)
        results.append(list(result) if isinstance(result, arrow.Texts) else result)
    assert results[0] == results[1], arguments
    return results[0]


def test_a_block_of_lines_is_read_as_each_of_its_lines_with_or_without_orjson(monkeypatch):
    """Pieces that together are an array, lines with two values, space that JSON doesn't know, and numbers beyond limits."""
    rng, good, bad = random.Random(3), 0, 0
    lines = [b'{"text": "a"}', b' \t{"text": "\xc3\xa9"}\r', b"", b"\r", b'{"n": NaN, "text": "b"}', b'{"text": "c", "text": "d"}', b'{"n": 1%s, "text": "e"}' % (b"0" * 400)]
    odd = [b'{"text": "a"},{"text": "b"}', b'{"text": "a"', b'"n": 1}', b'{"text": "a", "n": [1', b"2]}", b"\x0b", b"\x0c{}", b'{"text": "a"}\xc2\xa0', b",", b'"text"',
           b'{"n": 1%s, "text": "a"}' % (b"0" * 5000), b'{"text": "\\ud800"}', b'["text"]', b'{"text": null}', b"\xef\xbb\xbf{}", b"x", b'{"text": "a"} 0']  # fmt: skip
    for _ in range(2000):
        for errors in "strict", "replace":
            read_lines(monkeypatch, random_line(rng), 1, "text", errors)
        block = rng.choices(lines, k=rng.randint(1, 5)) + rng.choices(odd, k=rng.choice([0, 1, 2, 3]))
        rng.shuffle(block)
        told = read_lines(monkeypatch, b"\n".join(block), 1, "text", "strict")
        alone = (read_lines(monkeypatch, line, number, "text", "strict") for number, line in enumerate(block, 1))
        try:
            rows = [json.loads(line.decode()) for line in block if line.strip()]
            expected = [row["text"].encode() for row in rows if row["text"] is not None or row["none"]]
        except (ValueError, KeyError, TypeError):
            bad += 1
            expected = next(found for found in alone if isinstance(found, str))
        else:
            good += 1
        assert told == expected, block
    assert good > 500 < bad


def test_a_byte_order_mark_before_json_lines_is_no_text(tmp_path, engine):
    for name, pack in ("a.jsonl", bytes), ("a.jsonl.zst", frames), ("a.jsonl.gz", gzip.compress):
        (tmp_path / name).write_bytes(pack(b"\xef\xbb\xbf" + lines_of(TEXTS)))
        assert training.train_bpe(tmp_path / name, 400, special_tokens=[END], engine=engine) == MODEL


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl"])
def test_an_error_of_the_disk_names_the_file_that_is_read_and_not_the_output(tmp_path, monkeypatch, tokenizer, name):
    class Broken(io.FileIO):
        def readinto(self, buffer):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / name).write_bytes(b"text")
    monkeypatch.setattr(data, "open", lambda path, *rest, **more: io.BufferedReader(Broken(path)), raising=False)
    with pytest.raises(OSError, match="Input/output error") as caught:
        tokenizer.encode_files(tmp_path / name, tmp_path / "ids.npy")
    assert caught.value.filename == str(tmp_path / name)


def test_a_json_array_is_refused_before_it_is_read():
    blocks = iter([b"\xef", b"\xbb\xbf [", b'{"text": "', b"never read"])
    with pytest.raises(ValueError, match="^a.json: a JSON array"):
        list(data.slices_of_lines("a.json", blocks, 1 << 20, choices.Options()))
    assert list(blocks)[-1] == b"never read"


def test_short_rows_take_less_time_than_a_generator_that_parses_them(tmp_path):
    """1.9 times its time when each row made a list of its columns."""
    orjson, path = need("orjson"), tmp_path / "a.jsonl"
    path.write_bytes(b"".join(b'{"text": "The ferry to %d was late again, and so were we.", "id": %d}\n' % (n % 99, n) for n in range(100_000)))

    def in_a_generator():
        with path.open("rb") as file:
            training.count_words(texts=(orjson.loads(line)["text"] for line in file), workers=1)

    ours, theirs = least_seconds(lambda: training.count_words(path, workers=1)), least_seconds(in_a_generator)
    assert ours < theirs, (ours, theirs)


@pytest.mark.parametrize("name", ["a.parquet", "groups.parquet", "plain.parquet", "a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json.ZST"])
def test_a_damaged_byte_anywhere_is_an_error_in_one_line_or_other_text(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    ROWS[name](Path(name), TEXTS[:200])
    whole, rng, errors = Path(name).read_bytes(), random.Random(name), 0
    damaged = [whole[:place] for place in rng.sample(range(len(whole)), 40)]
    flip = lambda place: whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :]  # noqa: E731
    damaged += map(flip, rng.sample(range(len(whole)), 120))
    for content in damaged:
        Path(name).write_bytes(content)
        try:
            training.count_words(name)
        except (ValueError, MemoryError) as error:
            assert isinstance(error, MemoryError) or (name in str(error) and "\n" not in str(error))
            errors += 1
    assert errors > 30  # a byte of another column, or of a text, may be another byte


# --- the run as a whole ----------------------------------------------------------------------------------------------

def test_nothing_is_imported_that_a_text_file_does_not_need(tmp_path):
    (tmp_path / "a.txt").write_text("low lower")
    code = f"import sys; from bpe_more import Tokenizer; t = Tokenizer.train({str(tmp_path / 'a.txt')!r}, 257); t.encode_batch(['low', 'a']); print(*sys.modules)"
    imported = set(in_python(code).split())
    assert "bpe" in imported and not imported & {"bpe_more.corpus.data", "pyarrow", "zstandard", "orjson", "gzip", "polars", "numpy"}
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "low lower"}'))
    imported = set(in_python(code.replace("a.txt", "a.jsonl.gz")).split())
    assert "bpe_more.corpus.data" in imported and not imported & {"pyarrow", "zstandard", "numpy"}


@pytest.mark.parametrize(("name", "package"), [("a.parquet", "pyarrow"), ("a.jsonl.zst", "zstandard"), ("a.zst", "zstandard")])
def test_a_missing_package_is_a_line_that_installs_it(tmp_path, monkeypatch, error, name, package):
    monkeypatch.chdir(tmp_path)
    for module in (package, "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    Path(name).touch()
    assert error(name, 300) == f"error: {name} needs the package {package}: pip install {package}"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize(("name", "chosen"), [("groups.parquet", "auto"), ("a.parquet", "python"), ("a.jsonl.gz", "auto"), ("a.zst", "auto")])
def test_ctrl_c_ends_a_run_over_data_and_leaves_nothing(tmp_path, name, chosen):
    texts = TEXTS * 300
    {**ROWS, "a.zst": lambda path, texts: path.write_bytes(frames("".join(texts).encode()))}[name](tmp_path / name, texts)
    Tokenizer(*MODEL, [END]).save(tmp_path / "bpeModel")
    arguments = [*[name] * 200, "--encode", "ids.npy", "--engine", chosen]
    with subprocess.Popen([sys.executable, "-m", "bpe_more", *arguments], cwd=tmp_path, stderr=subprocess.PIPE) as process:
        wait_for(lambda: list(tmp_path.glob("*.bpe.tmp")) and time.sleep(0.2) is None)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130 and one_line(stderr) == "interrupted\n"
    assert sorted(os.listdir(tmp_path)) == sorted(["bpeModel", name])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self/status")
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """At most, a run on 64 MB takes 60 MB more than one on 8 MB."""
    write = {"large.parquet": lambda path, texts: write_parquet(path, texts, use_dictionary=False, compression="zstd")}
    calls = {}
    for n in (8, 64):
        texts = [FIXTURE[i * 997 % 90_000 :][:4000] for i in range(n * 250)]
        for name in ("large.parquet", "groups.parquet", "a.jsonl.zst"):
            path = tmp_path / f"{n}{name}"
            (write | ROWS)[name](path, texts)
            calls[f"{n} {name}"] = f"training.count_words({str(path)!r}) and status()"
        calls[f"{n} texts"] = f"training.count_words(texts=(pyarrow.array(['the ferry was late ' * 200] * 50) for _ in range({n * 5}))) and status()"
    used = memory_of(calls, "")
    assert len(used) == 8
    for name in used:
        assert used[name] - used[name.replace("64 ", "8 ")] < 60, used
