"""Files and texts read by workers, and encoded into files: bpe_more/corpus/reading.py and arrays.py."""

import bz2
import codecs
import concurrent.futures
import errno
import functools
import glob
import gzip
import io
import itertools
import lzma
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
import types
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import regex

import bpe
from bpe_more import choices, training, workers
from bpe_more.cluster.engines import Local
from bpe_more.cluster.tasks import versions
from bpe_more.command import work
from bpe_more.corpus import counting, reading, slicing
from bpe_more.errors import delayed
from bpe_more.tokenizer import Tokenizer
from foreign import LFS_POINTER
from shared import (
    BAD_UTF8,
    once,
    only_c,
    only_python,
    pipe_of,
    read_ids,
    summary,
    train_and_save,
    trained,
    wait_for,
    without_engine,
)
from test_bpe import (
    CORPUS,
    CUSTOM,
    END,
    PART,
    ROOT,
    SPECIALS,
    call_in_script,
    files_of,
    nested,
)

# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", BAD_UTF8)
@pytest.mark.parametrize("place", [0, 3000, None])
def test_bytes_that_are_not_utf8_are_named_by_file_and_offset_with_a_hint(train, cut, bad, place):
    cut(3000)
    text = b"word and word. " * 700
    data = text + bad if place is None else text[:place] + bad + text[place:] + b"\xff"  # the first one is reported
    workers = 2 if bad == b"\xff" else 1  # one case with workers, which take time to start
    with pytest.raises(UnicodeDecodeError) as expected:
        data.decode()
    found = rf"byte {expected.value.start} \(0x{data[expected.value.start]:02x}, {expected.value.reason}\)$"
    with pytest.raises(ValueError, match=rf"text\.txt: not valid UTF-8 at {found}"):
        train(data, 300, workers=workers)
    assert train(data, 300, errors="replace", workers=workers) == train(data.decode(errors="replace"), 300, workers=1)


NOISE = random.Random(0).randbytes(4_000_000)


@pytest.mark.parametrize("by", ["file", "pipe", "command line"])
def test_a_corpus_that_is_not_text_is_an_error_at_once(words_txt, error, by):
    Path("data.bin").write_bytes(NOISE)
    start = time.process_time()
    if by == "command line":
        assert "data.bin: not valid UTF-8 at byte 0 " in error("data.bin", 300) and not os.path.exists("bpeModel")
    for pattern, special_tokens in ("gpt2", [END]), (CUSTOM, []), ("o200k", ["a a", "aa"]):
        with subprocess.Popen(["cat", "data.bin"], stdout=subprocess.PIPE) as cat:
            path = "data.bin" if by == "file" else f"/dev/fd/{cat.stdout.fileno()}"
            with pytest.raises(ValueError, match="not valid UTF-8 at byte 0 "):
                training.count_words(path, special_tokens, pattern=pattern, workers=1)
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("workers", [1, 2])
def test_a_byte_order_mark_is_text_and_a_warning_names_its_place(tmp_path, cut, engine, workers):
    cut(800)
    text = "\ufeff\"low\" lower\n"
    data = {"a.txt": text[1:], "b.txt": text, "c.txt": text * 400, "d.txt": "", "e.txt.gz": text, "f.txt": "a" + text}
    paths = [tmp_path / name for name in data]
    for path, content in zip(paths, data.values()):
        path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    with pytest.warns(UserWarning, match=r"b.txt: the byte-order mark at byte 0 \(and that of 2 other files\) is text") as caught:
        words = training.count_words(paths, engine=engine, workers=workers)
    assert [warning.filename for warning in caught] == [__file__]
    expected = Counter()
    for content in data.values():
        expected += training.count_words(texts=[content])
    assert words == expected and '\ufeff"'.encode() in words
    for path in (paths[1], paths[2], paths[4]):
        with pytest.warns(UserWarning, match=rf"{path.name}: the byte-order mark at byte 0 is text"):
            Tokenizer(*trained(300)).encode_files(path, tmp_path / "ids.npy", engine=engine, workers=workers)


