"""What the C engine scans, how it is found and built, and what it can't do."""

import array
import concurrent.futures
import functools
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
import types
import warnings
from collections import Counter
from pathlib import Path

import pytest
import regex

import bpe
import build_ffi
from bpe_more import choices, training
from bpe_more.corpus import counting, reading
from bpe_more.patterns import automaton, machine, steps
from bpe_more.tokenizer import Tokenizer
from shared import FORMS, KNOWN, NOT_IN_C, C, edit, one_line, only_c, read_ids, summary, trained, words_in
from test_bpe import (
    CORPUS,
    END,
    HERE,
    PART,
    ROOT,
    TRICKY,
    copy_sources,
    naive_split,
    need,
    random_text,
    with_merges,
    words_of_the_fixture,
)

pytestmark = only_c

# --- scanning --------------------------------------------------------------------------------------------------------

# Expressions with what C reads in its own way, and texts with their words, by hand.
CUSTOM_WORDS = [
    (r"\p{N}{1,2}|\p{L}+|\s", "12345 ab", "12|34|5| |ab"),
    (r"\w+", "  a-b!", "  |a|-|b|!"),  # text between matches
    (r"a|ab|.", "ab", "a|b"),  # the first alternative that matches, not the longest
    (r"ab|a|.", "abab", "ab|ab"),
    (r"a+?b|.", "aab", "aab"),  # lazy, but it has to go on
    (r"a{2}?|.", "aaa", "aa|a"),
    (r"\p{L}{2,}|.", "abc d", "abc| |d"),
    (r"[^\s]+(?=!)|.", "ab!", "ab|!"),
    (r"\s+(?!\S)|\s+|\w+", "a   b", "a|  | |b"),
    (r"\w+|\s++$|\s", "a  b \n", "a| | |b| \n"),  # $ is the end, though it could be before the last newline, too
    (r"(?i:s)|.", "ſSsK", "ſ|S|s|K"),
    (r"(?i:s)+|.", "ſSsK", "ſSs|K"),
    (r"x?+\p{L}\d|.", "a1x2", "a1|x|2"),  # not supported: x?+ takes the x, and x? gives it back
    (r"[^\r\n\p{L}]?+\p{L}++|.", " ab!c1", " ab|!c|1"),
    (r"'(?:ll|s)|'|\p{L}+", "'l'll's", "'|l|'ll|'s"),
    (r"(?=b)\w\w|.", "abc", "a|bc"),
    (r"\p{Lu}\p{Ll}+|\p{Lu}+(?!\p{Ll})|.", "HTMLParser", "HTML|Parser"),
    (r".", "a\nb", "a|\n|b"),  # a newline is no match, but a word
    (r"\s*[\r\n]|\s", "\n  x \n", "\n| | |x| \n"),
    (r"[\w&&[^\d]]+|.", "ab1c", "ab|1|c"),  # letters that are no digits
    (r"[a-z--[b-d]]+|.", "abce", "a|b|c|e"),
    (r"[a-c~~c-e]+|.", "abcde", "ab|c|de"),  # in one of them, but not in both
    (r"[a[^a-z]]+|.", "a1b", "a1|b"),
    (r"[^]a]+|.", "b]a", "b|]|a"),
    (r"[[:alpha:]]+|.", "ab1", "ab|1"),
    (r"[[a]+|.", "[ab", "[a|b"),  # not supported: a literal [
    (r"a{٢}|.", "aa{", "a|a|{"),  # text, since ٢ is no digit of a repetition
    (r"a{0}+b|.", "ab", "a|b"),
    (r"(?:a{0}+b)+c|.", "bbc", "bbc"),
    (r"a{0}+$|.", "ab", "a|b"),
    (r"{1,٣}|.", "{1,٣}a", "{1,٣}|a"),
]


@pytest.mark.parametrize("pattern, text, words", CUSTOM_WORDS)
def test_the_words_of_custom_patterns(pattern, text, words):
    version = "(?V0)" if pattern.startswith("[[a]") else "(?V1)"
    assert naive_split(text, version + pattern) == words.split("|")
    longer = text + " y" * 50 + text
    for each, engine in itertools.product((text, longer, longer + "é字" * 40 + text), ("auto", "python")):
        assert words_in(each, pattern=pattern, engine=engine) == Counter(naive_split(each, version + pattern))


