"""What files are that can't be read: bpe_more/formats/kinds.py."""

import base64
import json
import os
import pickle
import re
import textwrap
import threading
import time
import types
from pathlib import Path

import pytest
import regex

import bpe
from bpe_more import explain
from bpe_more.formats.tiktoken import read_tiktoken
from bpe_more.tokenizer import Tokenizer
from shared import contents, only_c, only_python, trained
from test_bpe import END, GPT2, HERE

POINTER = 'docs/compatibility.md, "Files to convert", has the lines'


@only_python
def test_a_model_that_is_not_there_is_an_error_with_the_way_to_it(words_txt):
    for name in ("gpt2", "openai-community/gpt2"):
        with pytest.raises(FileNotFoundError, match=r"from a hub, download tokenizer\.json first\): '" + name) as caught:
            Tokenizer.load(name)
        assert (caught.value.errno, caught.value.filename) == (2, name)
    tokenizer = Tokenizer.train("words.txt", 262)
    tokenizer.save("two files")
    os.remove("two files/tokenizer.json")
    with pytest.raises(FileNotFoundError) as caught:
        Tokenizer.load("two files")
    assert caught.value.filename == "two files"
    way = regex.search(r"; (Tokenizer.from_files.*\.save\(folder\))", str(caught.value))[1]
    os.chdir("two files")
    eval(way, {"Tokenizer": Tokenizer, "folder": "."})  # the way works
    assert contents(Tokenizer.load(".")) == contents(tokenizer)
    os.makedirs("none/x.model")
    with pytest.raises(FileNotFoundError, match="No tokenizer.json in this folder: 'none'"):
        Tokenizer.load("none")


@only_python
@pytest.mark.parametrize("name, data, way", [
    ("tokenizer.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n", "tokenizer.model: this is a SentencePiece model, not byte-level BPE"),
    ("tokenizer.model", b"IQ== 0\n", r"tokenizer.model has ranks of tiktoken: vocab, merges = read_tiktoken\(path\)"),
    ("tokenizer.model", b"minbpe v1\n", "Tokenizer.load takes the path of tokenizer.model, which is minbpe's"),
    ("o200k_base.tiktoken", b"IQ== 0\n", r"o200k_base.tiktoken has ranks of tiktoken: vocab, merges = read_tiktoken\(path\)"),
    ("vocab.bpe", b"#version: 0.2\n", r'Tokenizer.from_files\("encoder.json", "vocab.bpe"\)'),
    ("x.gguf", b"GGUF", "docs/compatibility.md has the lines that read x.gguf"),
    ("tokenizer.json.gz", b"\x1f\x8b", "tokenizer.json.gz is compressed: decompress it first"),
])  # fmt: skip
def test_a_folder_without_tokenizer_json_says_what_is_there_and_how_to_load_it(tmp_path, name, data, way):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(FileNotFoundError, match=f"No tokenizer.json in this folder; {way}"):
        Tokenizer.load(tmp_path)


def test_a_file_of_many_digits_is_refused_in_linear_time(tmp_path):
    """1 2 and 4,000 digits took 0.13 s, and 8,000 digits 0.5 s."""
    (tmp_path / "tokenizer.json").write_text("1 2 " + "7" * 20_000)
    start = time.process_time()
    with pytest.raises(ValueError, match="tokenizer.json: "):
        Tokenizer.load(tmp_path)
    assert time.process_time() - start < 1


def lines_of_page(kind):
    """The lines in docs/compatibility.md for a kind of files, as the errors point to them; in both languages the same."""
    blocks = []
    for page, heading in (("compatibility.md", "### Files to convert"), ("compatibility.zh.md", "### 需要转换的文件")):
        section = (HERE / "docs" / page).read_text(encoding="utf-8").partition(f"{heading}\n")[2].partition("\n## ")[0]
        blocks.append(re.findall(r"(?m)(?:^    .*\n)+", section))
    assert blocks[0] == blocks[1] and len(blocks[0]) == 5
    return textwrap.dedent(blocks[0][["ids", "pairs", "base64", "npm", "pickle"].index(kind)])


def run_lines(lines, path):
    """Run lines of the page; return the names that they bind."""
    found = {"json": json, "re": re, "base64": base64, "pickle": pickle, "bpe": bpe, "read_tiktoken": read_tiktoken, "path": path}
    exec(lines, found)
    return found


def test_the_lines_for_a_pickle_of_nanochat_read_it(tmp_path):
    (tmp_path / "tokenizer.pkl").write_bytes(pickle.dumps(types.SimpleNamespace(_mergeable_ranks={b"a": 0, b"b": 1, b"ab": 2})))
    with pytest.raises(ValueError, match=f"this is a pickle.*{POINTER} for one that you trust"):
        Tokenizer.load(tmp_path / "tokenizer.pkl")
    assert run_lines(lines_of_page("pickle"), tmp_path / "tokenizer.pkl")["merges"] == [(b"a", b"b")]