@only_python
def test_the_summary_has_a_byte_order_mark_as_a_note_without_a_line_of_python(main, words_txt):
    Path("words.txt").write_bytes(codecs.BOM_UTF8 + Path("words.txt").read_bytes())
    for arguments in (["words.txt", 265], ["words.txt", "--encode", "ids.npy"], ["words.txt", "+2", "--extend", "bpeModel", "--model", "b"]):
        status, _, stderr = main(*arguments)
        assert status == 0 and "UserWarning" not in stderr
        assert summary(stderr)["note"].startswith("words.txt: the byte-order mark at byte 0 is text")
    with pipe_of(Path("words.txt").read_bytes()) as pipe:
        assert summary(main(pipe, 265)[2])["note"].startswith(f"{pipe}: the byte-order mark at byte 0 is text")


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_reading_names_the_file_that_failed_and_not_the_output(tmp_path, monkeypatch, workers, cut):
    class Broken(io.FileIO):
        def read(self, *size):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    broken = tmp_path / "broken.txt"
    broken.write_text("low lower\n" * 1000)
    opens = lambda path, *rest, **more: (Broken if str(path) == str(broken) else open)(path, *rest, **more)  # noqa: E731
    for module in (reading, slicing):
        monkeypatch.setattr(module, "open", opens, raising=False)
    tokenizer, paths = Tokenizer(*trained(300)), [CORPUS, broken]
    for slice_bytes in (1 << 20, 3000):  # read by a worker alone; searched for cuts before
        cut(slice_bytes)
        for call in (lambda: tokenizer.encode_files(paths, tmp_path / "ids.npy", workers=workers),
                     lambda: training.count_words(paths, workers=workers)):  # fmt: skip
            with pytest.raises(OSError, match=r"Input/output error: .*broken\.txt") as caught:
                call()
            assert caught.value.filename == str(broken)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs another user's rights")
def test_no_permission(tmp_path):
    (tmp_path / "secret.txt").write_text("x")
    (tmp_path / "locked").mkdir()
    for path, mode in ((tmp_path / "secret.txt", 0), (tmp_path / "locked", 0o555), *zip(tmp_path.parents, [0o755] * 2)):
        path.chmod(mode)
    user = os.geteuid()
    try:
        os.seteuid(user or 65534)  # root may read and write everything
        with pytest.raises(PermissionError):
            training.train_bpe(tmp_path / "secret.txt", 300)
        with pytest.raises(PermissionError):
            Tokenizer({}, []).save(tmp_path / "locked" / "x")
        with pytest.raises(PermissionError):  # before training
            work.check_folder(str(tmp_path / "locked" / "x"), [])
    finally:
        os.seteuid(user)


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path, monkeypatch, cut):
    cut(1000)
    path, opened = tmp_path / "text.txt", itertools.count()
    path.write_bytes(b"low lower\n" * 1000)
    shorten = lambda *arguments: (next(opened) == 4 and os.truncate(path, 5000), open(*arguments))[1]  # noqa: E731, SIM115
    monkeypatch.setattr(slicing, "open", shorten, raising=False)
    with pytest.raises(ValueError, match="text.txt.*(changed|fewer bytes)"):
        training.count_words(path, [], workers=1)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc here")
def test_a_file_that_does_not_know_its_size_is_read():
    assert os.path.getsize("/proc/self/status") == 0
    assert training.count_words("/proc/self/status", [])[b"Name"] == 1


LINES = b'{"text": "The ferry"}\n{"text": "was late"}\n'
TAR = io.BytesIO()
with tarfile.open(fileobj=TAR, mode="w") as archive:
    archive.addfile(tarfile.TarInfo("empty.txt"))
ZIP = io.BytesIO()
with zipfile.ZipFile(ZIP, "w") as archive:
    archive.writestr("a.txt", "text")