OTHER_MODELS = ["Mistral", "Qwen 3.5", "StarCoder and SmolLM"]  # in docs/compatibility.md


@pytest.mark.parametrize("number", range(len(OTHER_MODELS)), ids=OTHER_MODELS)
def test_expressions_of_other_models_have_the_words_of_their_own_steps(number):
    tokenizers, rng = need("tokenizers"), random.Random(number)
    steps = tokenizers.pre_tokenizers
    for name in ("compatibility.md", "compatibility.zh.md"):
        expressions = regex.findall(r"(?m)^    (\S.*\|\\s\+)$", (HERE / "docs" / name).read_text(encoding="utf-8"))
        pattern = expressions[number]
    split = steps.Split(tokenizers.Regex(pattern), "isolated")
    if OTHER_MODELS[number].startswith("StarCoder"):
        gpt2 = steps.Split(tokenizers.Regex(bpe.PUBLISHED_GPT2), "isolated")
        split = steps.Sequence([steps.Digits(individual_digits=True), gpt2])
    assert not C.pattern(pattern)[1]
    for _ in range(500):
        text = "".join(rng.choices([*TRICKY, *KNOWN[:0x3000], "12 ", "\u0663", "\u0e19\u0e49\u0e33"], k=rng.randint(1, 40)))
        expected = [word for word, _ in split.pre_tokenize_str(text)]
        assert words_in(text, pattern=pattern) == Counter(expected), text


@pytest.mark.parametrize("pattern, why", [
    (r"(a)b", r"\("), (r"(?<=a)b", r"\(\?<="), (r"(?P<x>a)", r"\(\?"), (r"\ba|a", r"\\b"), (r"^a|a", r"\^"), (r"a$|a", r"\$"),
    (r"(a)\1", r"\("), (r"(?>a|ab)", r"\(\?>"), (r"(?i)a", r"\(\?"), (r"[[a]", r"\[ in a set"), (r"a{٢}|.", r"\{"),
    (r"(?=ab).", r"more than one character"), (r"(?!a|b).", r"more than one character"), (r"\X", r"\\X"), (r"a{2,}+ab", "possessive"),
    (r"a*", "match nothing"), (r"(?:a?)+b", "can match nothing"), (r"\w{1,501}", "more than 500 characters"),
    *[(quadratic, "the same text again") for quadratic in (r"a*b|a", r"\w|\s+$|\s", "!+ 1", r"(?:a+b)?a", r"\s*\n\n|\s")],
    (r"(?!\s)\s", "no way to match"),
    (r"(?:a|b)*a(?:a|b){9}", "the same text again|more than 500 states"),
])  # fmt: skip
def test_what_c_does_not_scan_is_named(pattern, why):
    assert regex.search(why, C.pattern(pattern)[1])
    assert words_in("aab b", pattern=pattern) == Counter(naive_split("aab b", pattern))


@pytest.mark.parametrize("pattern", [
    "".join(f"[a-{chr(98 + n % 24)}]?" for n in range(100)) + "z", "a?" * 300 + "z", "a{1,490}", ("a{1,490}", r"[ab]{1,490}|."),
    "|".join(rf"[\p{{L}}{chr(0x2190 + n)}]" for n in range(500)), ("a{1,490}",) * 3 + ("[ab]{1,490}|.",) * 3, ("[!-/:-~]", "llama3"),
    "(?:" * 40 + "a|b" + ")*c" * 40, "|".join(f"[{'a' * n}b]" for n in range(1, 150)), "(?:[ab]{200}c?)+|.", "ab|" * 6000 + "c",
], ids=range(11))  # fmt: skip
def test_a_pattern_is_compiled_or_left_to_python_in_a_second(pattern):
    pattern = steps.check_pattern(pattern)
    automaton.automaton_of.cache_clear()
    start = time.process_time()
    _, why = C.new_pattern(tuple(bpe.PATTERNS.get(step, step) for step in steps.steps_of(pattern)[1]))
    assert time.process_time() - start < 1.5  # on a busy machine
    assert len(why) < 100


