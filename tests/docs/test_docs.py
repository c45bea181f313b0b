"""The figures of the exercises in docs, and the pictures of the README, are what the code gives.

    pytest -q tests/docs/test_docs.py
"""

import contextlib
import inspect
import io
import json
import random
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import regex
from test_exercises import train

import bpe
import bpe_more
from test_bpe import END, FIXTURE, HERE


@pytest.mark.parametrize("name", ["docs/exercises.md", "docs/exercises.zh.md"])
def test_the_answers_to_the_exercises_have_the_figures_that_their_code_prints(name):
    """test_pages.py runs the code, and compares what it prints with its comments."""
    text = (HERE / name).read_text(encoding="utf-8")
    rows = dict(regex.findall(r"(?m)^\| (\d) (\|.*)$", text))
    code = text.partition("\nours = train_by_definition")[2].partition("```")[0]
    parts = regex.split(r"(?m)^# (\d)$", code)
    for number, part in zip(parts[1::2], parts[2::2]):
        printed = " ".join(regex.findall(r"(?m)^print.* # (.*)$", part))
        figures = regex.findall(r"\d+", regex.sub(r"b'.'", "", printed))
        assert figures, number
        for figure in figures:
            assert regex.search(rf"(?<!\d){int(figure):,}(?!\d)", rows[number]), (number, figure)
    assert parts[1::2] == list("1234568")
    words = {b"".join(word): count for word, count in bpe.words_of(FIXTURE[:20_000]).items()}
    assert "`' a' 'nd'`" in rows["1"] and train(words, 15, "ties by the smaller pair")[14] == (b" a", b"nd")


@pytest.mark.parametrize("name", ["tokens", "walk", "bars"])
def test_each_picture_is_the_one_that_its_script_draws(tmp_path, name):
    subprocess.run([sys.executable, HERE / f"benchmarks/{name}.py", tmp_path / "new.svg"], check=True)
    assert (tmp_path / "new.svg").read_bytes() == (HERE / f"benchmarks/{name}.svg").read_bytes()


def test_the_curve_has_the_compression_of_encoding(tmp_path):
    command = [sys.executable, HERE / "benchmarks/curve.py", tmp_path / "new.svg", HERE / "fixtures/corpus.txt"]
    told = subprocess.run([*command, "--vocab-size=1000"], check=True, capture_output=True, text=True).stdout
    texts = FIXTURE.split(END)
    ids = bpe.Tokenizer.train(texts=texts, vocab_size=1000, special_tokens=[END]).encode_batch(texts)
    ratio = len("".join(texts).encode()) / sum(map(len, ids))
    assert told.endswith(f" {ratio:.2f} |\n") and f"1k: {ratio:.2f}" in (tmp_path / "new.svg").read_text("utf-8")


def test_the_version_is_the_same_everywhere():
    changelog = (HERE / "CHANGELOG.md").read_text(encoding="utf-8")
    assert regex.search(r"(?m)^## (\S+)", changelog)[1] == bpe.__version__
    for page in ("README.md", "README.zh.md"):
        text = (HERE / page).read_text(encoding="utf-8")
        assert regex.search(r"(?:Version|当前版本) (\d+\.\d+\.\d+)", text)[1] == bpe.__version__


# --- English and Chinese say the same --------------------------------------------------------------------------------

PAGES = [path.relative_to(HERE) for path in [HERE / "README.md", *sorted(HERE.glob("docs/*.md"))]]
TRANSLATED = [page for page in PAGES if page.with_suffix(".zh.md") in PAGES or page.name == "README.md"]
IN_CHINESE = r"[\d,.]+ [万亿]（([\d.]+ [mb]illion)）"  # "3 亿（0.3 billion）"
LINK = r"(?<=])\(([^)]*)\)"


def without_blocks(text):
    return regex.sub(r"(?ms)^```.*?^```$", "", text)


def blocks_of(text):
    """The blocks, without comments in Python, which are translated; a comment after print() is its output, and stays."""
    blocks = regex.findall(r"(?ms)^```(\w+)\n(.*?)^```$", text)
    return [language + "\n" + regex.sub(r"(?m)^((?!print).*?)(^| +)# .*$", r"\1", code) for language, code in blocks]