ZSTD = b"\x28\xb5\x2f\xfd\x04\x00\x19\x00\x00abc"
GZIP_WAY = r"gzip; save it under a name that ends in \.gz, or decompress it: gzip -dc FILE \| bpe-py - \.\.\."
TAR_WAY = r"a tar archive; extract it \(tar -xf\), and name its files$"
LFS_WAY = "a pointer of Git LFS; get the file itself: git lfs pull$"
FOREIGN = {  # name -> content, and what the error says
    "a.jsonl.xz": (lzma.compress(LINES), r"xz; decompress it: xzcat FILE \| bpe-py - \.\.\. --as jsonl$"),
    "a.bz2": (bz2.compress(b"text"), r"bzip2; decompress it: bzcat FILE \| bpe-py - \.\.\.$"),
    "a.jsonl.zstd": (ZSTD, r"zstd; save it under a name that ends in \.zst, or"),
    "a.PARQ": (b"PAR1\x15\x04", r"Parquet; save it under a name that ends in \.parquet$"),
    "a.tar.gz": (gzip.compress(TAR.getvalue()), TAR_WAY), "a.tgz": (gzip.compress(TAR.getvalue()), TAR_WAY), "a.tar": (TAR.getvalue(), TAR_WAY),
    "archive.gz": (gzip.compress(TAR.getvalue()), TAR_WAY), "archive.txt": (TAR.getvalue(), TAR_WAY), "a.zip": (ZIP.getvalue(), "a zip archive; extract it"),
    "a.parquet.gz": (gzip.compress(b"PAR1"), r"compressed: decompress it first, because compressed \.parquet files aren't read$"),
    "gzip.jsonl": (gzip.compress(LINES, mtime=0), GZIP_WAY + " --as jsonl$"), "gzip.txt": (gzip.compress(b"text", mtime=0), GZIP_WAY + "$"),
    "twice.txt.gz": (gzip.compress(gzip.compress(b"text")), GZIP_WAY), "gzip.parquet": (gzip.compress(LINES, mtime=0), GZIP_WAY),
    "zstd.txt": (ZSTD, "zstd; save"), "xz.txt": (lzma.compress(b"text"), "xz; decompress"), "bzip2.jsonl": (bz2.compress(LINES), "bzip2; decompress"),
    "zip.txt": (ZIP.getvalue(), "a zip archive"), "parquet.txt": (b"PAR1\x15\x04\x15", "Parquet; save"), "arrow.txt": (b"ARROW1\0\0\xff", "Arrow; save"),
    "stream.jsonl": (b"\xff\xff\xff\xff\x10", "Arrow; save it under a name that ends in .arrow"), "arrow.parquet": (b"ARROW1\0\0\xff", "Arrow; save"),
    **{f"pointer{ending}": (LFS_POINTER, LFS_WAY) for ending in (".parquet", ".arrow", ".txt", ".jsonl", ".jsonl.gz", ".txt.gz")},
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_in_a_foreign_format_is_an_error_with_the_format_and_the_way_out(tmp_path, monkeypatch, error, engine, name):
    content, told = FOREIGN[name]
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    Path("a.txt").write_text("text")
    text = f"^{regex.escape(name)} is {told}"
    for errors in "strict", "replace":  # replaced, they would be learned
        for paths in name, [name, "a.txt"]:
            with pytest.raises(ValueError, match=text):
                training.count_words(paths, errors=errors, engine=engine)
    assert regex.search(text, error(name, 300).removeprefix("error: "))


@pytest.mark.parametrize(("content", "told"), [
    (LINES, r"JSON Lines; read it with bpe-py - \.\.\. --as jsonl \(in Python, the path '-\.jsonl'\), or as plain text: --as text$"),
    (b'\xef\xbb\xbf{ "text": "' + b"a" * 60_000, "JSON Lines; "), (b'{"text": "no line end"}', "JSON Lines; "),
    *[(FOREIGN[name][0], FOREIGN[name][1]) for name in ("gzip.txt", "zstd.txt", "xz.txt", "parquet.txt", "archive.txt", "pointer.txt")],
])  # fmt: skip
def test_text_from_a_pipe_that_begins_like_another_format_is_an_error(content, told):
    for errors in "strict", "replace":
        with pipe_of(content) as path, pytest.raises(ValueError, match=f"^{path} is {told}"):
            training.count_words(path, errors=errors)


@pytest.mark.parametrize("content", [b'{"text": 1}\n', b'{\n  "a": 1\n}\n', b'{"a", "b"} are sets\n', b"{}\n", b"PAR1 is a gene", b"PK, BZh, ustar"])
def test_other_text_from_a_pipe_is_text(content):
    column = None if content[:3] == b'{"t' else "text"  # JSON Lines are text if they are declared as text
    with pipe_of(content) as path:
        assert training.count_words(path, column=column) == training.count_words(texts=[content.decode()])


@once
def test_standard_input_is_json_lines_if_it_is_declared(main, error):
    """-.jsonl is its name in Python. An encoded file shows the texts: their ends, and no braces."""
    lines = LINES.replace(b"text", b"body")
    expected = training.train_bpe(texts=["The ferry", "was late"], vocab_size=262, special_tokens=[END])
    Tokenizer(*expected, [END]).save("model")
    ids = Tokenizer.load("model").encode_batch(["The ferry", "was late"])
    for content, options in (LINES, []), (lines, ["--column", "body"]):
        arguments = [sys.executable, "-m", "bpe_more", "-", "--as", "jsonl", *options]
        for task in ["262", "--special-token", END, "--model", "trained"], ["--encode", "ids.npy", "--end", END, "--model", "model"]:
            subprocess.run([*arguments, *task], input=content, capture_output=True, check=True)
        assert Path("trained/merges.txt").read_bytes() == Path("model/merges.txt").read_bytes()
        assert read_ids("ids.npy")[1] == [*ids[0], 256, *ids[1], 256]
    script = f"from bpe_more import training; print(training.train_bpe('-.jsonl', 262, [{END!r}], column='body') == {expected})"
    told = subprocess.run([sys.executable, "-c", script], input=lines, cwd=ROOT, capture_output=True, check=True).stdout
    assert told.strip() == b"True"
    script = "from bpe_more import count_words; print(count_words('-.jsonl', column=None)[b' }'])"  # as plain text
    assert subprocess.run([sys.executable, "-c", script], input=b"{ }", cwd=ROOT, capture_output=True, check=True).stdout == b"1\n"
    Path("a.jsonl").write_bytes(LINES)
    for arguments in ["a.jsonl", 262], ["--show", "text", "--model", "model"]:
        assert error(*arguments, "--as", "jsonl") == "error: --as jsonl is for standard input: name it, as -, in the corpus"
    assert error("-", 262, "--as", "jsonl", "--cluster", "local").startswith("error: --cluster can't read standard input")


def test_a_column_where_no_input_has_columns_is_an_error(error, tmp_path):
    Path("renamed").write_bytes(LINES)
    Path("a.jsonl").write_bytes(LINES)
    Tokenizer(*trained(300)).save("model")
    told = "no input has a column {!r}: names must end in .parquet, .arrow, .feather, .jsonl, .ndjson, .json; standard input is read with --as jsonl"
    for name in "text", "body":
        for task in [300], ["--encode", "ids.npy", "--model", "model"], ["+9", "--extend", "model", "--model", "new"]:
            for path in "renamed", "-":
                assert error(path, *task, "--column", name) == "error: " + told.format(name)
        assert not Path("new").exists() and not Path("ids.npy").exists()
    calls = [training.count_words, lambda path, **o: training.train_bpe(path, 300, **o), lambda path, **o: Tokenizer.train(path, 300, **o),
             lambda path, **o: Tokenizer(*trained(300)).encode_files(path, "ids.npy", **o),
             lambda path, **o: training.train_bpe(texts=["a"], vocab_size=300, **o)]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match=regex.escape(told.format("body"))):
            call("renamed", column="body")
    with_columns = training.count_words(["renamed", "a.jsonl"], column="text")
    assert with_columns == Counter(training.count_words("renamed")) + Counter(training.count_words("a.jsonl"))