def test_engine_c_is_an_error_that_says_what_c_lacks():
    for call in (training.count_words, functools.partial(training.train_bpe, vocab_size=257)):
        with pytest.raises(ValueError, match=r"engine 'c' can't be used: C scans no pattern with \(; "):
            call(texts=["ab"], pattern="(a)b", engine="c")
        with pytest.raises(ValueError, match=r"engine 'c' can't be used: C scans no pattern with more than 8 steps of this kind; "):
            call(texts=["ab"], pattern=("NFC", *["ab|b"] * 9), engine="c")


DEEPSEEK = (
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip


@pytest.mark.parametrize("pattern", [("NFC", *DEEPSEEK), ("NFKC", "qwen2"), ("NFC", r"\w+"), DEEPSEEK])
@pytest.mark.parametrize("special_tokens", [[], [END, "<end>"], ["TM", "12"], ["é"]])
def test_steps_and_normal_forms_are_counted_in_c_with_python_s_counts(tmp_path, cut, pattern, special_tokens):
    """Texts, and a file in slices of any size; normalizing may make a special token, which isn't one where words are counted."""
    rng, n_slices = random.Random(f"{pattern} {special_tokens}"), 0
    alphabet = [*FORMS, *TRICKY, *special_tokens, "中国", "カ・ナ", "1234", "ＴM", "＜end＞", ".a", "\n", " a"]
    options = choices.Options(pattern=pattern, special_tokens=tuple(special_tokens), workers=1).checked()
    for _ in range(12):
        texts = [random_text(rng, alphabet, rng.choice([0, 3, 300])) for _ in range(3)]
        expected = Counter(counting.count_texts([text.encode() for text in texts], options))
        assert training.count_words(texts=texts, special_tokens=special_tokens, pattern=pattern, engine="c") == expected
        path = tmp_path / "text.txt"
        path.write_text(texts[0] + "ab, 12 cd" * 50, encoding="utf-8", newline="")
        expected = counting.count_texts([path.read_bytes()], options)
        for size in (50, 500):
            cut(size)
            corpus = reading.Corpus(path, None, options._replace(engine="c"))
            assert corpus.count().copy() == expected
            n_slices += corpus.n_slices
    assert n_slices > 50


def test_the_automaton_proves_that_words_end_where_text_is_cut():
    """For all characters: no two that WORD_END matches are of classes between which the automaton may not be cut."""
    everything = "".join(map(chr, range(0x110000)))
    sets = regex.fullmatch(r"\(\?r\)\(\?<=(.*)\)\(\?=(.*)\)", bpe.WORD_END).groups()
    ends, begins = ([match.start() for match in regex.finditer(characters, everything)] for characters in sets)
    for expression in bpe.PATTERNS.values():
        classes, rows = automaton.automaton_of(expression)
        pairs = machine.pairs_to_cut(rows)
        before, after = ({classes[place] for place in places} for places in (ends, begins))
        assert before and after and pairs >= set(itertools.product(before, after)), expression
        assert len(pairs) < (max(classes) + 1) ** 2 / 2  # it proves not everything


def test_other_character_classes_give_a_warning_and_are_counted_with_regex(monkeypatch):
    expected = words_of_the_fixture()
    monkeypatch.setattr(regex, "__version__", "0.0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(C, "patterns", C.built_in_patterns())
        assert training.count_words(CORPUS, [END]) == expected  # another version with the same classes
    monkeypatch.setattr(build_ffi, "digest", lambda data: "other")
    monkeypatch.setattr(C, "words", None)
    with pytest.warns(UserWarning, match="the C engine was built with regex"):
        monkeypatch.setattr(C, "patterns", C.built_in_patterns())
    assert training.count_words(CORPUS, [END]) == expected


def test_a_named_pattern_that_is_new_or_changed_since_the_build_has_its_own_words(program):
    """An engine that looked up tables by name would count the words of the old expression, without an error."""
    new = b'PATTERNS["new"] = PATTERNS["qwen2"] = r"[ab]|\\w+|\\W"\n\n# GPT-2\'s pattern as it was published'
    edit(Path("bpe.py"), lambda data: data.replace(b"\n# GPT-2's pattern as it was published", new, 1))
    script = "import bpe; [print(sorted(bpe.count_words(None, [], texts=['abc 12'], engine='c', pattern=p)), file=sys.stderr) for p in "
    words = [b" ", b"12", b"a", b"b", b"c"]
    assert program("-c", "import sys; " + script + "('new', 'qwen2')]") == f"{words}\n" * 2


# --- finding and building it -----------------------------------------------------------------------------------------


SOURCES = "bpe.py", "build_ffi.py", "bpe_fast.c", "bpe_more"


def copy_built(folder, *names, built=ROOT):
    """Copy these sources, and the library of another folder."""
    copy_sources(folder, *names)
    for path in built.glob("_bpe_fast*"):
        shutil.copy(path, folder)


@pytest.fixture
def program(words_txt):
    """program("-c", ...) runs Python in a folder with copies of the sources and the library."""
    copy_built(words_txt, *SOURCES)

    def call(*arguments):
        command = [sys.executable, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stderr

    call.library = next(words_txt.glob("_bpe_fast*"))
    return call


TRAIN = ["-m", "bpe_more", "words.txt", "300"]


def test_the_summary_says_why_a_library_cannot_be_used_or_warns_that_it_is_old(program):
    no_cffi = "import sys; sys.modules['_cffi_backend'] = None; import bpe_more; sys.exit(bpe_more.main(sys.argv[1:]))"
    assert "built, but cffi is missing: pip install cffi" in program("-c", no_cffi, *TRAIN[2:])
    assert "cffi is missing" in program("-c", no_cffi, *TRAIN[2:], "--engine", "c").splitlines()[0]
    assert summary(program(*TRAIN))["engine"] == "C"
    for name in ("bpe_fast.c", "bpe_more/engine/bpe_words.c"):
        edit(Path(name), lambda data: data + b"/* */")
        assert f"{name} has changed" in program(*TRAIN)
    assert "changed" not in program(*TRAIN, "--engine", "python")
    edit(Path("build_ffi.py"), lambda data: data.replace(b"\nVERSION = ", b"\nVERSION = 1"))
    assert "another version: python build_ffi.py" in summary(program(*TRAIN))["engine"]
    program.library.write_bytes(b"")
    assert "does not load" in summary(program(*TRAIN))["engine"]
    program.library.unlink()
    assert "not built: python build_ffi.py" in summary(program(*TRAIN))["engine"]


def test_a_stray_module_does_not_stop_the_import_and_does_not_run(program):
    program.library.unlink(missing_ok=True)
    Path("bpe_fast.c").unlink()
    for name in ("_bpe_fast.py", "build_ffi.py"):
        Path(name).write_text("open('ran', 'w').close()\nraise SystemError('stray')")
        assert summary(program(*TRAIN))["engine"].startswith("Python")
        assert not os.path.exists("ran")


def test_a_build_that_fails_says_why_in_one_line(program):
    environment = {**os.environ, "CC": "no-such-compiler"}
    result = subprocess.run([sys.executable, ROOT / "build_ffi.py"], env=environment, capture_output=True, timeout=60)
    assert result.returncode != 0 and regex.search("a C compiler.*works without it", one_line(result.stderr))
    script = "import cffi, shutil, build_ffi; cffi.FFI.compile = lambda self, tmpdir: 'module.so'\n"
    script += "def refuse(*paths): raise PermissionError(13, 'Permission denied')\n"
    stderr = program("-c", script + "shutil.copy = refuse\nbuild_ffi.build()")
    assert "Permission denied" in one_line(stderr.encode())


# --- the merge loop alone, and with bpe_more -------------------------------------------------------------------------


def test_the_merge_loop_alone_learns_what_python_learns():
    alone, rng = build_ffi.Engine(types.SimpleNamespace(ffi=C.ffi, lib=C.lib), "C only learns"), random.Random(6)
    for _ in range(100):
        words = {rng.randbytes(rng.randint(0, 9)).replace(b"\x80", b"aa"): rng.choice([0, 1, 3, 2**40]) for _ in range(40)}
        kept = {word: count for word, count in words.items() if count}
        expected = list(counting.learn_in_python(counting.WordTable(kept), 300, 1))
        assert list(alone.learn(words, 300, 1)) == list(C.learn(words, 300, 1)) == expected
        counts = list(alone.arrays(words, 1)[2])
        assert counts == sorted(counts, reverse=True)  # for orders of somebody's choice, C's sort would be slow
    assert list(alone.learn({}, 300, 1)) == []
    with pytest.raises(OverflowError, match=r"2\*\*64 occurrences of a word or more: \(b'b', 18446744073709551616\)"):
        list(alone.learn({b"a": 1, b"b": 2**64}, 300, 1))
    assert list(alone.learn({b"ab": 2**62 - 1, b"c": 1}, 300, 1)) == [(b"a", b"b", 2**62 - 1, 2**62 - 1)]  # 2**63 - 1 bytes
    with pytest.raises(OverflowError, match=r"^2\*\*63 bytes of words or more"):
        list(alone.learn({b"ab": 2**62 - 1, b"c": 2}, 300, 1))


@pytest.fixture(scope="module")
def six(tmp_path_factory):
    """A folder with the six names of the top level, and nothing else, in which the engine is built."""
    folder = tmp_path_factory.mktemp("six")
    copy_sources(folder, "bpe.py", "bpe_fast.c", "build_ffi.py", "test_bpe.py", "README.md", "fixtures")
    result = subprocess.run([sys.executable, "build_ffi.py"], capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0 and one_line(result.stdout.encode()).endswith("the merge loop alone, without bpe_more\n"), result
    return folder


def test_six_files_alone_build_the_merge_loop_and_learn_with_it(six):
    script = f"import bpe; bpe.learn_merges = None; print(len(bpe.train_bpe({str(CORPUS)!r}, 500, [{END!r}], engine='c')[1]))"
    result = subprocess.run([sys.executable, "-c", script], cwd=six, capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("243\n", "")


ALONE, LEARNS = "build_ffi.py, which builds it, is not next to bpe.py", "C only learns: bpe_more"
STATES = {  # which files there are, the library's too, and why the engine isn't C
    "alone": ([], None, ALONE),
    "with the merge loop": (["build_ffi.py"], "six", f"{LEARNS} is not next to bpe.py"),
    "with the folder": (["bpe_more"], None, ALONE),
    "with both": (["build_ffi.py", "bpe_more"], "all", ""),
    "built with the folder": (["build_ffi.py"], "all", f"{LEARNS} is not next to bpe.py"),
    "built without it": (["build_ffi.py", "bpe_more"], "six",
                         "C only learns: the engine was built without bpe_more; python build_ffi.py rebuilds it"),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_the_same_model_and_ids_and_says_what_is_missing(tmp_path, six, part, state):
    files, library, why = STATES[state]
    copy_built(tmp_path, "bpe.py", *files, built={"six": six, "all": ROOT, None: tmp_path}[library])
    vocab, merges = training.train_bpe(part, 400, [END])
    ids = Tokenizer(vocab, merges, [END]).encode(PART)
    more = f"import bpe; print(bpe.find_engine()[1]); bpe.Tokenizer.load('bpeModel').encode_files({str(part)!r}, 'ids.npy')"
    for arguments in (["bpe.py", part, "400"], ["-c", more]):
        result = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
    assert result.stdout == f"{why}\n"
    tokenizer = Tokenizer.load(tmp_path / "bpeModel")
    assert (tokenizer.vocab, tokenizer.merges) == (vocab, merges) and read_ids(tmp_path / "ids.npy") == ("u2", ids)


def test_everything_inside_another_package_learns_in_c(tmp_path):
    """Files of bpe_more import build_ffi by name, and there it has another one."""
    package = tmp_path / "course"
    package.mkdir()
    copy_built(package, *SOURCES)
    (tmp_path / "build_ffi.py").write_text("raise SystemError('another project')")
    script = "from course import bpe; print(len(bpe.train_bpe(texts=['low lower'], vocab_size=260, engine='c')[1]), bpe.find_engine()[1])"
    result = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout == "4 C only learns: `import build_ffi` does not find the one next to bpe.py\n", result


# --- what it cannot do -----------------------------------------------------------------------------------------------


def test_an_engine_without_memory_raises_and_works_again_afterwards(monkeypatch):
    """A failed allocation leaves no NULL handle that the next call would use."""
    tokenizer = Tokenizer(with_merges([]), [])
    assert tokenizer.encoder  # without a cache yet
    failing = dict.fromkeys(("bpe_words_new", "bpe_cache_new"), lambda *arguments: C.lib.BPE_NO_MEMORY)
    with monkeypatch.context() as without_memory:
        names = {name: getattr(C.lib, name) for name in dir(C.lib)}
        without_memory.setattr(C, "lib", types.SimpleNamespace(**names | failing))
        failing |= dict.fromkeys(failing, lambda *arguments: names["BPE_NO_MEMORY"])
        for call in (lambda: training.count_words(None, [], texts=["ab"]), lambda: tokenizer.encode("ab")):
            with pytest.raises(MemoryError):
                call()
    assert training.count_words(None, [], texts=["ab"]) == {b"ab": 1} and tokenizer.encode("ab") == [97, 98]


def test_a_block_that_another_thread_takes_first_is_no_error():
    class TakenInBetween(list):
        def __bool__(self):
            return True

    encoder = Tokenizer(*trained(600), [END]).encoder
    encoder.blocks.objects = TakenInBetween()
    ids = array.array("I", [1, 2, 3])
    assert encoder.list_of([(6, ids.tobytes())], 6) == [1, 2, 3]


def test_tables_of_several_threads_are_merged_once():
    """If that fails, because they have 2**63 bytes of words together, the tables are not used again."""
    words, failing, *others = (choices.find_engine()[0].words([], "gpt2") for _ in range(4))
    words.scan_all([b"a b"])
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        for total in (4, 6, 8):
            executor.submit(words.scan_all, [b"a b"]).result()
            assert words.totals() == (2, total, total // 2 * 3)
    for other in others:
        other.add([(b"ab", 2**61)])
        failing.tables.append(other.handle())
    with pytest.raises(OverflowError):
        failing.totals()
    for use in (failing.copy, lambda: failing.scan_all([b"ab"]) or failing.totals(), lambda: failing.add([(b"a", 1)])):
        with pytest.raises(ValueError, match="used up"):
            use()


def test_the_summary_names_the_engine_that_encoded(main, monkeypatch):
    vocab, merges = trained(300)
    Tokenizer(vocab, merges, [END]).save("model")
    Tokenizer(vocab, merges, [END], NOT_IN_C).save("custom")
    for options, engine in (
        (["--model", "model"], "C"), (["--model", "model", "--engine", "python"], "Python (as chosen)"),
        (["--model", "custom"], "Python (C scans no pattern with ()"),
    ):  # fmt: skip
        assert summary(main("words.txt", "--encode", "ids.npy", *options)[2])["engine"] == engine
    ids = Tokenizer.load("model").encode(Path("words.txt").read_text())
    monkeypatch.setattr(choices.find_engine()[0], "encoder", lambda tokenizer: None)  # as for 2**21 tokens or more
    encoded = main("words.txt", "--encode", "ids.npy", "--model", "model")[2]
    assert summary(encoded)["engine"] == "Python (C can't hold this vocabulary)" and read_ids("ids.npy")[1] == ids


def test_a_pattern_that_c_does_not_have_is_scanned_in_python_and_learned_in_c():
    options = choices.Options(pattern=NOT_IN_C)
    assert choices.scanning_engine(options) is None and choices.engine_for(options) is not None
    assert choices.find_engine()[0].pattern(NOT_IN_C)[1] == "("
