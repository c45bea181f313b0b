"""The command line: options, output, errors, signals, and streams that are closed or full."""

import array
import io
import itertools
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
import regex

import bpe
from bpe_more import choices, cluster, command, explain, training
from bpe_more.corpus import progress
from bpe_more.tokenizer import Tokenizer
from shared import (
    NOT_IN_C,
    contents,
    model_in,
    on_a_terminal,
    one_line,
    only_c,
    only_python,
    read_ids,
    summary,
    train_and_save,
    trained,
    wait_for,
)
from test_bpe import CORPUS, CUSTOM, END, HERE, ROOT, files_of, naive_merge, naive_words, need, number_counts

# --- training --------------------------------------------------------------------------------------------------------


@only_python
def test_the_summary_counts_documents_and_special_tokens_in_them_and_says_what_to_type(main, words_txt):
    assert main("words.txt", 300, "--model", "model", "--special-token", "<s>", "--quiet")[0] == 0
    Path("rows.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ["low", f"{END}<s>low", ""]))
    Path("a.txt").write_text(f"low{END}" * 2316)

    def summary_of(*arguments):
        status, _, stderr = main(*arguments, "--encode", "ids.npy", "--model", "model")
        assert status == 0
        return [summary(stderr).get(name) for name in ("documents", "special tokens")]

    way = f"--end '{END}'"
    assert summary_of("rows.jsonl") == [
        f"3, with no token between them; to add one: {way}", f"2 in the text, read as ids; for plain text: {way}"
    ]  # fmt: skip
    assert summary_of("rows.jsonl", "--begin", "<s>", "--end", END) == [
        f"3, each with <s> and {END}", "2 in the text, read as plain text; for ids, leave out --begin and --end"
    ]  # fmt: skip
    assert summary_of("a.txt") == ["1", f"2,316 in the text, read as ids; for plain text: {way}"]
    assert summary_of("a.txt", "words.txt", "--end", END) == [
        f"2, each with {END}", "2,316 in the text, read as plain text; for ids, leave out --end"
    ]  # fmt: skip
    assert summary_of("words.txt", "--begin", "<s>") == ["1, each with <s>", None]
    Path("empty.jsonl").write_text("\n")
    assert summary_of("empty.jsonl", "--end", END) == ["0: the input has no rows", None]


@only_python
@pytest.mark.parametrize("typed, corpus, size, special_tokens, options", [
    ("--min-frequency 5 --quiet words.txt 265", "words.txt", 265, [END], {"min_frequency": 5}),
    ("words.txt --min-frequency 5 265", "words.txt", 265, [END], {"min_frequency": 5}),
    ("x.txt 280 --no-special-tokens", "x.txt", 280, [], {}),
    ("words.txt x.txt 1k", ["words.txt", "x.txt"], 1000, [END], {}),
    (f"x.txt 280 --special-token <x> --special-token {END}", "x.txt", 280, ["<x>", END], {}),
    ("x.txt 280 --special-token <x>", "x.txt", 280, [END, "<x>"], {}),
    ("x.txt 280 --special-token <x> --no-special-tokens", "x.txt", 280, ["<x>"], {}),
    ("--no-special-tokens x.txt 280 --special-token <x>", "x.txt", 280, ["<x>"], {}),
    ("x.txt 280 --pattern o200k", "x.txt", 280, [END], {"pattern": "o200k"}),
    ("x.txt 1,000", "x.txt", 1000, [END], {}), ("x.txt 1_000", "x.txt", 1000, [END], {}),
    ("x.txt 280 --special-token=-a-", "x.txt", 280, [END, "-a-"], {}),
    ("./-.txt 262 --min-word-count 3", "-.txt", 262, [END], {"min_word_count": 3}),
    ("'two\nlines.txt' 1K", "two\nlines.txt", 1000, [END], {}),
    ("\udcff.txt 262 --errors replace --workers 1", "\udcff.txt", 262, [END], {"errors": "replace"}),
])  # fmt: skip
def test_the_command_line_has_the_options_of_the_library(main, typed, corpus, size, special_tokens, options):
    Path("x.txt").write_bytes(f"aa<x>aa{END}aa's aa'S\r\n".encode())
    for name in ("-.txt", "two\nlines.txt", "\udcff.txt"):
        shutil.copy("words.txt", name)
    assert main(*shlex.split(typed), "--model", "\udcff.model")[0] == 0
    assert model_in("\udcff.model") == training.train_bpe(corpus, size, special_tokens, **options)


NO_PAIR = "requested, but no pair has a count of"


@pytest.mark.parametrize("arguments, made_of, special_tokens", [
    ("262", "262 = 256 bytes + 1 special token + 5 merges", "<|endoftext|> 256"),
    ("32K", f"273 = 256 bytes + 1 special token + 16 merges; 32,000 {NO_PAIR} 1 or more", "<|endoftext|> 256"),
    ("1k --no-special-tokens", f"272 = 256 bytes + 0 special tokens + 16 merges; 1,000 {NO_PAIR} 1 or more", None),
    ("1k --min-frequency 1", f"273 = 256 bytes + 1 special token + 16 merges; 1,000 {NO_PAIR} 1 or more", "<|endoftext|> 256"),
    ("280 --special-token <a> --special-token <b> --min-frequency 9",
     f"261 = 256 bytes + 3 special tokens + 2 merges; 280 {NO_PAIR} 9 or more", "<|endoftext|> 256, <a> 257, <b> 258"),
    ("262 --special-token <|pad|> --special-token <|endoftext|>", "262 = 256 bytes + 2 special tokens + 4 merges",
     "<|pad|> 256, <|endoftext|> 257"),
    ("262 --special-token <|pad|> --no-special-tokens", "262 = 256 bytes + 1 special token + 5 merges", "<|pad|> 256"),
])  # fmt: skip
def test_the_summary_says_what_the_vocabulary_is_made_of_with_the_ids_of_special_tokens(main, arguments, made_of, special_tokens):
    status, _, stderr = main("words.txt", *arguments.split())
    assert (status, summary(stderr)["vocabulary"], summary(stderr).get("special tokens")) == (0, made_of, special_tokens)
    ids = Tokenizer.load("bpeModel").special_ids
    assert ", ".join(f"{token} {token_id}" for token, token_id in ids.items()) == (special_tokens or "")


@only_python
@pytest.mark.parametrize("pattern", bpe.PATTERNS)
def test_a_special_token_that_was_learned_as_text_is_a_note(main, recwarn, pattern):
    """Only if both its ends became tokens: |> alone is an operator of several languages."""
    text = "<|user|>hi there.<|bot|>\n<|user|>why? <|bot|><|user|>so\n" * 3
    Path("chat.txt").write_text(text)
    arguments = ["chat.txt", 300, "--pattern", pattern, "--model", "model"]
    n = text.count("<|")
    assert n == text.count("|>") == 15
    told = summary(main(*arguments)[2])["note"]
    assert told.startswith(f"<| was learned as text ({n} times), and so was |> ({n})") and "--special-token" in told
    named = ["--special-token", "<|user|>", "--special-token", "<|bot|>"]
    assert "note" not in summary(main(*arguments, *named)[2]) and not main(*arguments, "--quiet")[2]
    training.train_bpe("chat.txt", 270, pattern=pattern)
    assert not recwarn.list
    Path("chat.txt").write_text("f <| x <| y <|z" * 3)
    assert "note" not in summary(main(*arguments)[2])


# --- explain and compare ---------------------------------------------------------------------------------------------


def test_an_explanation_groups_the_bytes_of_a_character_and_shows_newlines(main):
    """By hand; a is the only word of its kind."""
    Path("text.txt").write_text("あ\nあ\nab")
    arguments = ["text.txt", 260, "--explain", 4, "--quiet", "--no-special-tokens", "--pattern", r"あ\n|\w+"]
    assert main(*arguments)[1] == (
        "round 1: [e3] [81] (2 times), [82] \\n (2 times), [81] [82] (2 times)\n"
        "    merge [e3] [81] (3 pairs tie at 2; the greater left token wins, then the greater right one)\n"
        "    あ[e3|81|82] \\n -> あ[e3 81|82] \\n (2 times)\n"
        "round 2: あ[e3 81|82] (2 times), [82] \\n (2 times), a b (1 time)\n"
        "    merge あ[e3 81|82] (2 pairs tie at 2; the greater left token wins, then the greater right one)\n"
        "    あ[e3 81|82] \\n -> あ \\n (2 times)\n"
        "round 3: あ \\n (2 times), a b (1 time)\n    merge あ \\n\n    あ \\n -> あ\\n (2 times)\n"
        "round 4: a b (1 time)\n    merge a b\n    a b -> ab (1 time)\n"
    )


@pytest.mark.parametrize("options, rounds", [  # 20: the textbook example, with ties between new tokens
    ([3000], 8), ([400, "--min-frequency", 55], 8), ([260], 8), ([400, "--pattern", "o200k"], 8), ([280], 20),
])  # fmt: skip
def test_an_explanation_is_of_the_merges_that_are_made(main, options, rounds):
    """The pairs and counts are checked against the oracle."""
    corpus = Path("words.txt")
    if rounds != 20:
        corpus.write_bytes(CORPUS.read_bytes()[:4000])  # English only
    status, stdout, _ = main(corpus, *options, "--explain", rounds, "--quiet", "--model", "model")
    assert status == 0
    merges = model_in("model")[1]
    words = naive_words(corpus.read_bytes().decode(), [END], bpe.PATTERNS["o200k" if "o200k" in options else "gpt2"])
    show = lambda token: token.decode(errors="backslashreplace").replace(" ", "␣")  # noqa: E731
    rule = "the greater left token wins, then the greater right one"
    expected = []
    for number, pair in enumerate(merges[:rounds], 1):
        counts = number_counts(words.items())
        count = counts[pair]
        ties = list(counts.values()).count(count)
        shown = " ".join(map(show, pair))
        first_line = f"round {number}: {shown} ({count:,} time{'s' * (count > 1)})"
        why = f" ({ties} pairs tie at {count:,}; {rule})" if ties > 1 else ""
        expected.append((first_line, f"    merge {shown}{why}"))
        words = {naive_merge(word, pair): count for word, count in words.items()}
    found = regex.findall(r"(?m)^(round \d+: .+? times?\)).*\n(    merge .*)$", stdout)
    assert found == expected
    assert len(found) == min(rounds, len(merges)) > 0


@pytest.mark.parametrize("seed", range(6))
def test_any_range_of_rounds_is_explained_as_if_from_the_first(main, seed):
    rng = random.Random(seed)
    text = " ".join("".join(rng.choices("ab é", k=rng.randrange(1, 9))) for _ in range(60))
    Path("text.txt").write_text(text)
    options = ["text.txt", 300, "--quiet", "--no-special-tokens"]
    n_merges = len(training.train_bpe("text.txt", 300)[1])
    rounds = main(*options, "--explain", n_merges)[1].split("round ")[1:]
    assert len(rounds) == n_merges and not os.path.exists("bpeModel")
    first = rng.randrange(n_merges)
    last = rng.randrange(first, n_merges)
    status, stdout, _ = main(*options, "--explain", f"{first + 1}-{last + 1}")
    assert status == 0 and stdout.split("round ")[1:] == rounds[first : last + 1]


@pytest.mark.parametrize("arguments, saved", [
    ([], "bpeModel"), (["--explain", 1], None), (["--explain", 1, "--model", "other"], "other"),
])  # fmt: skip
def test_explain_alone_replaces_no_model_and_says_so(main, arguments, saved):
    status, _, stderr = main("words.txt", 262, *arguments)
    assert status == 0 and sorted(os.listdir()) == sorted(filter(None, ["words.txt", saved]))
    assert summary(stderr)["saved"] == (saved or "nothing: --explain saves a model only with --model FOLDER")


def write_merges(path, merges, head=""):
    """Write merges of ASCII tokens; a space is Ġ."""
    lines = [" ".join(token.decode().replace(" ", "Ġ") for token in pair) for pair in merges]
    Path(path).write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def same(n):
    """How --compare says that the first n merges are the same."""
    return "the first merge is the same" if n == 1 else f"the first {n} merges are the same"


@pytest.mark.parametrize("seed", range(6))
def test_compare_explains_the_first_merge_that_differs(main, seed):
    """Counts are those of the oracle, and so are the two most frequent words that the two pairs change differently."""
    rng = random.Random(seed)
    Path("text.txt").write_text(" ".join("".join(rng.choices("abc", k=rng.randrange(1, 9))) for _ in range(60)))
    merges = training.train_bpe("text.txt", 280)[1]
    n = rng.randrange(len(merges))
    words = naive_words(Path("text.txt").read_text())
    for merge in merges[:n]:
        words = Counter({naive_merge(word, merge): count for word, count in words.items()})
    counts = number_counts(words.items())
    other = rng.choice([pair for pair in counts if pair != merges[n]])
    write_merges("mine.txt", [*merges[:n], other, *merges[n:]])

    status, stdout, stderr = main("text.txt", 280, "--no-special-tokens", "--compare", "mine.txt")
    lines = stdout.splitlines()
    assert status == 1 and not os.path.exists("bpeModel")
    assert summary(stderr)["compared"] == f"mine.txt, {len(merges) + 1} merges without #version"
    assert summary(stderr)["saved"] == "nothing: --compare saves a model only with --model FOLDER"
    assert lines[0] == f"{same(n)}, of {len(merges) + 1} in the file and {len(merges)} here"
    show = lambda tokens: " ".join(token.decode().replace(" ", "␣") for token in tokens)  # noqa: E731
    times = lambda count: f"({count} time{'s' * (count != 1)})"  # noqa: E731
    assert lines[1].startswith(f"round {n + 1}: {show(merges[n])} {times(counts[merges[n]])}")
    assert lines[2].startswith(f"    merge {show(merges[n])}")
    assert lines[3] == f"    in the file: {show(other)} {times(counts[other])}"
    changed = {word: (naive_merge(word, merges[n]), naive_merge(word, other)) for word in words}
    differ = sorted((count for word, count in words.items() if len(set(changed[word])) > 1), reverse=True)
    shown = [line for line in lines[4:] if " -> " in line]
    possible = [
        f"    {show(word)} -> {show(ours)}, in the file {show(theirs)} {times(words[word])}"
        for word, (ours, theirs) in changed.items() if words[word] in differ[:2]
    ]  # fmt: skip
    assert len(shown) == min(2, len(differ)) and set(shown) <= set(possible)
    tie = counts[other] == counts[merges[n]]
    assert ("    usual cause: another rule for ties" in lines) == tie


CAUSES = [  # text, where ours differs from the file, the merges of the file, the cause
    ("ab cd", 0, "a b", "another rule for ties"),
    ("aaa.aaa.ab.ab.ab", 0, "a b", "pairs that overlap themselves"),
    ("ab ab ab aaa", 0, "a a", "pairs that overlap themselves"),
    ("ab ab ab ab aaa", 0, "a a", None),  # even with 1 more, a a would lose
    ("cd.cd.cd.ab.ab", 0, "a b", None),  # 1 less, and nothing overlaps
    ("aaa.aaa.aaa.ab.ab.ab.ab.ab.ab.ab.ab.ab", 0, "a a", "pairs that overlap themselves"),  # 6 to 9, and 3 overlap
    ("ab ab ab aa", 0, "a a", None),  # 1 to 3, and nothing overlaps
    ("the the the", 0, "e Ġ", "a pair across the end of a word, or across a special token"),
    ("low<|endoftext|>low<|endoftext|>low", 0, "w l", "a pair across the end of a word, or across a special token"),
    ("low<|endoftext|>low<|endoftext|>low", 0, "< |", None),  # nothing here has these bytes
    ("abcd abcd abcd", 1, "c d, b c", "counts of an earlier round: a merge also removes the pairs next to it"),
    ("abcd abcd abcd cd bcx", 1, "c d, b c", "counts of an earlier round: a merge also removes the pairs next to it"),  # 4 to 3, of which 1 is left
    ("abcd bcx cd cd 11 11 11", 1, "c d, b c", None),  # it occurs, but was never as frequent as 1 1
    ("zbcd cd 11 11", 1, "c d, b c", "counts out of date, or other words: its bytes occur here, but not as these tokens"),
    ("cx zbcd cd b 11 11", 1, "c d, b c", None),  # across two words, or within one: both are possible
    ("hx.hx.hx.it.sit", 0, "i t", "words counted once each"),  # h x 3, in one word, and i t 2, in two
    ("x tx the tx ty", 0, "t x", "words without their spaces, as split() makes them"),  # Ġ t 4, t x 2
    ("the the the", 0, "x y", None),  # its bytes don't occur
]


@pytest.mark.parametrize("text, n, theirs, cause", CAUSES)
def test_compare_names_a_cause_if_the_counts_show_it(main, text, n, theirs, cause):
    """By hand. In abcd, c d is merged first: it ties with b c and a b, and is the greatest."""
    Path("text.txt").write_text(text)
    Path("mine.txt").write_text(theirs.replace(", ", "\n"))
    status, stdout, _ = main("text.txt", 300, "--compare", "mine.txt", "--quiet")
    assert status == 1 and stdout.startswith(f"{same(n)}, of ")
    assert regex.findall("(?m)^    usual cause: (.*)$", stdout) == [cause] * (cause is not None)


@pytest.mark.parametrize("n_theirs, n_ours", [(6, 6), (3, 6), (6, 3)])
def test_compare_ends_with_status_0_if_all_compared_merges_are_the_same(main, n_theirs, n_ours):
    """The textbook example, in words.txt."""
    merges = training.train_bpe("words.txt", 263, [END])[1]
    write_merges("mine.txt", merges[:n_theirs])
    status, stdout, stderr = main("words.txt", 257 + n_ours, "--compare", "mine.txt", "--model", "kept")
    both = min(n_theirs, n_ours)
    assert status == 0 and summary(stderr)["saved"] == "kept" and os.path.exists("kept/tokenizer.json")
    assert stdout == f"the first {both} merges are the same, of {n_theirs} in the file and {n_ours} here\n"


@only_python
def test_compare_says_what_kind_of_file_it_reads(main, error):
    """Each is the file that another program writes, or a test keeps; those in `bad` are of other kinds, or damaged."""
    merges = training.train_bpe("words.txt", 263, [END])[1]
    pairs_in_json = [[token.decode().replace(" ", "Ġ") for token in pair] for pair in merges]
    Path("pairs.json").write_text(json.dumps(pairs_in_json, indent=1), encoding="utf-8")
    Path("windows.txt").write_bytes("".join(f"{left} {right}\r\n" for left, right in pairs_in_json).encode())
    write_merges("hf.txt", merges, "#version: 0.2\n")
    kinds = {"pairs.json": "in JSON", "windows.txt": "without #version"}
    kinds["hf.txt"] = "with #version"
    for path, kind in kinds.items():
        status, _, stderr = main("words.txt", 263, "--compare", path)
        assert (status, summary(stderr)["compared"]) == (0, f"{path}, 6 merges {kind}")
    bad = {
        "subword.txt": ("#version: 0.2\nl o\nlo w</w>\n", "merges of characters, as subword-nmt makes: 'lo w</w>'"),
        "empty.txt": ("#version: 0.2\n", "there are no merges in it"),
        "raw.json": ('[["t", "h"], [" ", "th"]]', "line 2 must be two tokens separated by one space: '  th'"),
        "vocab.json": ('{"!": 0}', "line 1 must be two tokens separated by one space: '!'"),
        "chinese.json": ('[["今", "天"]]', "not a byte-level BPE model .*'今'"),
        "three.json": ('[["a", "b", "c"]]', "line 1 must be two tokens separated by one space: 'a b c'"),
        "ids.json": ("[[116, 104]]", "these are pairs of ids"),
        "digits.json": ("[[1, 2]]", "these are pairs of ids"),  # in a text, these could be two tokens
        "number.json": ("[5]", "not a byte-level BPE model"),
        "three.txt": ("a b\na b c\n", "line 2 must be two tokens separated by one space: 'a b c'"),
        "broken.json": ("[", "not a byte-level BPE model"),
    }  # fmt: skip
    for path, (content, text) in bad.items():
        Path(path).write_text(content, encoding="utf-8")
        assert regex.search(f"^error: {path}: {text}", error("words.txt", 263, "--compare", path)), path
    # merges of bytes can make </w>, too, and use it
    Path("xml.txt").write_text("\n".join(["< /", "w >", "</ w>", "</w> Ċ"]))
    assert explain.read_pairs("xml.txt")[1][-1] == (b"</w>", b"\n")


def test_compare_reads_what_subword_nmt_writes(tmp_path):
    need("subword_nmt")
    from subword_nmt.learn_bpe import learn_bpe

    with (tmp_path / "codes.txt").open("w") as codes:
        learn_bpe(["low low low lower newest newest"], codes, 5)
    with pytest.raises(ValueError, match="merges of characters, as subword-nmt makes"):
        explain.read_pairs(str(tmp_path / "codes.txt"))


# --- show and encode -------------------------------------------------------------------------------------------------


def command_line(*arguments):
    """The command line, for another process."""
    return [sys.executable, "-m", "bpe_more", *map(str, arguments)]


def run(*arguments, stdin=None, **options):
    """Run the command line in another process, with the engine that is tested; stdin is bytes or a file."""
    arguments += "--engine", "c" if choices.find_engine()[0] else "python"
    options["input" if isinstance(stdin, bytes) else "stdin"] = stdin
    return subprocess.run(command_line(*arguments), capture_output=True, timeout=60, **options)


@pytest.mark.parametrize("special_token, pattern", [("a b", "o200k"), ("<x>", CUSTOM)])
def test_encode_on_the_command_line_takes_everything_from_the_folder(main, part, cut, special_token, pattern):
    """This includes where text may be cut: if "a b" is a special token, not between a and b."""
    vocab, merges = train_and_save("model", part, 500, [special_token, END], pattern=pattern)
    text, path = f"Some 12345 xa bx a b words'LL{special_token}{END}x" * 20, Path("text.txt")
    path.write_text(text)
    expected = Tokenizer(vocab, merges, [special_token, END], pattern).encode(text)
    cut(10, 8)
    status, _, stderr = main(path, "--encode", "ids.npy", "--model", "model", "--workers", "1")
    assert status == 0 and read_ids("ids.npy") == ("u2", expected)
    assert summary(stderr)["encoded"] == f"{len(text):,} bytes as {len(expected)} tokens"
    assert run("-", "--encode", "pipe.npy", "--model", "model", stdin=text.encode()).returncode == 0
    assert read_ids("pipe.npy") == ("u2", expected)


@only_python
@pytest.mark.parametrize("pattern, shown", [
    ("o200k", "o200k"), ("[a-z]+|" * 20 + "[a-z]", ("[a-z]+|" * 20)[:60] + "..."), (r"\p{N}{1,3}", r"\p{N}{1,3}"),
])  # fmt: skip
def test_encode_says_which_model_it_used_and_what_the_ids_are(main, part, pattern, shown):
    Tokenizer(*trained(600), [END], pattern).save("model")
    lines = summary(main(part, "--encode", "ids.npy", "--model", "model")[2])
    assert lines["model"] == f"model: 600 tokens, pattern {shown}" and lines["saved"] == "ids.npy, ids as uint16"
    Tokenizer(trained(600)[0] | {2**16: b"<x>"}, trained(600)[1], [END], ("NFC", r"\d", "gpt2")).save("bpeModel")
    lines = summary(main(part, "--encode", "ids.npy")[2])
    assert lines["model"] == "bpeModel: 601 tokens, pattern NFC, \\d, gpt2" and lines["saved"] == "ids.npy, ids as uint32"


def test_a_name_that_ends_in_bin_gives_the_ids_alone(main, error):
    """As nanoGPT reads them: numpy.memmap(path, dtype=numpy.uint16)."""
    tokenizer = Tokenizer.train("words.txt", 262, [END])
    tokenizer.save("bpeModel")
    ids = tokenizer.encode(Path("words.txt").read_text())
    assert main("words.txt", "--encode", "train.bin")[0] == 0
    assert array.array("H", Path("train.bin").read_bytes()).tolist() == ids
    assert tokenizer.encode_files("words.txt", "again.bin", end=END) == len(ids) + 1
    assert array.array("H", Path("again.bin").read_bytes()).tolist() == [*ids, 256]
    assert tokenizer.encode_files(os.devnull, "empty.bin") == os.path.getsize("empty.bin") == 0

    larger = Tokenizer(tokenizer.vocab | {2**16: b"<x>"}, tokenizer.merges, ["<x>"])
    larger.save("bpeModel")
    before = sorted(os.listdir())
    told = error("words.txt", "--encode", "large.bin")
    assert "a .bin file has ids up to 65,535, but this vocabulary has ids up to 65,536; use a name that ends in .npy" in told
    for name in ("ids", "ids.txt", "ids.bin.gz", "", ".npz"):
        told = error("words.txt", "--encode", name)
        assert regex.search(r"must end in \.npy .* or \.bin .*, not " + repr(name), told)
    with pytest.raises(ValueError, match=r"\.npy .* or \.bin .*, not ''"):
        larger.encode_files("words.txt")
    assert sorted(os.listdir()) == before


def test_a_file_to_encode_may_have_a_number_as_its_name(main, error):
    assert main("words.txt", 262, "--quiet")[0] == 0
    ids = Tokenizer.load("bpeModel").encode(Path("words.txt").read_text())
    shutil.copy("words.txt", "2024")
    for arguments, times in ((["2024"], 1), (["words.txt", "2024"], 2), (["2024", "words.txt"], 2)):
        assert main(*arguments, "--encode", "ids.npy")[0] == 0 and read_ids("ids.npy")[1] == ids * times
    os.remove("2024")
    assert "--encode uses a saved model: train it first" in error("words.txt", "2024", "--encode", "ids.npy")


@only_python
@pytest.mark.skipif(sys.platform == "win32", reason="no such locale there")
@pytest.mark.parametrize("utf8_mode", ["0", "1"])
def test_arguments_that_are_not_ascii_arrive_in_any_locale(words_txt, utf8_mode):
    """With LC_ALL=C and without its UTF-8 mode, Python reads arguments as ASCII, and bytes beyond as surrogates."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": utf8_mode}
    Path("天.txt").write_text("天天 low" * 9, encoding="utf-8")
    training = ["天.txt", "280", "--model", "模型", "--special-token", "<é>", "--pattern", "天+|[^天]"]
    for arguments in (training, ["天.txt", "--encode", "天.npy", "--model", "模型", "--end", "<é>"]):
        result = run(*arguments, "--quiet", env=environment)
        assert (result.returncode, result.stderr) == (0, b"")
    tokenizer = Tokenizer.load("模型")
    expected = Tokenizer.train("天.txt", 280, [END, "<é>"], pattern="天+|[^天]")
    assert contents(tokenizer) == contents(expected)
    assert read_ids("天.npy")[1] == [*tokenizer.encode("天天 low" * 9), 257]
    result = run("--show", "天<é>", "--model", "模型", env=environment)
    assert result.stdout.decode().splitlines()[1] == " ".join(map(str, tokenizer.encode("天<é>")))


def test_an_output_is_never_an_input_or_another_output(main):
    """Two names of a model can lead to one file; the next test has all that is read."""
    assert main("words.txt", 262)[0] == 0
    os.remove("bpeModel/vocab.json")
    os.symlink("tokenizer.json", "bpeModel/vocab.json")
    for save in (lambda: Tokenizer.load("bpeModel").save("bpeModel"), lambda: Tokenizer({}, []).save("bpeModel")):
        with pytest.raises(ValueError, match=r"vocab\.json is the same file as .*tokenizer\.json"):
            save()


def encode_files(name):
    Tokenizer.load("old").encode_files(["other.txt", name], "a.npy")


def cluster_encode(name):
    cluster.encode(None, name, Tokenizer.load("old"), "ids")


def cluster_train(name):
    cluster.train(None, name, 300, counts="counts")


# what is read, what would be written, and a command, or a function that gets the name of the first
READ_AND_WRITTEN = [
    ("text.txt", "new/merges.txt", "{} 300 --model new"),
    ("text.txt", "new/chat_template.jinja", "other.txt {} 300 --model new"),
    ("old/merges.txt", "new/merges.txt", "text.txt 300 --model new --compare {}"),
    ("text.txt", "a.npy", "{} --encode a.npy --model old"),
    ("text.txt", "a.bin", "other.txt {} --encode a.bin --model old"),
    ("old/tokenizer.json", "a.npy", "text.txt --encode a.npy --model {}"),
    ("old/tokenizer_config.json", "a.npy", "text.txt --encode a.npy --model old"),
    ("text.txt", "new/tokenizer.json", "{} +9 --extend old --model new"),
    ("old/tokenizer.json", "new/tokenizer.json", "text.txt +9 --extend {} --model new"),
    ("old/tokenizer.json", "new/merges.txt", "text.txt +9 --extend old --model new"),
    ("old/tokenizer_config.json", "new/tokenizer_config.json", "text.txt +9 --extend old --model new"),
    ("old/vocab.json", "new/vocab.json", "text.txt +9 --extend old --model new"),
    ("text.txt", "new/merges.txt", "{} 300 --cluster local --model new"),
    ("counts/plan.json", "new/merges.txt", "text.txt 300 --cluster local --counts counts --model new"),
    ("text.txt", "counts/plan.json", "{} 300 --cluster local --counts counts --model new"),
    ("text.txt", "counts/000000.counts", "{} 300 --cluster local --counts counts --model new"),
    ("text.txt", "ids/index.json", "{} --cluster local --encode ids --model old"),
    ("other.txt", "ids/text.txt.npy", "text.txt {} --cluster local --encode ids --model old"),
    ("other.txt", "ids/text.txt.npy.json", "text.txt {} --cluster local --encode ids --model old"),
    ("old/tokenizer.json", "ids/index.json", "text.txt --cluster local --encode ids --model {}"),
    ("text.txt", "a.npy", encode_files), ("text.txt", "ids/index.json", cluster_encode),
    ("text.txt", "counts/plan.json", cluster_train), ("text.txt", "counts/000000.counts", cluster_train),
]
WAYS = {
    "name": "{}".format, "relative path": "new/../{}".format, "link": os.symlink, "hard link": os.link,
    "pattern": lambda name: f"{name[:-1]}[{name[-1]}]", "other case": str.upper,
}  # fmt: skip
HAS_CASE = not os.path.exists(__file__.upper())  # the file system tells a.txt from A.TXT


def ways_of(number, command):
    """Two ways to name what a command reads, for each command others: all have the same check."""
    if not callable(command) and "{}" not in command:
        return ["link", "hard link"]
    has_patterns = "cluster" in getattr(command, "__name__", command) and "--model {}" not in str(command)
    ways = [way for way in WAYS if (way != "pattern" or has_patterns) and (way != "other case" or not HAS_CASE)]
    return [ways[number % len(ways)], ways[(number + 2) % len(ways)]]


@only_python
@pytest.mark.parametrize("path, output, command, way", [
    (*row, way) for number, row in enumerate(READ_AND_WRITTEN) for way in ways_of(number, row[2])
])  # fmt: skip
def test_nothing_that_is_read_is_ever_written(error, tmp_path, monkeypatch, path, output, command, way):
    monkeypatch.chdir(tmp_path)
    for folder in ("new", "counts", "ids"):
        os.mkdir(folder)
    for name in ("text.txt", "other.txt"):
        Path(name).write_text("low low lower")
    Tokenizer.train("text.txt", 260, [END]).save("old")
    Path(path).touch()  # counts/plan.json
    if "link" in way:
        WAYS[way](os.path.abspath(path), output)
        name = path
    else:
        shutil.move(path, output)
        name = WAYS[way](output)
    everything = lambda: {file: file.read_bytes() for file in Path().rglob("*") if file.is_file()}  # noqa: E731
    before = everything()
    if callable(command):
        with pytest.raises(ValueError) as caught:
            command(name)
        text = str(caught.value)
    else:
        text = error(*command.format(name).split())
    assert regex.search("is the same file as|must name another folder than that of the old model", text)
    assert everything() == before


def test_standard_input_may_not_be_the_output(words_txt):
    Tokenizer.train("words.txt", 262).save("bpeModel")
    shutil.copy("words.txt", "a.npy")
    with open("a.npy", "rb") as corpus:
        result = run("-", "--encode", "a.npy", stdin=corpus)
    assert result.returncode == 2 and "the output a.npy is the same file as -" in one_line(result.stderr)
    assert Path("a.npy").read_bytes() == Path("words.txt").read_bytes()


# --- help, progress, the terminal ------------------------------------------------------------------------------------


@only_python
@pytest.mark.parametrize("name", ["/somewhere/bpe_more/__main__.py", "/somewhere/bin/bpe-py"])
def test_help_names_the_program_and_in_groups_all_options_with_the_page_that_explains_them(main, monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [name])
    status, stdout, _ = main("--help")
    assert status == 0 and "usage: bpe-py " in stdout
    assert main("--version")[:2] == (0, f"bpe-py {bpe.__version__}\n") and main()[0] == 2
    groups = regex.split(r"(?m)^(\w+) \((docs/\w+\.md)\):$", stdout)[1:]
    found = {}
    for name, page, options in zip(groups[::3], groups[1::3], groups[2::3]):
        text = "".join(path.read_text("utf-8") for path in (HERE / page, HERE / "docs/python.md", HERE / "docs/extend.md"))
        found[name] = regex.findall(r"(?m)^  (--[\w-]+)", options)
        assert all(f"`{option}" in text or f" {option}" in text for option in found[name]), page
    assert list(found) == ["training", "input", "encoding", "showing", "cluster"]
    assert {"--pattern", "--special-token", "--min-frequency"} <= {*found["training"]} and "--encode" in found["encoding"]
    assert found["input"] == ["--column", "--as", "--errors"]
    assert found["showing"] == ["--show", "--explain", "--compare"]


@only_python
@pytest.mark.parametrize("columns", [50, 120])
def test_help_is_as_wide_as_the_terminal(main, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, stdout, _ = main("--help")
    _, _, options = stdout.partition("\n\n")  # argparse doesn't wrap a usage that is given
    assert columns - 15 < max(map(len, options.splitlines())) <= columns


UNUSED = {"shutil", "textwrap", "base64", "tempfile", "difflib", "concurrent.futures", "queue", "struct", "bisect"}


@pytest.mark.parametrize("arguments, printed", [
    ([CORPUS, "300", "--quiet"], ""), (["--version"], f"bpe-py {bpe.__version__}\n"),
    (["--version", "c.txt", "300"], f"bpe-py {bpe.__version__}\n"),  # a training, without the option
])  # fmt: skip
def test_a_run_imports_no_module_for_help_or_other_files_and_compiles_no_named_pattern(words_txt, engine, arguments, printed):
    """shutil, with which argparse asks the terminal for its width, took a tenth of the start, and the pattern 4 ms."""
    program = "import sys, bpe_more; status = bpe_more.main(sys.argv[1:]); import bpe; print(status, bpe.compile_pattern.cache_info().currsize, *sys.modules)"
    result = subprocess.run([sys.executable, "-c", program, *arguments, "--engine", engine], capture_output=True, text=True)
    assert result.stdout.startswith(printed), result.stderr
    status, n_patterns, *modules = result.stdout.removeprefix(printed).split()
    unused = UNUSED if printed else UNUSED - {"textwrap"}
    assert status == "0" and not unused.intersection(modules)
    assert n_patterns == ("0" if engine == "c" or printed else "1")


@only_python
@pytest.mark.parametrize("runs", [0, 1])
def test_a_command_ends_without_a_search_for_garbage_and_a_program_that_imports_bpe_as_always(runs):
    """The search took a tenth of a short run."""
    show_at_end = "import atexit, gc, sys; from bpe_more import command; atexit.register(lambda: print(gc.get_freeze_count() > 0, file=sys.stderr))"
    program = f"{show_at_end}; [command.main(['--version']) for _ in range({runs})]"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert result.stderr == f"{bool(runs)}\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_progress_on_a_terminal_is_one_line_that_is_wiped_even_after_an_error(words_txt, monkeypatch, cut):
    clock = itertools.count(100, 0.15)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    cut(20, 20)
    expected = training.train_bpe("words.txt", 265)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert training.train_bpe("words.txt", 265, progress=True, workers=1) == expected
    shown = sys.stderr.getvalue()
    assert regex.search(r"\r\W*counting words: \d+ of 0 MB \(\d+%\), \d+ MB/s", shown)
    assert regex.search(r"\rlearning merges: 0 of 9 \(0%\), 0/s\x1b\[K\r", shown)
    assert regex.search(r"\rlearning merges: \d of 9 \(\d\d%\), \d+/s, \d s left\x1b\[K\r", shown)
    assert "\n" not in shown and shown.endswith("\r\x1b[K")
    for error, last in ((TypeError, 5), (UnicodeEncodeError, "\ud800")):
        monkeypatch.setattr(sys, "stderr", Terminal())
        texts = ["low lower " * 20] * 9 + [last]
        with pytest.raises((ValueError, error)):
            training.train_bpe(None, 300, texts=texts, progress=True, workers=1)
        assert sys.stderr.getvalue().endswith("\r\x1b[K") and "counting" in sys.stderr.getvalue()


@only_python
def test_the_time_left_is_a_bound_that_ignores_slow_first_merges(monkeypatch):
    """By hand: 1,000 merges, the first 99 take 1,000 s in all, each later one 1 s, so 11 s is said for the last 10."""
    clock, told = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress, "say_over", told.append)
    for n in progress.with_progress(range(1, 1001), True, lambda n: ("learning merges", n, 1000, "")):
        clock[0] += 1 if n > 99 else 1000 / 99
    assert told[0] == "learning merges: 0 of 1,000 (0%), 0/s"
    assert told[99] == "learning merges: 99 of 1,000 (10%), 0/s"
    assert told[600] == "learning merges: 600 of 1,000 (60%), 1/s, 7 min left"  # 400 s, rounded up
    assert told[990] == "learning merges: 990 of 1,000 (99%), 1/s, 11 s left"
    assert [progress.rounded_up(seconds) for seconds in (0, 99, 150, 7200)] == ["1 s", "100 s", "3 min", "3 h"]
    assert progress.line_of("learning merges", 0, 0, "", 0) == "learning merges: 0, 0/s"


@only_python
def test_the_progress_says_which_file_of_data_is_read(words_txt, monkeypatch):
    clock = itertools.count(100, 0.3)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    for number in range(3):
        Path(f"{number}.jsonl").write_text('{"text": "low lower"}\n')
    monkeypatch.setattr(sys, "stderr", Terminal())
    training.train_bpe([f"{number}.jsonl" for number in range(3)], 258, progress=True, workers=1)
    shown = sys.stderr.getvalue()
    assert "counting words, file 3 of 3: 0 MB, 0 MB/s" in shown and "MB (" not in shown
    training.train_bpe("0.jsonl", 258, progress=True, workers=1)
    assert ", file 1 of 1" not in sys.stderr.getvalue()


@only_python
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("columns", [40, 0])
def test_a_line_of_progress_is_never_wider_than_the_terminal(words_txt, columns):
    """0 columns: a terminal that doesn't tell, as some serial ones."""
    arguments = [CORPUS, 300, "--workers", 1, "--engine", "python", "--model", "model"]
    status, shown = on_a_terminal(command_line(*arguments), columns)
    lines = shown.partition("read  ")[0].split("\r") + regex.findall("learning[^\r]*", shown)
    lines = [line.removesuffix("\x1b[K") for line in lines if line.endswith("\x1b[K")]
    assert status == 0 and any(line.startswith("counting words") for line in lines) and any("learning" in line for line in lines)
    assert max(map(len, lines)) < (columns or 80) and "\x1b" not in "".join(lines)


@only_python
def test_no_control_character_reaches_the_terminal(main):
    """Escape sequences in a corpus, a file name or a special token could change what a terminal shows, or types."""
    assert explain.visible("a\x1b[1m\n\x9b\u202eb 字\t") == "a\\x1b[1m\n\\x9b\\u202eb 字\\t"
    evil = "\x1b[2J\x9b"
    Path(f"{evil}.txt").write_text(f"low{evil}{evil} low{evil}")
    for arguments in (
        [f"{evil}.txt", 300, "--explain", 9, "--model", "model"], ["--show", f"low{evil}", "--model", "model"],
        [f"{evil}.txt", 300, "--special-token", evil, "--special-token", evil], [f"{evil}-missing.txt", 300],
        [f"{evil}.txt", 300, "--pattern", evil], ["--encode", evil, f"{evil}.txt", "--model", "model"],
    ):  # fmt: skip
        _, stdout, stderr = main(*arguments)
        assert stdout + stderr and not set("\x1b\x9b") & set(stdout + stderr), arguments


# --- errors, signals, streams ----------------------------------------------------------------------------------------


@only_python
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("interpreter, arguments", [  # -u: unbuffered output fails at once
    ([], "--help"), (["-u"], "--version"), ([], "--show low"), (["-u"], "--show low"), ([], "words.txt 262 --explain 2 --model saved"),
])  # fmt: skip
def test_output_without_room_is_an_error_and_a_closed_pipe_is_not(words_txt, interpreter, arguments):
    Tokenizer.train("words.txt", 262).save("bpeModel")
    program = [sys.executable, *interpreter, "-m", "bpe_more", *arguments.split(), "--quiet"]
    with open("/dev/full", "wb") as full:
        result = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (result.returncode, one_line(result.stderr)) == (1, "error: standard output: No space left on device\n")
    shutil.rmtree("saved", ignore_errors=True)
    reading, writing = os.pipe()
    os.close(reading)  # as `head -1` does, only earlier
    result = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE, timeout=60)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, b"")
    assert os.path.exists("saved/tokenizer.json") == ("saved" in arguments)  # it does not cost the training