@pytest.mark.parametrize("texts", [{"train": ["a"], "test": ["b"]}, Counter(["train", "test"]), types.MappingProxyType({"train": 1, "test": 2})])
def test_a_dict_as_texts_is_an_error_that_names_its_keys(texts, tmp_path):
    model = Tokenizer(*trained(300))
    output = tmp_path / "ids.npy"
    calls = [lambda: training.train_bpe(texts=texts, vocab_size=300), lambda: training.count_words(texts=texts), lambda: model.encode_batch(texts),
             lambda: model.encode_arrays(texts), lambda: list(model.encode_iterable(texts)), lambda: model.encode_files(None, output, texts=texts),
             lambda: model.extend(texts=texts, n_tokens=1), lambda: model.prune(290, texts=texts)]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match=f"^texts must be an iterable of strings, not a {type(texts).__name__} with the keys 'train', 'test'"):
            call()
    assert not output.exists()


def test_a_url_is_an_error_that_names_the_cluster(error):
    for path in "s3://bucket/a.txt", "https://example.com/a.jsonl":
        assert error(path, 300) == f"error: {path} is a URL, which is read with --cluster, or by bpe_more.cluster"
        with pytest.raises(ValueError, match=f"^{path} is a URL"):
            training.train_bpe(path, 300)


def test_a_pipe_that_does_not_wait_is_read_to_its_end():
    reading, writing = os.pipe()
    os.set_blocking(reading, False)  # nothing has arrived yet, which would seem to be its end
    threading.Timer(0.1, lambda: os.write(writing, b"low lower") and os.close(writing)).start()
    with os.fdopen(reading, "rb"):
        assert training.count_words(f"/dev/fd/{reading}", []) == {b"low": 1, b" lower": 1}


@only_python
def test_a_stream_is_cut_into_pieces_that_grow():
    """The first ids come at once; later pieces are larger, since each search for a cut takes time."""
    pieces = slicing.cut_stream([b"low lower "] * 4000, "gpt2", (), 1000, 8000)
    assert [round(len(piece), -3) for piece in pieces] == [1000, 2000, 4000, 8000, 8000, 8000, 8000, 1000]


# --- workers ---------------------------------------------------------------------------------------------------------


def test_no_more_workers_than_cores_run_at_once(words_txt, monkeypatch, engine, cut):
    kind, numbers = threading.Thread if engine == "c" else multiprocessing.process.BaseProcess, []
    start = kind.start
    monkeypatch.setattr(kind, "start", lambda self: numbers.append(1) or start(self))
    cut(5, 20)
    assert training.count_words("words.txt", [], workers=100_000)[b" newest"] == 5
    assert 1 < len(numbers) <= max(os.cpu_count(), 2)