def inline_code_of(text):
    return sorted({code.replace("\n", " ") for code in regex.findall(r"`([^`]+)`", without_blocks(text))})


def links_of(text):
    """The files and addresses that a page links to, and how often: without languages, and without anchors."""
    return sorted(target.replace(".zh.md", ".md").partition("#")[0] for target in regex.findall(LINK, without_blocks(text)))


def figures_of(text):
    """The numbers on a page, without pictures; "2400 万" is 24 million, "3 亿（0.3 billion）" 0.3, "11 月" November."""
    text = regex.sub(r"!\[[^]]*]|\d+ 月", "", text).replace("2400 万", "24")
    text = regex.sub(IN_CHINESE, r"\1", text)
    return sorted(set(regex.findall(r"\d(?:[\d,.]*\d)?", text)))


def figures_in_tables_of(text):
    """The numbers of each row of a table, sorted, since two languages order words differently."""
    text = regex.sub(IN_CHINESE, r"\1", text)
    return [sorted(regex.findall(r"\d(?:[\d,.]*\d)?", row)) for row in regex.findall(r"(?m)^\|.*$", text)]


def headings_of(text):
    """The levels of the headings, in order."""
    return regex.findall(r"(?m)^(#+) ", without_blocks(text))


ENGLISH_ONLY = ["docs/design.md", "docs/experiments.md"]  # for maintainers


def test_each_page_for_users_is_in_chinese_too():
    assert [page.as_posix() for page in PAGES if page not in TRANSLATED and not page.stem.endswith(".zh")] == ENGLISH_ONLY


READ = [headings_of, blocks_of, inline_code_of, links_of, figures_of, figures_in_tables_of]


@pytest.mark.parametrize("read", READ, ids=lambda read: read.__name__)
@pytest.mark.parametrize("page", TRANSLATED, ids=str)
def test_english_and_chinese_say_the_same(page, read):
    english, chinese = ((HERE / name).read_text(encoding="utf-8") for name in (page, page.with_suffix(".zh.md")))
    found, expected = read(chinese), read(english)
    other = page.with_suffix(".zh.md")
    assert found == expected, f"edit {other}: its {read.__name__[:-3]} differ; without Chinese, put the English sentence there"


def anchors_of(page):
    """The anchors of the headings on a page, as GitHub makes them."""
    headings = regex.findall(r"(?m)^#+ (.*)$", without_blocks(page.read_text(encoding="utf-8")))
    return {regex.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


LINKING = [*PAGES, *map(Path, ["CHANGELOG.md", "CONTRIBUTING.md", "README.zh.md", "benchmarks/README.md"])]


@pytest.mark.parametrize("page", LINKING, ids=str)
def test_each_link_leads_to_a_file_and_a_heading(page):
    for link in regex.findall(LINK, without_blocks((HERE / page).read_text(encoding="utf-8"))):
        name, _, anchor = link.partition("#")
        target = (HERE / page).parent / name if name else HERE / page
        if not regex.match("https?:", link):
            assert target.exists(), link
            assert target.suffix != ".md" or not anchor or anchor in anchors_of(target), link


# --- the README's and other pages' tables and blocks -------------------------------------------------------------------


# steps of encode and encode_batch, which a reader of bpe.py meets
NOT_FOR_USERS = {"encode_in_python", "encode_slice", "encode_texts", "encode_word", "encoder", "find_merge_ids",
                 "merge_ids", "set_ids", "check_made_tokens",
                 "corpus_of", "encoder_for", "id_bytes", "settings", "warn_of_unmade", "whole_words", "with_only"}


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "docs/design.md"])
def test_a_page_that_everybody_reads_is_short(name):
    text = (HERE / name).read_text(encoding="utf-8").split("<!-- tests/imports.py writes this -->")  # a drawing
    assert len("".join([text[0], *(part.split("```\n", 1)[1] for part in text[1:])]).splitlines()) <= 150


def callables_of(module):
    """{name: function} for the public functions of a module, and the methods of its Tokenizer."""
    found = {name: getattr(module, name) for name in module.__all__}
    found |= {name: getattr(module.Tokenizer, name) for name in dir(module.Tokenizer) if name[0] != "_"}
    return {name: value for name, value in found.items() if callable(value) and name not in NOT_FOR_USERS}