@only_c
def test_the_lines_for_an_encoder_of_the_npm_package_tiktoken_read_it(tmp_path):
    vocab = {token_id: token for token_id, token in trained(300)[0].items() if token_id != 256}
    words = [base64.b64encode(token).decode() for token in vocab.values()]
    ranks = f"! 0 {' '.join(words[:256])}\n! 257 {' '.join(words[256:])}"
    path = tmp_path / "cl100k.json"
    path.write_text(json.dumps({"pat_str": GPT2, "special_tokens": {END: 256}, "bpe_ranks": ranks}))
    for read in (Tokenizer.load, read_tiktoken):
        with pytest.raises(ValueError, match=f"this is an encoder of the npm package tiktoken; {POINTER} that read it$"):
            read(path)
    assert run_lines(lines_of_page("npm"), path)["vocab"] == vocab


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_that_is_no_model_is_an_error_and_is_not_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_text('{"model": {"type": "Unigram", "vocab": []}}'), daemon=True)
    writer.start()
    with pytest.raises(ValueError, match="pipe: .*Unigram"):
        Tokenizer.load(tmp_path / "pipe")
    writer.join()


@only_python
def test_files_with_ids_in_the_place_of_tokens_say_what_they_are_and_how_to_convert_them(words_txt):
    """Results of the course CS336 are often stored so. The lines that the errors point to make files that load."""
    tokenizer = Tokenizer.train("words.txt", 268)
    tokenizer.save(".")
    ids = json.loads(Path("vocab.json").read_text("utf-8"))
    Path("other.json").write_text(json.dumps({str(token_id): token for token, token_id in ids.items()}))
    with pytest.raises(ValueError, match=rf"^other\.json: this is \{{id: token\}}, not \{{token: id\}}; {POINTER} that convert it$"):
        Tokenizer.from_files("other.json", "merges.txt")
    Path("vocab.json").unlink()
    run_lines(lines_of_page("ids"), "other.json")
    assert json.loads(Path("vocab.json").read_text("utf-8")) == ids

    pairs = [(tokenizer.ids[left], tokenizer.ids[right]) for left, right in tokenizer.merges]
    files = {
        "lines.txt": "\n".join(f"{left} {right}" for left, right in pairs), "tuples.txt": "\n".join(map(str, pairs)),
        "version.txt": "#version: 0.2\n" + "\n".join(f"{left} {right}" for left, right in pairs),
        "comma.txt": "\n".join(f"{left}, {right}" for left, right in pairs), "pairs.json": json.dumps(pairs),
    }  # fmt: skip
    expected = Path("merges.txt").read_text("utf-8").splitlines()[1:]
    *ways, names, lines = lines_of_page("pairs").splitlines()
    of_json, of_keys, of_lines = ("\n".join([way, names, lines]) for way in ways)
    for form in ("%d,%d", "(%d, %d)"):
        Path("new ids.json").write_text(json.dumps({form % pair: 256 + number for number, pair in enumerate(pairs)}))
        with pytest.raises(ValueError, match=f"^new ids.json: these are pairs of ids, not of tokens; {POINTER} that convert them$"):
            Tokenizer.from_files("vocab.json", "new ids.json")
        assert run_lines(of_keys, "new ids.json")["lines"] == expected
    in_base64 = [" ".join(base64.b64encode(token).decode() for token in pair) for pair in tokenizer.merges]
    Path("base64.txt").write_text("\n".join(in_base64))
    with pytest.raises(ValueError, match=f"^base64.txt: these are merges in base64; {POINTER} that convert them$"):
        Tokenizer.from_files("vocab.json", "base64.txt")
    assert run_lines(lines_of_page("base64"), "base64.txt")["lines"] == expected
    for name, text in files.items():
        Path(name).write_text(text)
        for read in (lambda path: Tokenizer.from_files("vocab.json", path), explain.read_pairs):  # read_pairs: --compare
            with pytest.raises(ValueError, match=f"^{name}: these are pairs of ids, not of tokens; {POINTER} that convert them$"):
                read(name)
        made = run_lines(of_json if name == "pairs.json" else of_lines, name)["lines"]
        assert made == expected
    Path("merges.txt").write_text("\n".join(made), encoding="utf-8")
    assert contents(Tokenizer.from_files("vocab.json", "merges.txt")) == contents(tokenizer)


@only_python
def test_merges_of_digits_are_not_taken_for_ids(words_txt):
    """Even if an earlier line uses what a later one makes: merges of other programs may be in any order."""
    Path("words.txt").write_text("12.12.12.123.123.2024.2024.1.1")
    tokenizer = Tokenizer.train("words.txt", 268)
    tokenizer.save("model")
    assert tokenizer.merges[0][0] + tokenizer.merges[0][1] == b"12"
    assert contents(Tokenizer.from_files("model/vocab.json", "model/merges.txt")) == contents(tokenizer)
    Path("any.txt").write_text("12 3\n1 2\n")
    assert explain.read_pairs("any.txt")[1] == [(b"12", b"3"), (b"1", b"2")]
    Path("any.txt").write_bytes(b"\xef\xbb\xbf#version: 0.2\n12 3\n1 2\n")  # as some editors write it
    assert explain.read_pairs("any.txt")[1] == [(b"12", b"3"), (b"1", b"2")]