def test_many_small_files_take_little_time(tmp_path):
    paths = [tmp_path / f"{number}.txt" for number in range(200)]
    for number, path in enumerate(paths):
        path.write_text(f"low lower {number % 5}\n" * 30)
    tokenizer = Tokenizer(*trained(300))
    start = time.perf_counter()
    for pattern in ("gpt2", CUSTOM):
        assert training.count_words(paths, [], pattern=pattern, workers=2)[b"low"] >= 200
    assert tokenizer.encode_files(paths, tmp_path / "ids.npy", workers=2) > 6000
    assert time.perf_counter() - start < 3


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("end", [None, END])
def test_small_files_share_slices_and_each_is_a_text_of_its_own(tmp_path, cut, engine, workers, end):
    """Each alone is the definition: words and special tokens don't cross ends, and large or empty files keep their places."""
    rng, paths = random.Random(0), []
    for number in range(60):
        paths.append(tmp_path / f"{number}.txt")
        paths[-1].write_text(rng.choice(["", "low", "er ", "<|endof", "text|>", END, "low lower\n" * 50, "é" * 40]) + " " * (number % 3))
    paths[7:7] = ["/proc/version"] * os.path.exists("/proc/version")
    tokenizer = Tokenizer(*trained(400), [END])
    encode_alone = tokenizer.encode if end is None else tokenizer.encode_ordinary
    texts = [Path(path).read_text() for path in paths]
    ids = [encode_alone(text) + ([] if end is None else tokenizer.encode(end)) for text in texts]
    alone = Counter()
    for text in texts:
        alone.update(training.count_words(None, [END], texts=[text]))
    cut(800)
    slices = list(reading.Corpus(paths, None, choices.Options((END,))).slices(800))
    assert len(slices) < len(paths) and max(len(part) for part in slices if isinstance(part, reading.SmallFiles)) > 2
    assert training.count_words(paths, [END], engine=engine, workers=workers) == alone
    output = tmp_path / "ids.npy"
    tokenizer.encode_files(paths, output, engine=engine, workers=workers, end=end)
    assert read_ids(output)[1] == list(itertools.chain.from_iterable(ids))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_a_small_file_is_that_of_the_first_one_with_its_place(tmp_path, monkeypatch, engine, workers):
    paths = [tmp_path / f"{number}.txt" for number in range(40)]
    for path in paths:
        path.write_bytes(b"low lower")
    monkeypatch.setattr(slicing, "SLICE_BYTES", 800)
    monkeypatch.setattr(reading, "SLICE_BYTES_IN_C", 800)
    tokenizer = Tokenizer(*trained(300))
    without_w = Tokenizer({number: bytes([number]) for number in range(256) if number != 119}, [])
    options = {"engine": engine, "workers": workers}
    calls = [lambda tokenizer=tokenizer: tokenizer.encode_files(paths, tmp_path / "ids.npy", **options),
             lambda: training.count_words(paths, **options)]  # fmt: skip
    with pytest.raises(ValueError, match=r"/0\.txt, bytes 0 to 9: .* the byte b'w'"):
        calls[0](without_w)
    paths[25].write_bytes(b"low \xff")
    paths[23].write_bytes(b"low lo\xfe")
    for call in calls:
        with pytest.raises(ValueError, match=r"/23\.txt: not valid UTF-8 at byte 6 \(0xfe, "):
            call()
    corpus_of = reading.Corpus.__init__

    def removed_after_a_look(corpus, *arguments, **options):
        corpus_of(corpus, *arguments, **options)
        paths[22].unlink(missing_ok=True)

    monkeypatch.setattr(reading.Corpus, "__init__", removed_after_a_look)
    for call in calls:
        paths[22].write_bytes(b"low lower")
        with pytest.raises(FileNotFoundError, match=r"/22\.txt"):
            call()
    assert not (tmp_path / "ids.npy").exists()


def test_a_slice_has_a_limited_number_of_texts():
    """Each takes memory, even an empty one."""
    texts = itertools.repeat("", 40_000)
    sizes = [len(part.texts) for part in reading.slices_of_texts(texts, 1 << 20, "strict")]
    assert sum(sizes) == 40_000 and max(sizes) <= 20_000
    assert Tokenizer(*trained(300)).encode_batch([""] * 40_000 + ["low"])[-1] and training.count_words(None, texts=[""] * 40_000) == {}


@only_python
def test_the_python_engine_encodes_a_batch_without_threads(monkeypatch):
    """They would only fight for Python's lock."""
    without_engine(monkeypatch)
    monkeypatch.setattr(workers, "results_of_threads", None)
    tokenizer = Tokenizer(*trained(300))
    texts = [PART[:2000]] * 400
    expected = tokenizer.encode(texts[0])
    assert tokenizer.encode_batch(texts, workers=4) == [expected] * 400
    assert len(tokenizer.encode_arrays(texts)[0]) == 400 * len(expected)