def test_docs_python_names_every_public_name_and_argument_and_no_others():
    text = (HERE / "docs/python.md").read_text(encoding="utf-8")
    plain, more = regex.findall(r"(?m)^\| (?:also )?in `bpe(?:_more)?` \|.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    options, only_more = regex.findall(r"(?m)^\| (?:in Python|only in `bpe_more`) \|.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    for rows, taken, module in ((plain, options, bpe), (plain + more, options + only_more, bpe_more)):
        names = {*module.__all__, *(name for name in dir(module.Tokenizer) if name[0] != "_")} - NOT_FOR_USERS
        assert not [name for name in names if not regex.search(rf"\b{name}[(.`]", rows)], module
        arguments = {argument for value in callables_of(module).values() for argument in inspect.signature(value).parameters}
        arguments -= {"self", "options", "kept", "normalized", "rest", "unreachable", "lstrip", "rstrip", "shared"}
        assert not [name for name in arguments if not regex.search(rf"\b{name}\b", rows + taken)], module
        defaults = regex.findall(r"`(\w+)=([^`=]+)`", taken)
        ways = inspect.signature(module.Tokenizer.train).parameters | inspect.signature(module.Tokenizer.encode_files).parameters
        assert all(repr(ways[name].default) == json_quotes(value) for name, value in defaults if name != "special_tokens")
        assert len(defaults) >= 5
    called = set(regex.findall(r"`(?:Tokenizer\.)?(\w+)\(", plain + more)) - {"dict"}
    assert called <= {*callables_of(bpe), *callables_of(bpe_more), "Tokenizer"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        bpe_more.main(["--help"])
    for option in regex.findall(r"`(--[\w-]+)", text):
        assert f"  {option} " in printed.getvalue(), option


def json_quotes(value):
    return value.replace('"', "'")


def sources():
    """{path: text} for the files of the project that have names which docs/design.md may give."""
    found = [path for ending in ("py", "c", "html", "sh") for path in HERE.rglob(f"*.{ending}")]
    found += [HERE / "tests/engine/sanitize", HERE / "tests/engine/other_systems"]
    return {path.relative_to(HERE).as_posix(): path.read_text(encoding="utf-8") for path in found if ".venv" not in path.parts}


def test_docs_design_names_only_files_and_functions_that_exist_and_their_places():
    text, files = (HERE / "docs/design.md").read_text(encoding="utf-8"), sources()
    everything = "\n".join(files.values())
    for code in set(regex.findall(r"`([^`\n]+)`", text)):
        if regex.fullmatch(r"[\w/.]+\.(?:py|c|html|md)|tests/[\w/]+", code):
            assert (HERE / code).exists() or any(path.endswith(f"/{code}") for path in files), code
        elif not regex.fullmatch(r"[\w.]+\.(?:json|txt|h)", code):
            names = regex.findall(r"[A-Za-z_]\w{3,}", code.split("(")[0])
            assert all(regex.search(rf"\b{name}\b", everything) for name in names), code
    parts = regex.split(r"(?m)^# -+\n# ([IVX]+)\. .*\n# -+\n", files["bpe.py"])
    contents = dict(zip(parts[1::2], parts[2::2]))
    places = regex.findall(r"`(\w+)`,? (?:in|of) Part ([IVX]+)", text)
    for name, part in places:
        assert regex.search(rf"(?m)^(?:def |class |){name}\b", contents[part]), (name, part)
    in_files = regex.findall(r"`(?:\w+\.)?(\w+)` in `([\w/.]+\.\w+)`", text)
    for name, path in in_files:
        assert regex.search(rf"(?m)^ *(?:def |class |){name}\b", files[path]), (name, path)
    assert len(places) >= 4 and len(in_files) >= 2


def test_contributing_names_tests_that_exist():
    named = regex.findall(r"\btests(?:/[\w*]+)+(?:\.\w+)?", (HERE / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(named) >= 10 and [name for name in named if not any(HERE.glob(name))] == []


@pytest.mark.parametrize("page", [page for page in LINKING if page.name != "CHANGELOG.md"], ids=str)
def test_a_page_installs_this_project_from_a_clone(page):
    """It is in no index yet. A class installs it from a folder of wheels."""
    lines = (HERE / page).read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if regex.search(r"pip install (?!--no-index )[^`]*\bbpe-py\b", line)]


def pattern_named(name, text):
    """A named pattern, or the expression that follows a model's name on a page (Mistral, StarCoder...)."""
    name = regex.search(r"[\w.]+(?: 3\.5)?", name)[0]
    return name if name in bpe.PATTERNS else regex.search(rf"(?ms)^{name}.*?^    (\S.*?)$", text)[1]


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/compatibility.md", "docs/compatibility.zh.md"])
def test_the_tables_of_samples_show_the_words_of_each_pattern(page):
    text, found = (HERE / page).read_text(encoding="utf-8"), 0
    table = regex.search(r"(?m)^\|[^|]*\| `(?:I don't|in 1234)`.*\n\|[-|]+\n((?:\|.*\n)+)", text)
    samples = regex.findall(r"`([^`]+)`", table[0].partition("\n")[0])
    for row in table[1].splitlines():
        name, *cells = row.strip("| ").split("|")
        for sample, cell in zip(samples, cells):
            words = [word.replace("␣", " ") for word in regex.findall(r"`([^`]+)`", cell)]
            assert words == bpe_more.find_words(sample, pattern_named(name, text)), (name, sample)
            found += 1
    assert len(samples) == 4 and found >= 16


# --- docs/compatibility.md: the ways out of what Tokenizer.load refuses ------------------------------------------------


def added(name, value):
    return lambda content: content["added_tokens"][1].update({name: value})


def entry(name, value):
    return lambda content: content.update({name: value})


def prefix_space(value):
    return entry("pre_tokenizer", {"type": "ByteLevel", "add_prefix_space": value, "trim_offsets": True, "use_regex": True})


NFD, LOWER = {"type": "NFD"}, {"type": "Lowercase"}
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
WAYS_OUT = {  # what is refused, the change, and what to do with the text
    "NFD": (entry("normalizer", NFD), entry("normalizer", None), lambda text: unicodedata.normalize("NFD", text)),
    "Lowercase": (entry("normalizer", LOWER), entry("normalizer", None), lambda text: text.replace("Σ", "").lower()),
    "Strip": (entry("normalizer", STRIP), entry("normalizer", None), str.strip),
    "Sequence": (entry("normalizer", {"type": "Sequence", "normalizers": [NFD, STRIP]}), entry("normalizer", None),
                 lambda text: unicodedata.normalize("NFD", text).strip()),
    "add_prefix_space": (prefix_space(True), prefix_space(False), lambda text: text if text[0] == " " else " " + text),
    "single_word": (added("single_word", True), added("single_word", False), lambda text: text),
}  # fmt: skip


@pytest.mark.parametrize("refused", WAYS_OUT)
def test_the_ways_out_of_refusals_give_the_ids_of_the_package(tmp_path, refused):
    tokenizers = pytest.importorskip("tokenizers")
    bpe_more.Tokenizer.train(texts=[FIXTURE], vocab_size=1000, special_tokens=[END, "<mask>"]).save(tmp_path)
    path, rng = tmp_path / "tokenizer.json", random.Random(refused)
    change, repair, prepare = WAYS_OUT[refused]
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(content))
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ValueError, match=f"{refused}.*(is|are) not supported"):
        bpe_more.Tokenizer.load(tmp_path)
    repair(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    ours, masked = bpe_more.Tokenizer.load(tmp_path), refused == "single_word"
    pieces = [*FIXTURE.replace(END, "").splitlines(keepends=True)[:200], "É", "e\u0301", "한국어", "ﬁ", "  ", "\t", "ÀB"]
    for _ in range(200):
        text = "".join(rng.choices([*pieces, *[" <mask> ", "\n<mask>\t.", "! <mask>!"] * 20 * masked], k=rng.randint(1, 6)))
        if text.strip():
            assert ours.encode(prepare(text)) == theirs.encode(text.replace("Σ", ""), add_special_tokens=False).ids, text