HINT = r"zcat FILE \(xzcat, bzcat\) .*iconv -f .*--errors replace"


@only_python
@pytest.mark.parametrize("arguments, text", [
    *[(wrong, "vocabulary size|no such file|No such") for wrong in ("c.txt", "c.txt many", "c.txt 10kk", "300 c.txt", "c.txt 1,00", "c.txt ,000")],
    ("300", "corpus"), ("", "corpus"), ("--encode ids.npy", "corpus"), ("c.txt -10", "a positive integer, not -10"),
    ("c.txt 10", r"vocabulary size 10 is too small; the minimum is 257 \(256 bytes \+ 1 special token\)"),
    ("c.txt --vocab-size 300", "--vocab-size"), ("c.txt 300 --special-tokens <x>", "--special-tokens|size"),
    ("c.txt 300 --flavour", "--flavour$"), ("c.txt 300 --patern o200k", "--patern.*; did you mean --pattern\\?$"),
    ("c.txt 300 --special-tokens=x", "did you mean --special-token\\?$"), ("c.txt 300 --show", "--show needs a value$"),
    *[(f"{before} {option} -foo", f"{option} needs a value; if -foo is one, write {option}=-foo$")
      for before, option in (("", "--show"), ("c.txt 300", "--special-token"), ("c.txt 300", "--pattern"), ("c.txt", "--encode"))],
    ("c.txt 300 --sp -foo", "if -foo is one, write --special-token=-foo"),
    *[(f"c.txt 300 --{name.replace('_', '-')} 0", f"{name} must be a positive integer, not 0")
      for name in ("workers", "min_frequency", "min_word_count")],
    *[(f"c.txt 300 --explain {wrong}", "--explain takes a positive number, or a range such as 5-7, not")
      for wrong in ("x", "1.5", "0", "-3", "5-4", "0-3", "1-", "''")],
    ("c.txt 300 --pair 'a b'", "--pair"), ("c.txt 300 --compare missing.txt", "missing.txt"),
    ("c.txt 300 --compare c.txt", "c.txt: line 1 must be two tokens separated by one space: 'hello'"),
    ("c.txt 300 --compare c.txt --explain 3", "--explain"), ("c.txt --compare c.txt", "vocabulary size"),
    ("c.txt 300 --special-token a b", "the last argument must be the vocabulary size, such as 10000 or 10k, not 'b'"),
    ("--version --show", "^error: --show needs a value$"),
    ("--show x", "no model in bpeModel: train one first, or name it with --model"),
    ("c.txt --encode ids.npy", "no model in bpeModel: train one first, or name it with --model"),
    ("docs 300", r"docs is a folder; name its files \(docs/\*.txt\)"),
    ("c.txt 300 --special-token \udcff", "surrogates"), ("c.txt 300 --special-token ''", r"special token 1 \(''\)"),
    *[(f"c.txt 300 --model {wrong}", f"--model must name a folder, not {wrong}") for wrong in ("''", "'c.txt'")],
    ("'' 300", "name|No such file"), ("--show x --model none", "none"),
    ("missing.txt 300", "^error: No such file or directory: 'missing.txt'$"), ("c.txt missing.txt 300", "missing.txt"),
    ("c.txt docs 300", "error: docs.*(folder|directory)"), ("latin1 300", f"latin1: not valid UTF-8 at byte 1 .*{HINT}"),
    ("packed 300", "^error: packed is gzip; save it under a name that ends in .gz"), ("my.gz 300", "^error: my.gz: Compressed file ended"),
    ("rows.jsonl 300", r"^error: rows.jsonl, line 2: text must be a str, not null; --errors replace makes it an empty one$"),
    ("'none*.txt' 300", r"^error: No such file or directory: 'none\*\.txt'$"),
    *[(f"{corpus} 300 --model {folder}", "no words|is empty") for corpus in ("empty", "ends") for folder in ("saved", "new")],
    ("'two\nlines' 300", r"^error: two\\nlines: not valid UTF-8 at byte 0"),
    ("many 300", r"^error: many is a folder; name its files \(many/\*\.parquet\)$"), ("hidden 300", r"\(hidden/\*\.jsonl\.gz\)$"),
    # what can't go with a saved model
    *[(f"--show low {option}", f"'{option.split()[0][2:].replace('-', '_')}' is not an option here; the options are ")
      for option in ("--min-word-count 2", "--min-frequency 2", "--pattern o200k", "--errors replace", "--workers 2")],
    ("--show low c.txt", "--show takes no corpus"), ("--show low --explain 3", "--show"), ("--show low --encode ids.npy", "--show"),
    ("--show low --special-token <x>", "special"), ("--show low --no-special-tokens", "special"),
    ("--show low\udcff --model saved", "surrogates"),
    *[(f"c.txt --encode ids.npy {option} --model saved", text) for option, text in (
        ("--pattern o200k", "'pattern' is not an option here"), ("--special-token <y>", "special"), ("--no-special-tokens", "special"),
        ("--min-frequency 2", "'min_frequency' is not"), ("300", "--encode"), ("--explain 3", "--encode"),
    )],
    *[(f"c.txt 300 --{name} {END}", f"'{name}' is not an option here") for name in ("begin", "end")],
    ("c.txt --encode ids.npy --model saved --end '<other>'", r"end must be a special token of the model \(<\|endoftext\|>\), not '<other>'"),
    ("c.txt --encode ids.npy --model none", "none"), ("missing.txt --encode ids.npy --model saved", "missing.txt"),
])  # fmt: skip
def test_bad_command_lines_end_with_one_line_and_status_2(error, files, arguments, text):
    shutil.copytree(files, ".", dirs_exist_ok=True)
    everything = lambda: {path: path.is_file() and path.read_bytes() for path in Path().rglob("*")}  # noqa: E731
    before = everything()
    message = error(*shlex.split(arguments))
    assert regex.search(text, message) and "Errno" not in message, message
    assert everything() == before


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with files that can't be read, others, and a model, for the command lines above."""
    folder = tmp_path_factory.mktemp("files")
    for name in ("docs", "many", "hidden"):
        (folder / name).mkdir()
    contents = {
        "c.txt": b"hello", "latin1": b"h\xe9llo", "my.gz": b"\x1f\x8b\x08\x00", "packed": b"\x1f\x8b\x08\x00",
        "rows.jsonl": b'{"text": "low"}\n{"text": null}\n', "many/a.parquet": b"", "many/b.parquet": b"", "many/c.txt": b"",
        "hidden/.hidden": b"", "hidden/d.jsonl.gz": b"", "two\nlines": b"\xff", "empty": b"", "ends": END.encode() * 3,
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    Tokenizer.train(texts=["low lower"], vocab_size=262, special_tokens=[END]).save(folder / "saved")
    return folder


@only_python
def test_patterns_that_the_shell_left_are_expanded(main):
    for name, text in {"b.txt": "low", "a.txt": "er", "[x].txt": "x"}.items():
        Path(name).write_text(text)
    assert main("words.txt", 300, "--model", "model", "--quiet")[0] == 0
    assert main("[ab].txt", "[x].txt", "--encode", "ids.npy", "--model", "model", "--quiet")[0] == 0
    assert Tokenizer.load("model").decode(read_ids("ids.npy")[1]) == "erlowx"


@only_python
def test_a_table_as_text_is_a_note(main):
    Path("a.csv").write_text("id,text\n1,low low\n2,lower\n")
    status, _, stderr = main("a.csv", 260)
    assert status == 0 and regex.search(r"note +a\.csv was read as plain text, with all columns; .*--column text\n", stderr)
    assert "note" not in main("words.txt", 260)[2]


@only_python
def test_a_missing_python_or_package_is_an_error_of_one_line(words_txt):
    script = f"import runpy, sys; sys.version_info = (3, 9, 18); runpy.run_path({str(HERE / 'bpe.py')!r})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True)
    assert "Python 3.10 or later" in one_line(result.stderr)
    for arguments in (["words.txt", "300"], ["--help"]):  # -I -S hides installed packages
        result = subprocess.run([sys.executable, "-I", "-S", ROOT / "bpe.py", *arguments], capture_output=True)
        assert (result.returncode, result.stdout) == (1, b"") and "pip install regex" in one_line(result.stderr)


def limit(name, n_bytes):
    """Limit what a child process may use: the size of files ("FSIZE"), as a full disk would, or memory ("AS")."""
    import resource

    number = getattr(resource, f"RLIMIT_{name}")
    return lambda: resource.setrlimit(number, (n_bytes, n_bytes))


@only_python
@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit for the size of files")
def test_a_full_disk_is_an_error_and_leaves_everything_as_it_was(words_txt, part):
    assert run(part, 300, "--model", "model").returncode == 0
    Path("ids.npy").write_bytes(b"earlier")
    Path("new/model").mkdir(parents=True)
    before = sorted(os.listdir()), files_of("."), files_of("model")
    for options in ([500, "--model", "model"], [500, "--model", "new/model"], ["--encode", "ids.npy", "--model", "model"]):
        result = run(part, *options, "--quiet", preexec_fn=limit("FSIZE", 3000))
        assert result.returncode == 2 and "File too large" in one_line(result.stderr), result
        assert (sorted(os.listdir()), files_of("."), files_of("model")) == before


@only_c
@pytest.mark.skipif(sys.platform == "win32", reason="no limits for a process here")
def test_running_out_of_memory_is_an_error_of_one_line(words_txt):
    with open("/dev/zero", "rb") as endless:
        result = run("-", 300, stdin=endless, preexec_fn=limit("AS", 70_000_000))
    assert (result.returncode, one_line(result.stderr)) == (1, "error: out of memory\n")


def shell(script, *arguments, **options):
    """Run a shell script in which "$@" is the command line of bpe.py with arguments."""
    return subprocess.run(["sh", "-c", script, "sh", *command_line(*arguments)], capture_output=True, timeout=60, **options)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("redirection", ["<&-", "2>&-", ">&-", "2>/dev/full", "<&- >&- 2>&-", ">/dev/full 2>&1"])
@only_python
def test_a_closed_or_full_stream_does_not_cost_the_training(words_txt, redirection):
    result = shell(f'"$@" {redirection}', "words.txt", 300, "--explain", 1, "--model", "bpeModel")
    # the explanation is lost if there is no room for it
    assert result.returncode == (redirection == ">/dev/full 2>&1"), result.stderr
    assert Path("bpeModel/merges.txt").read_text().startswith("#version: 0.2\ns t\n")
    if redirection == "<&-":
        failure = shell('"$@" <&-', "-", 300)
        assert failure.returncode == 2 and one_line(failure.stderr)


@pytest.mark.parametrize("make", [lambda: None, object, io.StringIO, lambda: open(os.devnull, "w")])  # noqa: SIM115
def test_a_closed_or_replaced_standard_error_does_not_cost_the_training(words_txt, monkeypatch, make):
    expected, stream = training.train_bpe("words.txt", 300, [END]), make()
    if hasattr(stream, "close"):
        stream.close()
    with monkeypatch.context() as patched:
        patched.setattr(warnings, "showwarning", warnings.showwarning)  # main replaces it
        patched.setattr(sys, "stderr", stream)
        assert training.train_bpe("words.txt", 300, [END], progress=True) == expected
        assert command.main(["words.txt", "300"]) == 0
    assert model_in("bpeModel") == expected


@only_python
@pytest.mark.parametrize("arguments, status", [(["--show", "é"], 0), (["--help"], 0), (["missing.txt", "300"], 2)])
def test_main_leaves_the_streams_of_its_caller_as_they_were(words_txt, monkeypatch, arguments, status):
    Tokenizer(*trained(300)).save("bpeModel")
    streams = [io.TextIOWrapper(io.BytesIO(), "ascii", errors) for errors in ("strict", "ignore")]
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", streams[0])
        patched.setattr(sys, "stderr", streams[1])
        assert command.main(arguments) == status
    assert [stream.errors for stream in streams] == ["strict", "ignore"]
    if "é" in arguments:
        assert streams[0].buffer.getvalue().startswith(b"\\xe9")


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("doing, name", [
    ("counting", "SIGINT"), ("counting", "SIGTERM"), ("counting", "SIGKILL"), ("learning", "SIGINT"),
    ("encoding", "SIGINT"), ("encoding", "SIGTERM"), ("learning", "SIGTERM"),
])  # fmt: skip
def test_a_signal_ends_a_run_within_a_second_and_leaves_nothing(tmp_path, part, engine, doing, name):
    """Workers have the same standard error, so it ends when all of them have ended."""
    text, size = CORPUS.read_bytes() * 30, "30000"
    if doing == "learning":  # one long word: a merge changes many places, so no call into C is short by itself
        table = bytes(97 + byte % 26 for byte in range(256))
        text, size = random.Random(1).randbytes(4_000_000 if engine == "c" else 1_000_000).translate(table), "100000"
    arguments = [*["text.txt"] * (1 if doing == "learning" else 400), size, "--model", "out"]
    if doing == "encoding":
        train_and_save(tmp_path / "model", part, 600, [END])
        arguments = [*["text.txt"] * 400, "--encode", "ids.npy", "--model", "model"]
    (tmp_path / "text.txt").write_bytes(text)
    program = f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        import bpe
        from bpe_more import command
        from bpe_more.corpus import counting, reading, slicing
        def note(event, arguments):
            if event == "open" and str(arguments[0]).endswith("text.txt"):
                os.close(os.open(f"{{os.getpid()}}.pid", os.O_CREAT))  # Python loses a signal during its first imports
        sys.addaudithook(note)
        def learn(*arguments, learn=counting.learn_with_progress):
            yield next(merges := learn(*arguments))
            os.close(os.open("learning.pid", os.O_CREAT))
            yield from merges
        counting.learn_with_progress = learn
        slicing.SLICE_BYTES = reading.SLICE_BYTES_IN_C = 500_000  # so that the first ids are written early
        sys.exit(command.main())
    """
    arguments += ["--workers", "2", "--quiet", "--engine", engine]
    command = [sys.executable, "-c", textwrap.dedent(program), *arguments]
    before = sorted(path for path in tmp_path.rglob("*"))
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.PIPE, start_new_session=True, cwd=tmp_path)
    begun = {
        "counting": lambda: len(list(tmp_path.glob("*.pid"))) == (3 if engine == "python" else 1),  # this process, and workers
        "learning": (tmp_path / "learning.pid").exists,
        "encoding": lambda: any(path.stat().st_size > 1000 for path in tmp_path.glob("ids*")),
    }[doing]  # fmt: skip
    try:
        wait_for(begun)
        assert begun() and process.poll() is None
        start = time.perf_counter()
        if name == "SIGKILL":  # to this process alone: its workers end by themselves
            process.kill()
        else:
            os.killpg(process.pid, getattr(signal, name))  # to its group, as a terminal does
        _, errors = process.communicate(timeout=20)
        assert time.perf_counter() - start < 1
    finally:
        process.kill()
    status, line = {"SIGINT": (130, "interrupted\n"), "SIGTERM": (143, "terminated\n"), "SIGKILL": (-9, "")}[name]
    assert process.returncode == status and errors.decode() == line
    assert sorted(path for path in tmp_path.rglob("*") if path.suffix != ".pid" and path.name != "log") == before


# --- what it prints ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus, size", [(CORPUS, 300), ("runs.txt", 260)], ids=["fixture", "runs"])
def test_the_command_line_writes_what_the_library_does_and_a_summary(main, engine, corpus, size):
    Path("runs.txt").write_text("aaaaaaa aaaa aaa ab " * 3)
    status, stdout, stderr = main(corpus, size, "--model", "model")
    assert (status, stdout) == (0, "")
    vocab, merges = training.train_bpe(corpus, size, [END])
    assert model_in("model") == (vocab, merges)
    words = naive_words(Path(corpus).read_bytes().decode(), [END])
    lines, n_bytes = summary(stderr), sum(len(b"".join(word)) * count for word, count in words.items())
    assert lines["pre-tokens"] == f"{sum(words.values()):,}, {len(words):,} of them distinct"
    for merge in merges:
        words = Counter({naive_merge(word, merge): count for word, count in words.items()})
    tokens = sum(len(word) * count for word, count in words.items())
    assert lines["compression"] == f"{n_bytes / tokens:.2f} bytes per token in these pre-tokens"
    assert regex.fullmatch(rf"{os.path.getsize(corpus):,} bytes", lines["read"])
    assert lines["vocabulary"] == f"{size} = 256 bytes + 1 special token + {size - 257} merges"
    assert lines["saved"] == "model"
    assert lines["engine"].startswith("C" if engine == "c" else "Python (")
    engine_line = summary(main("words.txt", 300, "--pattern", NOT_IN_C)[2])["engine"]
    assert engine_line.startswith("Python (") and (engine == "python" or "C scans no pattern with (" in engine_line)


def test_show(main, words_txt):
    tokens = [bytes([byte]) for byte in range(256)] + [b"\xe5\x9b", b"th", b"\n\n", b"\xad\xe5", b"\xf0\x9f"]
    merges = [(token[:1], token[1:]) for token in tokens[256:]]
    Tokenizer(dict(enumerate([*tokens, END.encode()])), merges, [END]).save("bpeModel")
    for text, shown in (
        (f"the {END}", f"th|e| |{END}"), ("园b", "园[e5 9b|ad]|b"), ("字", "字[e5|ad|97]"), ("x😀", "x|😀[f0 9f|98|80]"),
        ("é园", "é[c3|a9]|园[e5 9b|ad]"), ("园字", "园字[e5 9b|ad e5|ad|97]"), ("a\nb", "a|\\n\n|b"), ("", ""),
        ("b\n\n\nb", "b|\\n\n\\n\n|\\n\n|b"), ("a\x1b[3m\r\x07\x9b", "a|\\x1b|[|3|m|\\r|\\x07|\\x9b[c2|9b]"),
    ):  # fmt: skip
        ids, n_bytes = Tokenizer.load("bpeModel").encode(text), len(text.encode())
        sizes = f"{len(ids)} tokens, {n_bytes} bytes, {n_bytes / max(len(ids), 1):.2f} bytes per token"
        assert main("--show", text) == (0, f"{shown}\n{' '.join(map(str, ids))}\n{sizes}\n", "")