REFUSED = OSError(errno.EAGAIN, "Resource temporarily unavailable")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, workers load the script again")


@only_python
@pytest.mark.parametrize("at, n_started, error", [
    ("Pipe", 0, REFUSED), ("Pipe", 0, ImportError("_multiprocessing")), ("start", 0, REFUSED), ("start", 0, ImportError("_multiprocessing")),
    pytest.param("fork", 2, REFUSED, marks=on_linux),
])  # fmt: skip
def test_if_processes_cannot_start_those_that_did_end_and_this_one_does_the_work(monkeypatch, cut, at, n_started, error):
    """tests/failures/test_refusals.py tries it on systems that refuse them."""
    cut(3000)
    expected = training.count_words(CORPUS, workers=1)
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    owner = {"Pipe": type(context), "start": context.Process, "fork": os}[at]
    real, calls = getattr(owner, at), []

    def refuse(*arguments, **options):
        calls.append(arguments)
        if len(calls) > n_started:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(owner, at, refuse)
    monkeypatch.setattr(workers, "count_cores", lambda: 4)
    assert training.count_words(CORPUS, engine="python", workers=4) == expected
    assert len(calls) == n_started + 1 and not multiprocessing.active_children()


@only_python
@pytest.mark.parametrize("mishap", ["raise MemoryError", "die()"])
def test_a_killed_worker_is_an_error_and_not_a_hang(tmp_path, mishap):
    result = call_in_script(tmp_path, f"""
        import os, signal
        from bpe_more import training
        from bpe_more.corpus import slicing
        from bpe_more.patterns import steps
        def die():
            os.kill(os.getpid(), signal.SIGKILL)
        def find_words(*arguments):
            {mishap}
            return ["word"]
        slicing.SLICE_BYTES = slicing.WINDOW_BYTES = 1000
        steps.find_words = find_words
        if __name__ == "__main__":
            try:
                training.train_bpe({str(CORPUS)!r}, 300, [], workers=2, engine="python")
            except (RuntimeError, MemoryError) as error:
                print(isinstance(error, MemoryError))
    """)
    assert (result.stdout, result.stderr) == (f"{'Memory' in mishap}\n".encode(), b""), result


@only_python
@on_linux
def test_workers_start_alike_whatever_imports_the_module(tmp_path):
    """On Linux they never load the script, so it may lack a guard or come from standard input; it ignores SIGTERM."""
    (tmp_path / "text.txt").write_text("low lower\n" * 1000)
    for arguments in (["script.py"], ["-"]):
        script = f"import signal, sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom bpe_more import training\nfrom bpe_more.corpus import slicing\n"
        script += "forks = []\nsys.addaudithook(lambda event, _: forks.append(event) if event == 'os.fork' else None)\n"
        script += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nslicing.SLICE_BYTES = slicing.WINDOW_BYTES = 3000\n"
        script += "print(training.count_words('text.txt', [], workers=2, engine='python')[b' lower'], len(forks) > 0)"
        (tmp_path / "script.py").write_text(script)
        options = {"input": script, "capture_output": True, "text": True, "cwd": tmp_path, "timeout": 60}
        result = subprocess.run([sys.executable, *arguments], **options)
        assert (result.returncode, result.stdout, result.stderr) == (0, "1000 True\n", ""), result


@only_python
@on_linux
def test_workers_have_ended_when_a_call_ends_early_and_a_few_megabytes_are_enough_for_several(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(CORPUS.read_bytes() * 40)
    corpus = reading.Corpus(path, None, choices.Options((END,)))
    assert 4 <= len(list(corpus.slices(slicing.SLICE_BYTES))) <= 6  # 4.3 MB
    task = functools.partial(counting.count_texts, options=corpus.options)
    results = corpus.results(task, in_threads=False, slice_bytes=slicing.SLICE_BYTES)
    assert next(results)[1] and len(multiprocessing.active_children()) > 1
    results.close()
    assert not multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt) as kept:  # a notebook keeps the last traceback

        def interrupt(counts):
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(counting.WordTable, "update", lambda *arguments: interrupt(arguments))
            training.count_words(path)
    assert kept.value and not multiprocessing.active_children()


def busy_task(folder, item, job=None):
    """Say that it has begun, and compute for 20 seconds."""
    (folder / f"{item}").touch()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass
    (folder / f"{item}").rename(folder / "not interrupted")


@only_python
@on_linux
@pytest.mark.parametrize("pool", ["in_order", "local cluster"])
def test_ctrl_c_interrupts_tasks_in_worker_processes(tmp_path, pool):
    task, items = functools.partial(busy_task, tmp_path), list(range(9))
    results = workers.in_order(task, iter(items), 2, in_threads=False)
    if pool == "local cluster":
        job = types.SimpleNamespace(stage="counting", versions=versions())
        results = Local(2).reports(lambda job, item: task(item), items, job)
    sent = []

    def interrupt():
        wait_for(lambda: len(list(tmp_path.iterdir())) == 2)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert time.monotonic() - sent[0] < 2
    thread.join()
    assert not multiprocessing.active_children() and sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


@only_python
@pytest.mark.skipif(not hasattr(signal, "SIGALRM"), reason="Windows has no such signal")
def test_a_handler_that_raises_waits_for_imports(tmp_path):
    """An exception inside an import may leave its lock taken, for which other threads wait forever."""
    for name in ("slow_module", "another_module"):
        (tmp_path / f"{name}.py").write_text("""
import os, signal, time
signal.setitimer(signal.ITIMER_REAL, 0.01)
time.sleep(0.1)
done = True
""")
    result = call_in_script(tmp_path, f"""
        import signal, sys
        sys.path.insert(0, {str(tmp_path)!r})
        import bpe
        from bpe_more import choices, errors
        class Alarm(Exception):
            pass
        def alarm(*_):
            raise Alarm
        signal.signal(signal.SIGALRM, alarm)
        try:
            errors.package("slow_module", "a test")
        except Alarm:
            print(sys.modules["slow_module"].done)
        bpe.find_engine = lambda: __import__("another_module")
        try:
            choices.find_engine()
        except Alarm:
            print(choices.find_engine().done)
    """)
    assert (result.stdout, result.stderr) == (b"True\nTrue\n", b"")


def test_ctrl_c_waits_while_a_worker_gets_its_slice():
    """Interrupted in Condition.__enter__, the main thread keeps a lock of the pool; tests/engine/interrupts.py tries it for real."""
    handler, steps = signal.getsignal(signal.SIGINT), []

    def interrupted():
        with delayed(signal.SIGINT):
            signal.raise_signal(signal.SIGINT)
            steps.append("done")
        steps.append("not reached in the main thread")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["done"] and signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(ZeroDivisionError), delayed(signal.SIGINT):
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is handler
    with concurrent.futures.ThreadPoolExecutor(1) as pool:  # another thread is never interrupted
        assert pool.submit(lambda: delayed(signal.SIGINT).__enter__()).result() is None


@only_python
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_while_another_thread_makes_an_encoder_waits_for_no_lock():
    """Before Python 3.12, functools.cached_property holds one lock for all objects, which the child can't get."""
    first, second = (Tokenizer(*trained(300)) for _ in range(2))
    making, go_on = threading.Event(), threading.Event()

    def slow_items():
        making.set()
        go_on.wait(20)
        return ()

    first.merge_ids = type("Slow", (), {"__iter__": lambda self: iter(slow_items())})()
    thread = threading.Thread(target=lambda: first.encoder)
    thread.start()
    assert making.wait(20)
    child = os.fork()
    if not child:
        os._exit(second.encode("low") != list(b"low"))
    ended = []
    wait_for(lambda: ended.append(os.waitpid(child, os.WNOHANG)) or any(ended[-1]), seconds=10)
    if not any(ended[-1]):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    go_on.set()
    thread.join()
    assert ended[-1] == (child, 0)


# --- encoding files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", [*bpe.PATTERNS, CUSTOM])
@pytest.mark.parametrize("special_tokens", SPECIALS)
def test_encoding_a_file_equals_encoding_its_text(words_txt, cut, pattern, special_tokens):
    rng = random.Random()
    tokenizer = Tokenizer(*trained(600, pattern), special_tokens, pattern)
    for _ in range(4):
        text = nested(rng, special_tokens) + " and " + nested(rng, special_tokens)
        Path("words.txt").write_bytes(text.encode())
        cut(rng.choice([1, 7, 50]), rng.choice([15, 30, 64]))
        ids = tokenizer.encode(text)
        assert tokenizer.encode_files("words.txt", "ids.npy", workers=1) == len(ids)
        assert read_ids("ids.npy") == ("u2", ids), text


@pytest.mark.parametrize("workers", [1, 2])
def test_the_number_of_workers_changes_no_id(tmp_path, part, cut, workers):
    other, text = tmp_path / "other.txt", "  one more text  "
    other.write_text(text)
    cut(7000)
    tokenizer = Tokenizer(*trained(2000), [END])
    ids = tokenizer.encode(PART) + tokenizer.encode(text) + tokenizer.encode(PART)
    with pipe_of(PART.encode()) as pipe:
        n_ids = tokenizer.encode_files(iter([pipe, other, str(part)]), tmp_path / "ids.npy", workers=workers)
    assert read_ids(tmp_path / "ids.npy") == ("u2", ids) and n_ids == len(ids)
    assert sorted(os.listdir(tmp_path)) == ["ids.npy", "other.txt"]


def test_a_special_token_beyond_65535_makes_all_ids_of_a_file_four_bytes_wide(tmp_path):
    vocab, merges = trained(300)
    for largest, special_tokens, kind in (2**16 - 1, [END], "u2"), (2**16 - 1, [END, "<new>"], "u4"), (2**32 - 2, [END], "u4"):
        shifted = {token_id + largest - 299: token for token_id, token in vocab.items()}
        tokenizer = Tokenizer(shifted, merges, special_tokens)
        tokenizer.encode_files(texts=[PART], output=tmp_path / "ids.npy")
        assert read_ids(tmp_path / "ids.npy") == (kind, tokenizer.encode(PART))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("pattern", [
    "gpt2", CUSTOM, (r"\p{N}{1,3}", "[一-龥]+", r"[<|>.'][A-Za-z]+|[^\s\p{L}]?\p{L}+|\s+(?!\S)|\s+"),  # steps that C follows in turn
])  # fmt: skip
def test_text_that_cannot_be_encoded_is_an_error_and_leaves_the_earlier_file(tmp_path, cut, workers, pattern):
    cut(9000)
    data = bytearray(b"word and word. " * 2000)
    path, output = tmp_path / "text.txt", tmp_path / "ids.npy"
    path.write_bytes(data)
    output.write_bytes(b"earlier")
    without_d = Tokenizer({number: bytes([number]) for number in range(256) if number != 100}, [], [], pattern)
    with pytest.raises(ValueError, match=r"text\.txt, bytes 0 to \d+: .* the byte b'd'"):
        without_d.encode_files(path, output, workers=workers)
    data[20_000] = data[12_345] = 0xFF
    path.write_bytes(data)
    tokenizer = Tokenizer(*trained(300), [END], pattern)
    with pytest.raises(ValueError, match=r"text\.txt: not valid UTF-8 at byte 12345 \(0xff, [a-z ]+\)$"):
        tokenizer.encode_files(path, output, workers=workers)
    assert output.read_bytes() == b"earlier" and sorted(os.listdir(tmp_path)) == ["ids.npy", "text.txt"]
    tokenizer.encode_files(path, output, workers=workers, errors="replace")
    assert read_ids(output) == ("u2", tokenizer.encode(data.decode(errors="replace")))


@only_c
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux counts it")
def test_encoding_takes_little_memory(tmp_path):
    """The ids alone take 205 MB."""
    train_and_save(tmp_path / "model", CORPUS, 2000, [END])
    (tmp_path / "text.txt").write_bytes(CORPUS.read_bytes() * 300)  # 32 MB
    result = call_in_script(tmp_path, f"""
        import bpe
        from bpe_more import Tokenizer
        tokenizer = Tokenizer.load({str(tmp_path / "model")!r})
        n_ids = tokenizer.encode_files([{str(tmp_path / "text.txt")!r}] * 8, {str(tmp_path / "ids.npy")!r}, workers=2)
        print(n_ids, *[int(line.split()[1]) // 1000 for line in open("/proc/self/status") if line.startswith("VmHWM")])
    """)
    n_ids, megabytes = map(int, result.stdout.split())
    assert n_ids * 2 + 128 == (tmp_path / "ids.npy").stat().st_size > 200_000_000 and megabytes < 180
    (tmp_path / "ids.npy").unlink()


@pytest.mark.parametrize("break_at", [1, 5, "the rename"])
def test_an_interruption_while_encoding_leaves_the_earlier_file(tmp_path, monkeypatch, break_at, cut):
    def texts():
        for number in range(6):
            if number == break_at:
                raise KeyboardInterrupt
            yield "low lower\n" * 300
        monkeypatch.setattr(os, "replace", None)

    cut(3000)
    (tmp_path / "ids.npy").write_bytes(b"earlier")
    with pytest.raises((KeyboardInterrupt, TypeError)):
        Tokenizer(*trained(300)).encode_files(None, tmp_path / "ids.npy", texts=texts(), workers=1)
    assert files_of(tmp_path) == {"ids.npy": b"earlier"}


@only_python
def test_the_pattern_for_a_folder_finds_its_files_whatever_its_name_is(tmp_path):
    (tmp_path / "data[1]").mkdir()
    (tmp_path / "data[1]/a.txt").write_text("low low")
    with pytest.raises(ValueError, match="name its files: ") as caught:
        training.count_words(tmp_path / "data[1]")
    way = str(caught.value).partition("name its files: ")[2]
    assert eval(way, {"glob": glob}) == [str(tmp_path / "data[1]/a.txt")]
