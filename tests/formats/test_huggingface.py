"""tokenizer.json of other programs, whole and damaged: bpe_more/formats/huggingface.py, and what it supports."""

import copy
import functools
import gzip
import itertools
import json
import operator
import os
import pickle
import random
import shutil
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import pytest
import regex

import bpe
from bpe_more import choices, cluster
from bpe_more.formats import huggingface, saving
from bpe_more.formats.transformers import TRANSFORMERS_FILES
from bpe_more.patterns import steps
from bpe_more.patterns.steps import TIKTOKEN_CL100K
from bpe_more.tokenizer import Tokenizer
from foreign import (
    BYTE_LEVEL,
    EACH_DIGIT,
    KINDS,
    LFS_POINTER,
    OWN_PATTERN,
    THREE_DIGITS,
    foreign,
    split_at,
    with_spaces,
)
from shared import (
    FORMS,
    MANY,
    contents,
    edit,
    ids_in_file,
    once,
    only_c,
    only_python,
    read_ids,
    same_everywhere,
    split_anywhere,
    summary,
    train_and_save,
    trained,
    without_engine,
)
from test_bpe import END, GPT2, PART, TEXTBOOK, TRICKY, files_of, need, random_text


@only_python
@pytest.mark.parametrize("data, text", [
    (b"", "the file is empty"), (b"\n", "the file is empty"), (LFS_POINTER, "this is a Git LFS pointer"),
    (b"<!doctype html><title>Sign in</title>", "this looks like a web page"),
    (b"GGUF\x03\0\0\0", "this is a GGUF file"), (b"[PAD]\r\n" * 900 + b"[UNK]\r\n", "this is the vocabulary of a WordPiece model"),
    (b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n", "this is a SentencePiece model, not byte-level BPE"),
    (pickle.dumps({b"a": 1}), "this is a pickle, which can run code, so it is not read"),
    (b'{"error":"Access to model x/y is restricted"}', "this is a hub's error message, .*'Access to model x/y is restricted'; log in"),
    (b"Access to model x/y is restricted and you are not in the authorized list", "this is a hub's error message"),
    (b'{"architectures": ["GPT2"]}', "these are the settings of a language model; load tokenizer.json"),
    (b'{"model_type": "llama"}', "these are the settings of a language model; load tokenizer.json"),
    (b'{"bos_token": {"content": "<s>"}}', "these are the settings of a tokenizer; load tokenizer.json"),
    (b'{"added_tokens_decoder": {}}', "these are the settings of a tokenizer; load tokenizer.json"),
    (gzip.compress(b"{}", mtime=0), "this is compressed; decompress it first: gunzip FILE"),
    (b"PK\x03\x04", "this is compressed; decompress it first: unzip FILE"),
    ("<unk>\t0\n<s>\t0\n\u2581t\t-1.5\n".encode(), "this is the vocabulary of a SentencePiece model, not byte-level BPE"),
    (b'{"a": 0, "a</w>": 1, "b": 1, "b</w>": 2}', "tokens end in </w>, like those of CLIP"),
])
def test_a_file_that_is_no_model_is_said_to_be_what_it_looks_like(words_txt, data, text):
    for name in ("tokenizer.json", "vocab.json", "merges.txt"):
        Tokenizer(*trained(300), [END]).save("model")
        Path("model", name).write_bytes(data)
        with pytest.raises(ValueError, match=f"{name}: {text}"):
            if name == "tokenizer.json":
                Tokenizer.load("model")
            else:
                Tokenizer.from_files("model/vocab.json", "model/merges.txt")


@pytest.mark.parametrize("change", [
    ('"content": "<|endoftext|>"', '"content": 5'), ('"content": "<|endoftext|>"', '"content": "\\ud800"'),
    ('"content": "<|endoftext|>"', '"text": ""'), ('"Regex": ', '"Regex": [], "": '), ('"Regex": ', '"": '),
    ('"added_tokens": [', '"added_tokens": [7,'), ('"pretokenizers": [', '"pretokenizers": [3,'), ("{", "[{"),
    ("]]", '],\n["e", "st"]]'), ('["e",\n"st"]', '["x",\n"st"]'), ('["e",\n"st"]', '["e", "st", "x"]'), ("Ġ", "Ġ "),
    *[(id, wrong) for id in (": 256", ": 257") for wrong in (": 255", ": -1", ': "x"', ": true", ": 1" + 5000 * "0")],
    "{}", "[]", "", "\udcff", '{"added_tokens": []}', '{"added_tokens": 5, "pre_tokenizer": {"pretokenizers": []}}',
    '{"added_tokens": [], "pre_tokenizer": null}', '{"model": ' * 100_000,
], ids=lambda change: repr(change)[:40])  # fmt: skip
@only_python
def test_a_damaged_tokenizer_json_is_an_error_with_its_name(error, change):
    train_and_save("model", "words.txt", 265, [END])
    path = Path("model/tokenizer.json")
    text = path.read_text(encoding="utf-8")
    new = text.replace(*change, 1) if isinstance(change, tuple) else change
    assert new != text
    path.write_text(new, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(ValueError, match=r"model"):
        Tokenizer.load("model")
    assert "model" in error("words.txt", "--encode", "ids.npy", "--model", "model") and not os.path.exists("ids.npy")


@only_python
def test_running_out_of_memory_while_loading_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    Tokenizer(*trained(300)).save(tmp_path)
    monkeypatch.setattr(huggingface, "read_model", lambda content: (_ for _ in ()).throw(MemoryError))
    with pytest.raises(MemoryError):
        Tokenizer.load(tmp_path)


ONE_OF_BOTH = r"model/(vocab\.json|merges\.txt)"


@pytest.mark.parametrize("name, change, told", [
    *[("vocab.json", data, ONE_OF_BOTH) for data in (b"", b"[1]", b'{"a": 1', b'{"\xff": 1}', b'{"a":' * 100_000, b'{"a b": 1}')],
    *[("vocab.json", b'{"a": %s}' % wrong, ONE_OF_BOTH) for wrong in (b"-1", b'"x"', b"true", b'1, "b": 1')],
    ("vocab.json", (b": 256", b": 255"), ONE_OF_BOTH),
    ("vocab.json", (b'"h":', b'"low": 99,\n"h":'), r"model/vocab\.json: 'low' is there twice, with 99 and 2"),
    *[("merges.txt", data, ONE_OF_BOTH) for data in (b"a b\nab\n", b"#version: 0.2\na b c\n", b"a b\n#version: 0.2\na  b")],
    *[("merges.txt", (b"e st\n", new), ONE_OF_BOTH) for new in (b"x \xff\n", b"e stt\n")],
    ("merges.txt", (b"e st\n", b"e st\ne st\n"), "repeats an earlier one"),
])  # fmt: skip
@only_python
def test_damaged_files_in_gpt2s_format_are_errors_with_a_name(words_txt, name, change, told):
    train_and_save("model", "words.txt", 265, [END])
    edit(Path("model", name), lambda data: data.replace(*change, 1) if isinstance(change, tuple) else change)
    with pytest.raises(ValueError, match=told):
        Tokenizer.from_files("model/vocab.json", "model/merges.txt", [END])


@only_python
def test_a_special_token_with_letters_of_bytes_comes_back_as_text_if_words_stay_whole(tmp_path):
    """As bytes, "<é>" is "<", E9, ">", which is not UTF-8, so no word of any text."""
    tokenizer = Tokenizer(dict(enumerate([*bpe.BYTES, b"ab"])), [], ["<é>"], ignore_merges=True)
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.vocab == tokenizer.vocab and loaded.decode([257]) == "<é>"
    assert loaded.encode("ab<é>") == [256, 257]
    assert need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("ab<é>").ids == [256, 257]


@only_python
def test_a_merge_of_a_special_token_that_other_programs_could_not_open_is_not_saved(tmp_path):
    """In tokenizers, "<a b>" and "x" make "<a b>x", but the vocabulary has "<aĠb>x"."""
    tokenizers = need("tokenizers")
    for number, (special, is_saved) in enumerate([("<ab>", True), ("<a b>", False), ("<字>", False), ("<é>", False)]):
        vocab = dict(enumerate([*bpe.BYTES, special.encode(), special.encode() + b"x"]))
        tokenizer = Tokenizer(vocab, [(special.encode(), b"x")], [special])
        folder = tmp_path / str(number)
        if is_saved:
            tokenizer.save(folder)
            theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
            assert theirs.encode(special + "x").ids == tokenizer.encode(special + "x") == [256, 120]
        else:
            with pytest.raises(ValueError, match="can't be saved: the merge .* uses a special token"):
                tokenizer.save(folder)
            with pytest.raises(ValueError, match="can't be saved: the merge .* uses a special token"):
                saving.printable(tokenizer.vocab, tokenizer.merge_ids, tokenizer.special_ids, tokenizer.pattern)
            assert not folder.exists()


@only_python
@pytest.mark.parametrize("entry", ["truncation", "padding", "post_processor"])
def test_half_of_a_surrogate_pair_is_refused_at_load(words_txt, entry):
    path = Path("model/tokenizer.json")
    train_and_save("model", "words.txt", 265, [END])
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, entry: {"x": ["\ud800"]}}))
    with pytest.raises(ValueError, match=f"tokenizer.json: {entry} has half of a surrogate pair"):
        Tokenizer.load("model")
    path.write_text(json.dumps({**content, entry: {"x": ["\ud83d\ude00"]}}))  # a whole one
    if entry != "post_processor":
        Tokenizer.load("model").save("other")
        assert json.loads(Path("other/tokenizer.json").read_text(encoding="utf-8"))[entry] == {"x": ["😀"]}


@functools.cache
def saved(size):
    """The tokenizer.json of a model with one special token."""
    with tempfile.TemporaryDirectory() as folder:
        Tokenizer(*trained(size), [END]).save(folder)
        return Path(folder, "tokenizer.json").read_bytes()


def changed(folder, change, size=600):
    """Change a folder's tokenizer.json, or that of a model if it has none, with a function of its contents; returns its path."""
    path = Path(folder) / "tokenizer.json"
    content = json.loads(path.read_bytes() if path.exists() else saved(size))
    change(content)
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2), encoding="utf-8")
    return path


def in_gpt2s_shape(content):
    """What GPT-2's own tokenizer.json has in other ways: no Split, merges as strings, no type, "" for null."""
    content["pre_tokenizer"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    content["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False}
    content["decoder"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    model = content["model"]
    model["merges"] = [" ".join(pair) for pair in model["merges"]]
    model.update(unk_token="", continuing_subword_prefix="", end_of_word_suffix="")
    for name in ("type", "byte_fallback", "ignore_merges"):
        del model[name]


def with_change(*path):
    """with_change("model", "dropout", 0.1) sets content["model"]["dropout"] to 0.1."""
    *keys, last, value = path
    return lambda content: functools.reduce(operator.getitem, keys, content).__setitem__(last, value)


def with_token(text, id=600, **options):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": id, "content": text, **flags, "special": True, **options}
    return lambda content: content["added_tokens"].append(token)


def with_added_tokens(content):
    n = len(content["model"]["vocab"])
    with_token("<mask>", id=n)(content)
    with_token("new word", id=n + 1, normalized=True, special=False)(content)
    with_token("|> t", id=n + 2, normalized=True)(content)  # END ends with its beginning, which changes nothing
    with_token("<ma", id=n + 3, normalized=True)(content)  # where <mask> begins, too, both programs find <mask>


SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Isolated", "invert": False}


def with_unreachable_tokens(content):
    content["model"]["vocab"].update(zzz=600, zzzz=601)
    content["model"]["ignore_merges"] = True


LOADED = {  # what other tools write that Tokenizer does as well
    "as it is": lambda content: None,
    "GPT-2's shape": in_gpt2s_shape,
    "ByteLevel in a Sequence": with_change("pre_tokenizer", "pretokenizers", [
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]),
    "padding": with_change("padding", {
        "strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "!"}),
    "truncation": with_change("truncation", {
        "direction": "Right", "max_length": 10**6, "strategy": "LongestFirst", "stride": 0}),
    "a template that adds nothing": with_change("post_processor", {
        "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {},
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}),
    "added tokens": with_added_tokens,
    "an added token that comes twice": with_token(END, id=256),
    "NFC twice": with_change("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFC"}]}),
    "fuse_unk without an unknown token": with_change("model", "fuse_unk", True),
    "an unknown token that is never needed": with_change("model", "unk_token", END),
    "words that are tokens": with_change("model", "ignore_merges", True),
    "unreachable tokens that are words": with_unreachable_tokens,
    "a template": with_change("post_processor", {
        "type": "TemplateProcessing", "special_tokens": {END: {"id": END, "ids": [256], "tokens": [END]}},
        "single": [{"SpecialToken": {"id": END, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}]}),
    "GPT-2's pattern in the second step": with_change("pre_tokenizer", "pretokenizers", 1, "use_regex", True),
    "the same by default": lambda content: content["pre_tokenizer"]["pretokenizers"][1].pop("use_regex"),
    "two Splits": lambda content: content["pre_tokenizer"]["pretokenizers"].insert(0, SPLIT),
    "an added token with the bytes of another": with_token(" t"),
    "an empty token": lambda content: content["model"].update(vocab={"": 600, **content["model"]["vocab"]}),
    **{f"a Split on the text {text!r}": with_change("pre_tokenizer", "pretokenizers", 0, "pattern", {"String": text})
       for text in (" ", "the", ". ", "^a|b$", "\\s", "th(e)", "[a-z]", "e-&~# \t\n", "é")},
    **{f"a Split on the expression {text!r}": with_change("pre_tokenizer", "pretokenizers", 0, "pattern", {"Regex": text})
       for text in (" ", "\n", "e", "é", "the", "gpt2", "NFC")},
    "another custom pattern": with_change("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", r"\d+|[a-z]+|[A-Z]"),
}  # fmt: skip


@pytest.mark.parametrize("ignoring_merges", [False, True])
def test_a_name_with_other_characters_than_those_of_bytes_is_never_found(tmp_path, engine, ignoring_merges):
    changed(tmp_path, lambda content: content["model"]["vocab"].update({"中": 300, "a中": 301}), 300)
    changed(tmp_path, lambda content: content["model"]["merges"].append(["a", "中"]))  # is never applied
    path = changed(tmp_path, with_change("model", "ignore_merges", ignoring_merges))
    expected = need("tokenizers").Tokenizer.from_file(str(path)).encode("中 the a中 中").ids
    assert max(expected) < 300 and Tokenizer.load(tmp_path).encode("中 the a中 中") == expected


@only_python
@pytest.mark.parametrize("change", LOADED.values(), ids=LOADED)
def test_a_tokenizer_json_of_other_tools_loads_and_gives_the_same_ids(tmp_path, change):
    Tokenizer(*trained(600), [END]).save(tmp_path / "model")
    path = changed(tmp_path / "model", change)
    (tmp_path / "alone").mkdir()
    shutil.copy(path, tmp_path / "alone")
    text = f"{PART}{END} the <mask>new word'LL<ma{END}"
    tokenizer, theirs, [ids] = same_everywhere(path, [text], tmp_path / "again")
    for same in (tokenizer, *map(Tokenizer.load, (str(path), tmp_path / "model", tmp_path / "alone", tmp_path / "again"))):
        assert same.encode(text) == ids and same.decode(ids) == text  # below: added tokens that are not special stay
        assert same.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)


@only_python
def test_entries_may_be_missing_if_no_id_depends_on_them(tmp_path):
    tokenizers, text = need("tokenizers"), PART[:3000]
    for number, entry in enumerate(["decoder", "added_tokens", "normalizer", "post_processor", "truncation", "padding"]):
        for change in (with_change(entry, None), operator.methodcaller("pop", entry)):
            path = changed(tmp_path, change)
            loaded = Tokenizer.load(path)
            assert loaded.special_tokens == ((END,) if entry != "added_tokens" else ())
            assert loaded.decode(loaded.encode(text)) == text
            if number < 2:
                changed(tmp_path, with_change(entry, [] if number else None))
                assert loaded.encode(text) == tokenizers.Tokenizer.from_file(str(path)).encode(text).ids
            path.unlink()


@only_python
@pytest.mark.parametrize("expression, part", [
    (r"\p{N}{1,3}+|.", "{1,3}+"), ("^a|.", "^a"), (r"a$|\s", "$"), ("(?m:.)|a", "(?m:.)"), (r"\pL+|.", r"\\pL"), (r"\w+|.", r"\\w"),
    ("[a-z--[b]]|.", "[a-z--"), ("(?i:st)|.", "(?i:st"), (r"\h|.", r"\\h"), ("a{2}?|.", "{2}?"), (r"a*|\s+", "a*"), (TIKTOKEN_CL100K, "{1,3}+"),
])  # fmt: skip
def test_an_expression_that_tokenizers_reads_differently_is_an_error_unless_the_file_is_our_own(tmp_path, expression, part):
    Tokenizer(*trained(300), pattern=expression).save(tmp_path)
    assert Tokenizer.load(tmp_path).pattern == steps.check_pattern(expression)  # as it was saved
    path = changed(tmp_path, with_change("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", expression))
    with pytest.raises(ValueError, match=regex.escape(part)) as error:
        Tokenizer.load(path)
    assert "may read" in str(error.value) and len(str(error.value)) < 300 + len(str(path))


@only_python
def test_a_token_that_no_program_finds_in_text_is_kept_beside_the_one_with_its_bytes(tmp_path):
    """The package cute_tokenizer has 2,602 such: characters, not bytes in printable characters."""
    name = "今"
    path = changed(tmp_path, lambda content: content["model"]["vocab"].update({name: 601, bpe.to_printable(name.encode()): 600}))
    text = f"{PART}{name}{END}今天"
    tokenizer, theirs, [ids] = same_everywhere(path, [text], tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    for model in (tokenizer, again, pickle.loads(pickle.dumps(tokenizer)), tokenizer.extend(texts=["zq zq"], n_tokens=1)):
        assert model.encode(text) == ids
        assert model.decode([601, 600]) == theirs.decode([601, 600]) == "今今"
        assert model.encode_ordinary(f"{END} a") == tokenizer.encode_ordinary(f"{END} a")
    assert json.loads(path.read_bytes())["model"]["vocab"].items() <= json.loads((tmp_path / "again/tokenizer.json").read_bytes())["model"]["vocab"].items()
    assert tokenizer.with_special_tokens(["<new>"]).special_ids == {END: 256, "<new>": 602}


@only_python
def test_the_command_line_extends_a_model_with_two_ids_of_one_token_as_the_library_does(main):
    """Merges were written with the name of the special token, which has the second id."""
    Path("old").mkdir()
    content = json.loads(foreign("GPT-NeoX"))
    content["model"]["vocab"]["ĠĠt"] = content["model"]["vocab"].pop("zzz")
    content["model"]["merges"].append("ĠĠ t")
    Path("old/tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    old = Tokenizer.load("old")
    spaces = b"  "
    assert list(old.vocab.values()).count(spaces) == 2 and old.ids[spaces] != old.special_ids["  "]
    Path("new.txt").write_text("zqx zqx\n", encoding="utf-8")
    assert main("new.txt", "+2", "--extend", "old", "--model", "extended")[0] == 0
    new, expected = Tokenizer.load("extended"), old.extend("new.txt", 2)
    assert contents(new) == contents(expected) and new.special_ids == old.special_ids
    saved = json.loads(Path("extended/tokenizer.json").read_bytes())["model"]
    expected.save("by the library")
    assert saved == json.loads(Path("by the library/tokenizer.json").read_bytes())["model"] and ["ĠĠ", "t"] in saved["merges"]


def texts_with_traps(seed, n, specials):
    rng = random.Random(seed)
    halves = [half for token in specials for half in (token, token[: len(token) // 2], token[len(token) // 2 :])]
    words = regex.findall(GPT2, PART)
    parts = [*TRICKY, *FORMS, *halves, *rng.sample(words, 200), "zzz", " ferrys", "字字", "\u00e9t\u00e9s", "e\u0301te\u0301s", "1234567", "  "]
    return [random_text(rng, rng.choice([parts, FORMS + halves + ["a", " ", "1"]]), rng.randint(0, 24)) for _ in range(n)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_the_kinds_that_people_have_gives_their_ids(tmp_path, cut, kind):
    path = tmp_path / "tokenizer.json"
    path.write_text(foreign(kind), encoding="utf-8")
    texts = [*texts_with_traps(kind, MANY, Tokenizer.load(path).special_tokens), PART[:5000]]
    tokenizer, theirs, expected = same_everywhere(path, texts, tmp_path / "again")
    Tokenizer.load(tmp_path / "again").save(tmp_path / "third")
    assert files_of(tmp_path / "again") == files_of(tmp_path / "third")
    if "normalizer" not in KINDS[kind] and "lossy" not in KINDS[kind]:
        assert [tokenizer.decode(ids) for ids in expected] == texts
    rng, cut_small, copied = random.Random(1), cut(300, 200), copy.deepcopy(tokenizer)
    for text, ids in zip(texts[::5], expected[::5]):
        assert list(tokenizer.encode_iterable(split_anywhere(rng, text))) == ids == copied.encode(text)
    whole = "".join(texts[:60])
    assert ids_in_file(tokenizer, whole, tmp_path) == theirs.encode(whole, add_special_tokens=False).ids, cut_small
    assert list(tokenizer.encode_iterable(split_anywhere(rng, whole))) == tokenizer.encode(whole)
    content, saved = json.loads(foreign(kind)), json.loads((tmp_path / "again/tokenizer.json").read_bytes())
    assert (saved["post_processor"], saved["truncation"]) == (content["post_processor"], content["truncation"])
    # text that is not trusted: no id of a special token that is not a word of the vocabulary too
    ordinary = {token_id for text in texts[::3] for token_id in tokenizer.encode_ordinary(text)}
    assert not ordinary & set(tokenizer.special_ids.values())


ROLE_FILES = {  # of another model, in the ways of transformers 4 and 5
    "tokenizer_config.json": {
        "tokenizer_class": "Qwen2Tokenizer", "auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}, "model_max_length": 77,
        "eos_token": "<|im_end|>", "pad_token": {"__type": "AddedToken", "content": END, "lstrip": True}, "image_token": "<image>",
        "bos_token": None, "extra_special_tokens": ["<|im_start|>", "<s>"],
        "added_tokens_decoder": {"300": {"content": "<|im_end|>", "lstrip": False}, "256": {"content": END, "lstrip": True}},
    },
    "special_tokens_map.json": {"eos_token": {"content": "<|im_end|>"}, "unk_token": "<unk>"},
    "added_tokens.json": {"<|im_end|>": 300, "<s>": 257, END: 999},
}  # fmt: skip


@only_python
def test_roles_and_added_tokens_of_another_model_go_and_are_named(tmp_path):
    """They would get ids beyond the vocabulary: transformers had len 602 for a model of 600 rows."""
    for name, content in ROLE_FILES.items():
        (tmp_path / name).write_text(json.dumps(content))
    tokenizer, read = Tokenizer(*trained(300), [END, "<s>"]), lambda name: json.loads((tmp_path / name).read_bytes())
    with pytest.warns(UserWarning) as caught:
        tokenizer.save(tmp_path, bos_token="<s>")
    for gone in ("eos_token '<|im_end|>'", "image_token '<image>'", "extra_special_tokens '<|im_start|>'", "the added token '<|im_end|>'"):
        assert gone in str(caught[0].message)
    roles = {"bos_token": "<s>", "pad_token": END, "extra_special_tokens": ["<s>"]}
    config = read("tokenizer_config.json")
    assert config == {
        "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 77, **roles,
    }  # fmt: skip
    assert read("special_tokens_map.json") == roles and read("added_tokens.json") == {}
    before = files_of(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer.save(tmp_path)
    assert files_of(tmp_path) == before
    # transformers reads the second file only if the first one has no decoder; then it prefers the second one
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"pad_token": "<s>"}))
    tokenizer.save(tmp_path)
    assert read("tokenizer_config.json")["pad_token"] == read("special_tokens_map.json")["pad_token"] == "<s>"
    decoder = {"256": {"content": END}, "257": {"content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": END, "added_tokens_decoder": decoder}))
    tokenizer.save(tmp_path)
    assert read("tokenizer_config.json")["pad_token"] == read("special_tokens_map.json")["pad_token"] == END
    # transformers 4.57 writes a dict into the first file, and would read it as one token in the second
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"extra_special_tokens": {"image_token": "<s>"}}))
    (tmp_path / "special_tokens_map.json").write_text("{}")
    tokenizer.save(tmp_path)
    assert read("tokenizer_config.json")["extra_special_tokens"] == {"image_token": "<s>"}
    assert "extra_special_tokens" not in read("special_tokens_map.json")


def test_the_summary_names_roles_that_go(main):
    assert main("words.txt", 300, "--special-token", "<|im_end|>")[0] == 0
    Tokenizer.load("bpeModel").save("bpeModel", eos_token="<|im_end|>")
    status, _, stderr = main("words.txt", 300)
    expected = "not in this model, so no longer in the settings for transformers: eos_token '<|im_end|>'"
    assert status == 0 and summary(stderr)["note"] == expected


@only_python
def test_settings_that_transformers_could_not_read_are_replaced(tmp_path):
    tokenizer, path = Tokenizer(*trained(300), [END]), tmp_path / "tokenizer_config.json"
    tokenizer.save(tmp_path)
    ours = path.read_text()
    for damaged in ('{"a": ' * 100_000 + "1" + "}" * 100_000, '{"x": "\\ud800"}', '{"eos_token": "\\ud800"}', "5", '"x"', "[[1, 2]]", "", "[1]", "nothing"):
        for name in TRANSFORMERS_FILES:
            (tmp_path / name).write_text(damaged)
        tokenizer.save(tmp_path)
        assert path.read_text() == ours
        assert [json.loads((tmp_path / name).read_bytes()) for name in TRANSFORMERS_FILES[1:]] == [{}, {}]
    for wrong in (5, ["a"], b"a"):
        with pytest.raises(TypeError, match="chat_template must be a str, not"):
            tokenizer.save(tmp_path, chat_template=wrong)


@only_c
@pytest.mark.parametrize("name", ["Qwen2", "GPT2", "GPTNeoX", "CodeGen", "Whisper", "Cohere", "Roberta", "TokenizersBackend"])
def test_a_folder_of_another_model_has_our_ids_in_transformers_after_a_save(tmp_path, name):
    transformers = need("transformers")
    kind = name if name.endswith("Backend") else f"{name}Tokenizer"
    for file, content in ROLE_FILES.items():
        change = {"tokenizer_class": kind} if file == "tokenizer_config.json" else {}
        (tmp_path / file).write_text(json.dumps({**content, **change}))
    tokenizer = Tokenizer(*trained(600, "o200k"), [END, "<s>"], "o200k")
    with pytest.warns(UserWarning, match="eos_token '<|im_end|>'"):
        tokenizer.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert (len(theirs), theirs.vocab_size) == (601, 601)
    assert (theirs.eos_token, theirs.pad_token, theirs.pad_token_id) == (None, END, tokenizer.special_ids[END])
    for text in [PART, f"  I'LL 12345 <s>  {END} <|im_end|> theory", *TRICKY]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text), text


@only_python
@pytest.mark.parametrize("names", [["õ", "÷", "ÿ", "<|begin|>"], ["<|begin|>", "õ", "<|end|>"], ["Ġferry", "é"]])
def test_special_tokens_with_the_names_of_bytes_that_a_vocabulary_lacks_are_saved(tmp_path, names):
    """DeepSeek-Coder's folder has õ, ÷ and others as added tokens, and no tokens for the bytes F5 and F7."""
    content = json.loads(foreign("StarCoder"))
    missing = {bpe.to_printable(name.encode("latin-1")) if name == "é" else name for name in names}
    tokens = [name for name in content["model"]["vocab"] if name not in missing]
    content["model"]["vocab"] = {name: number for number, name in enumerate(tokens)}
    content["model"]["merges"] = [pair for pair in content["model"]["merges"] if {*pair.split(" "), pair.replace(" ", "")} <= set(tokens)]
    flags = {key: value for key, value in content["added_tokens"][0].items() if key not in ("id", "content")}
    content["added_tokens"] = [{"id": len(tokens) + n, "content": name, **flags} for n, name in enumerate(names)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    texts = [f"the{''.join(names)}low {names[0]} 12", "the ferrys", *names]
    tokenizer, _, _ = same_everywhere(tmp_path / "tokenizer.json", texts, tmp_path / "again")
    assert tokenizer.special_ids == {name: len(tokens) + n for n, name in enumerate(names)}
    with pytest.raises(ValueError, match="'é' can't be saved: it looks like bytes"):  # here the byte E9 is a token
        Tokenizer(*trained(300)).with_special_tokens(["é"]).save(tmp_path)


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_added_tokens_that_are_also_bytes_or_merges_have_the_ids_of_tokenizers(tmp_path, ignore_merges):
    """In tokenizer.json, "é" is the byte E9, "č" the byte 0D, and "ferry" may be a token that merges make."""
    tokenizers, (vocab, merges) = need("tokenizers"), trained(1000)
    Tokenizer(vocab, merges, [END]).save(tmp_path)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.add_special_tokens(["é", "ñ", "¡hola!", "<č>", "č", "ươ", "<ł>"])
    theirs.add_tokens(["the", "ing", " the", "harbor"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    path = changed(tmp_path, with_change("model", "ignore_merges", ignore_merges))
    rng, pieces = random.Random(3), [*Tokenizer.load(path).special_tokens, "釀", "o", " ", "r\r", "<\r>", "m", " in", "\n"]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 8))) for _ in range(MANY)]
    tokenizer, theirs, expected = same_everywhere(path, texts, tmp_path / "again")
    assert tokenizer.special_ids["é"] == 0xE9 and b"".join(merges[tokenizer.special_ids["the"] - 257]) == b"the"
    for text in ("é釀", "the thing"):
        assert tokenizer.decode(tokenizer.encode(text)) == theirs.decode(tokenizer.encode(text), skip_special_tokens=False)
    assert tokenizer.encode_ordinary("釀é") == Tokenizer(vocab, merges, [END]).encode("釀é")
    tokenizer.prune(990).save(tmp_path / "smaller")
    same_everywhere(tmp_path / "smaller/tokenizer.json", texts, tmp_path / "again")
    longer = tokenizer.extend(texts=["abracadabra " * 9], n_tokens=5)
    assert [longer.encode(text) for text in texts] == expected
    assert tokenizer.sources(tokenizer)[0xE9] == [0xE9]
    with pytest.raises(ValueError, match="'é' can't have another name: it is also a token of text"):
        tokenizer.rename_special_tokens({"é": "<e>"})
    with pytest.raises(ValueError, match="end must not be 'the': it is also a token of text, so text could forge it"):
        tokenizer.encode_files(texts=["other"], output=tmp_path / "ids.npy", end="the")


@only_python
def test_added_tokens_have_the_ids_that_tokenizers_gives_them_where_ids_have_gaps(tmp_path):
    """Those outside "vocab" are numbered from its length on; before version 0.22, from a greater id before them."""
    from_file, rng, outcomes = need("tokenizers").Tokenizer.from_file, random.Random(4), Counter()
    for _ in range(60):
        vocab = dict(zip(bpe.CHARACTERS, range(256)))
        names = rng.sample(["<a>", "<b>", "<c>", "<d>"], 3)
        given = dict(zip(names, rng.sample(range(256, 264), 3)))
        vocab |= {name: given[name] for name in names if rng.random() < 0.5}
        content = bpe.tokenizer_json(vocab, [], given, "gpt2")
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(content), encoding="utf-8")
        theirs = from_file(str(path))
        ids = {name: theirs.token_to_id(name) for name in names}
        for token in content["added_tokens"]:
            token["id"] = ids[token["content"]]
        try:
            assert Tokenizer.load(path).special_ids == given == ids
            outcomes["as it is"] += 1
        except ValueError as error:
            assert given != ids and ("tokenizers gives" in str(error) or len(set(ids.values())) < 3), error
        path.write_text(json.dumps(content), encoding="utf-8")
        if len(set(ids.values())) == 3:  # two tokens may have one id there
            assert Tokenizer.load(path).special_ids == ids
            assert Tokenizer.load(path).encode("".join(names)) == theirs.encode("".join(names)).ids
            outcomes["with their ids"] += 1
    assert min(outcomes["as it is"], outcomes["with their ids"]) > 10


@only_python
def test_saved_special_tokens_have_the_ids_of_tokenizers_though_bytes_are_missing_and_ids_have_gaps(tmp_path):
    """As "õ" is the name of the byte F5, which has no token here, it isn't in "vocab"; "fe" is a token of text, too."""
    from_file, rng, outcomes = need("tokenizers").Tokenizer.from_file, random.Random(5), Counter()
    for _ in range(60):
        vocab = {number: bytes([byte]) for number, byte in enumerate(set(range(256)) - {0xF5})}
        names = rng.sample(["<a>", "õ", "<b>", "fe"], 3)
        vocab |= {token_id: name.encode() for token_id, name in zip(rng.sample(range(255, 261), 3), names)}
        ids = {token: token_id for token_id, token in vocab.items()}
        merges, shared = ([(b"f", b"e")], {ids[b"fe"]: "fe"}) if "fe" in names else ([], {})
        tokenizer = Tokenizer(vocab, merges, names, shared=shared)
        try:
            tokenizer.save(tmp_path)
        except ValueError as error:
            assert "'õ' can't be saved" in str(error)
            outcomes["refused"] += 1
            continue
        text = "".join(names)
        expected = from_file(str(tmp_path / "tokenizer.json")).encode(text).ids
        assert tokenizer.encode(text) == Tokenizer.load(tmp_path).encode(text) == expected
        outcomes["saved"] += 1
    assert outcomes["refused"] and outcomes["saved"] > 20


@only_python
def test_a_special_token_may_have_any_name_that_no_other_token_has_in_files(tmp_path):
    """However it comes into the model: "¡hola!" could be the byte A1 and then "hola!", which is no token."""
    tokenizers, old = need("tokenizers"), Tokenizer(*trained(600), [END])
    ways = [old.with_special_tokens(["¡hola!"]), old.rename_special_tokens({END: "¡hola!"}),
            Tokenizer.train(texts=["¡hola! the"], vocab_size=258, special_tokens=["¡hola!"])]  # fmt: skip
    for tokenizer in ways:
        tokenizer.save(tmp_path)
        expected = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("a ¡hola!").ids
        assert tokenizer.encode("a ¡hola!") == Tokenizer.load(tmp_path).encode("a ¡hola!") == expected
        assert expected[-1] == tokenizer.special_ids["¡hola!"]
    for name in ("ñ", "đ", bpe.to_printable(b" the")):
        for changed in (old.with_special_tokens([name]), old.rename_special_tokens({END: name})):
            with pytest.raises(ValueError, match=f"special token '{name}' can't be saved: it looks like bytes"):
                changed.save(tmp_path)
        with pytest.raises(ValueError, match=f"special token '{name}'"):
            Tokenizer.train("nowhere.txt", 300, [name])  # before any work


def test_a_normalized_token_may_overlap_others_where_tokens_strip(tmp_path):
    """With lstrip or rstrip, text is searched twice, as in tokenizers: first for tokens that aren't normalized."""
    Tokenizer(*trained(300), [END]).save(tmp_path)
    tokens = [with_token("<a>", id=300, normalized=True), with_token("a><b", id=301), with_token("<c>", id=302, lstrip=True)]
    path = changed(tmp_path, lambda content: [change(content) for change in tokens])
    texts = ["".join(pieces) for n in range(1, 5) for pieces in itertools.product(["<", "a>", "b>", " ", "<c>"], repeat=n)]
    tokenizer, _, _ = same_everywhere(path, texts, tmp_path / "again")
    assert tokenizer.encode("<a><b>")[1] == 301


@only_python
@pytest.mark.parametrize("pattern", [r"\S+|\s+", ()])
def test_with_a_custom_pattern_a_word_may_have_the_name_of_a_special_token(tmp_path, pattern):
    """In a file, "¡hola!" is the byte A1, with which "á" ends, and "hola!"; and "Ã¡!hola" is "á!hola"."""
    if pattern:
        for call in Tokenizer.train, cluster.train:
            with pytest.raises(ValueError, match="special token '¡hola!' can't be saved: it looks like bytes"):
                call(*([None] if call is cluster.train else []), "nowhere.txt", 300, ["¡hola!"], pattern=pattern)  # before any work
    tokenizer = Tokenizer(dict(enumerate(bpe.BYTES)), (), ["Ã¡!hola"], pattern, ignore_merges=True)
    tokenizer.save(tmp_path)
    for text, ids in ("á!hola", [*"á!hola".encode()]), ("Ã¡!hola", [256]):
        theirs = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(text, add_special_tokens=False)
        assert tokenizer.encode(text) == Tokenizer.load(tmp_path).encode(text) == theirs.ids == ids


def lacking(content, names):
    """Take the tokens with these characters, and their merges, out of a tokenizer.json."""
    model, specials = content["model"], {token["content"] for token in content["added_tokens"]}
    kept = [name for name in model["vocab"] if name in specials or not names & set(name)]
    model["vocab"] = {name: number for number, name in enumerate(kept)}
    model["merges"] = [pair for pair in model["merges"] if not names & set("".join(pair))]
    for token in content["added_tokens"]:
        token["id"] = model["vocab"][token["content"]]


@pytest.mark.parametrize("normalizer, expression, ignore_merges", [
    (None, GPT2, False), (None, GPT2, True), ({"type": "NFC"}, GPT2, False), (None, "[^ ]+", False),  # long words
])
def test_bytes_without_a_token_are_an_error_or_left_out_as_in_tokenizers(tmp_path, engine, normalizer, expression, ignore_merges):
    tokenizers, rng = need("tokenizers"), random.Random(5)
    chinese = "天气很好，渡船准时。今天天气很好"
    Tokenizer.train(texts=[PART, chinese * 9], vocab_size=800, special_tokens=[END]).save(tmp_path)
    missing = {b"\x1d"[0], ord("q"), *rng.sample(range(0x80, 0xC0), 9), 0xF0}
    change = functools.partial(lacking, names={bpe.CHARACTERS[byte] for byte in missing})
    changed(tmp_path, change)
    path = changed(tmp_path, lambda content: content.update(normalizer=normalizer) or content["model"].update(ignore_merges=ignore_merges))
    path = changed(tmp_path, with_change("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", expression))
    theirs, tokenizer = tokenizers.Tokenizer.from_file(str(path)), Tokenizer.load(path)
    assert sum(bytes([byte]) not in tokenizer.ids for byte in range(256)) == 12
    pieces = ["the", " ferry", "a\x1db", "q", "qu", "é", "字", "e\u0301", "😀", END, "\n", *chinese]
    texts = ["".join(rng.choices(pieces, k=rng.randint(1, 60))) for _ in range(MANY)] + [PART, chinese * 30, "ok"]
    expected = [ids.ids for ids in theirs.encode_batch(texts)]
    with pytest.raises(ValueError, match=r"texts\[1\]: .*no token for the byte b'q', in .*; errors='replace' leaves it out"):
        tokenizer.encode_batch(["ok", "the q"])
    assert tokenizer.encode_batch(texts, errors="replace") == expected
    ids, offsets = tokenizer.encode_arrays(texts, errors="replace")
    assert [ids[start:end].tolist() for start, end in itertools.pairwise(offsets)] == expected
    whole = "".join(texts)
    assert list(tokenizer.encode_iterable(split_anywhere(rng, whole), errors="replace")) == theirs.encode(whole).ids
    with pytest.raises(ValueError, match="no token for the byte"):
        tokenizer.encode(whole)  # an error after the words were cached, too


def test_the_summary_counts_bytes_without_a_token_that_errors_replace_leaves_out(main):
    """In encoding, and in extending; "q" occurs 3 times."""
    train_and_save("model", "words.txt", 300, [END])
    changed("model", functools.partial(lacking, names={"q"}))
    Path("q.txt").write_text("low q\nqlowq lowest\n" + "lowest newer " * 9)
    assert "no token for" in main("q.txt", "--encode", "ids.npy", "--model", "model")[2]
    for command in (["q.txt", "--encode", "ids.npy", "--model", "model"], ["q.txt", "+2", "--extend", "model", "--model", "new"]):
        status, _, stderr = main(*command, "--errors", "replace")
        assert status == 0 and summary(stderr)["left out"] == "3 bytes without a token in this vocabulary"
    tokenizer, text = Tokenizer.load("model"), Path("q.txt").read_text()
    longer = tokenizer.extend("q.txt", 2, errors="replace")
    assert longer.merges == tokenizer.extend(texts=[text.replace("q", "")], n_tokens=2).merges == Tokenizer.load("new").merges
    with pytest.raises(ValueError, match="no token for .*q.*'; errors='replace' leaves it out"):
        tokenizer.extend("q.txt", 2)
    size = len(tokenizer) - 3
    assert tokenizer.prune(size, "q.txt", errors="replace").vocab == tokenizer.prune(size, texts=[text.replace("q", "")]).vocab


@only_python
def test_roles_stay_that_only_the_settings_list_with_the_ids_of_the_vocabulary(tmp_path):
    """torchtitan's tokenizer.json has no added tokens: transformers takes them from tokenizer_config.json."""
    transformers = need("transformers")
    Tokenizer(*trained(300), [END, "<s>"]).save(tmp_path, eos_token=END)
    changed(tmp_path, with_change("added_tokens", []))
    config = json.loads((tmp_path / "tokenizer_config.json").read_bytes())
    entry = {"content": END, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config["added_tokens_decoder"] = {"256": entry, "300": {**entry, "content": "<s>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    expected = transformers.AutoTokenizer.from_pretrained(str(tmp_path))(f"the{END}")["input_ids"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            Tokenizer.load(tmp_path).save(tmp_path)
            theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
            assert (theirs.eos_token, theirs.eos_token_id) == (END, 256) and theirs(f"the{END}")["input_ids"] == expected
    config["added_tokens_decoder"]["256"]["content"] = "<|im_end|>"  # the vocabulary has another token there
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "<|im_end|>"}))
    with pytest.warns(UserWarning, match="eos_token '<|im_end|>'"):
        Tokenizer.load(tmp_path).save(tmp_path)


@only_python
def test_tokens_that_only_the_settings_list_stay_in_their_order(tmp_path):
    """They were in the order of a set, so that two saves of one model could differ."""
    tokenizer = Tokenizer(*trained(300), [f"<{number}>" for number in range(9)])
    tokenizer.save(tmp_path)
    changed(tmp_path, with_change("added_tokens", []))
    listed = {str(token_id): {"content": text} for text, token_id in tokenizer.special_ids.items()}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    Tokenizer.load(tmp_path).save(tmp_path)
    assert list(json.loads((tmp_path / "tokenizer_config.json").read_bytes())["added_tokens_decoder"]) == list(listed)


@only_c
@pytest.mark.parametrize("kind", [*KINDS, "gpt2", "cl100k", "o200k"])
def test_a_model_goes_through_transformers_and_back(tmp_path, kind):
    transformers = need("transformers")
    if kind in KINDS:
        (tmp_path / "tokenizer.json").write_text(foreign(kind), encoding="utf-8")
        tokenizer = Tokenizer.load(tmp_path)
    else:
        tokenizer = Tokenizer(*trained(600, kind), [END], kind)
    tokenizer.save(tmp_path / "ours")
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "ours"))
    texts = texts_with_traps(kind, 100, tokenizer.special_tokens)
    ids = [tokenizer.encode(text) for text in texts]
    assert [theirs(text, add_special_tokens=False)["input_ids"] for text in texts] == ids
    for folder in ("ours", "theirs"):  # over ours, and alone
        theirs.save_pretrained(str(tmp_path / folder))
        again = Tokenizer.load(tmp_path / folder)
        assert [again.encode(text) for text in texts] == ids
        if kind not in KINDS:
            again.rest = {}  # version 5 writes a template that adds nothing
            assert (again.vocab, again.merges, again.settings()) == (tokenizer.vocab, tokenizer.merges, tokenizer.settings())
    theirs.add_tokens(["new word"])
    theirs.add_special_tokens({"pad_token": "<pad>"})
    theirs.save_pretrained(str(tmp_path / "more"))
    text = "Some new word, <pad>!"
    assert Tokenizer.load(tmp_path / "more").encode(text) == theirs(text, add_special_tokens=False)["input_ids"]


def test_show_and_the_summary_say_why_python_encodes(main, engine):
    for kind, in_c in [("matches only", "Python (C scans no pattern with (?#)"), ("DeepSeek", "C"), ("Qwen 3", "C"), ("Llama 3", "C"),
                       ("StarCoder", "C"), ("SmolLM", "C")]:
        os.makedirs("bpeModel", exist_ok=True)
        Path("bpeModel/tokenizer.json").write_text(foreign(kind), encoding="utf-8")
        expected = in_c if engine == "c" else f"Python ({choices.find_engine()[1]})"
        status, _, stderr = main("words.txt", "--encode", "ids.npy")
        assert status == 0 and summary(stderr)["engine"] == expected
        status, stdout, stderr = main("--show", "low 1234")
        assert status == 0 and stdout.count("\n") == 3
        assert summary(stderr) == ({"engine": expected} if kind in ("DeepSeek", "StarCoder", "SmolLM") else {})
        assert read_ids("ids.npy")[1] == Tokenizer.load("bpeModel").encode(TEXTBOOK)


RULES = {  # entry: its values; any of them go together
    "normalizer": [None, {"type": "NFC"}, {"type": "NFKC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}],
    "steps": [OWN_PATTERN, [split_at(bpe.PATTERNS["cl100k"]), BYTE_LEVEL], [EACH_DIGIT, OWN_PATTERN], [split_at("[A-Za-z]+"), BYTE_LEVEL],
              [split_at(THREE_DIGITS), split_at(bpe.PATTERNS["gpt2"], "Removed"), OWN_PATTERN]],
    "added": [[("<|end|>", {})], with_spaces(normalized=True), with_spaces(normalized=False),
              [("<EOT>", {"normalized": True}), ("1 2", {"normalized": True, "special": False}), ("<|end|>", {})],
              [("<mask>", {"lstrip": True}), ("b c", {"rstrip": True, "normalized": True}), ("<x> ", {"lstrip": True, "rstrip": True})]],
    "ignore_merges": [False, True], "all_splits": [False, True],
}  # fmt: skip


@pytest.mark.parametrize("seed", range(8 + MANY // 50))
def test_the_rules_of_other_programs_go_together(tmp_path, monkeypatch, cut, seed):
    rng = random.Random(seed)
    monkeypatch.setitem(KINDS, f"random {seed}", {name: rng.choice(values) for name, values in RULES.items()})
    path = tmp_path / "tokenizer.json"
    path.write_text(foreign(f"random {seed}"), encoding="utf-8")
    texts = texts_with_traps(seed, MANY // 2, Tokenizer.load(path).special_tokens)
    tokenizer, theirs, _ = same_everywhere(path, texts, tmp_path / "again")
    cut(100)
    whole = "".join(texts)
    assert ids_in_file(tokenizer, whole, tmp_path) == theirs.encode(whole, add_special_tokens=False).ids == tokenizer.encode(whole)


@only_python
def test_everything_that_is_not_supported_is_said_at_once_in_300_characters(tmp_path):
    content = json.loads(foreign("Llama 3"))
    content["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Lowercase"}]}
    content["pre_tokenizer"] = None
    content["model"].update(byte_fallback=True, dropout=0.1)
    content["added_tokens"][0].update(single_word=True)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError) as caught:
        Tokenizer.load(tmp_path)
    for reason in ("pre_tokenizer = null", 'normalizers.0.type = "Prepend"', 'normalizers.1.type = "Lowercase"',
                   "model.byte_fallback = true", "model.dropout = 0.1", "added_tokens.0.single_word = true"):  # fmt: skip
        assert reason in str(caught.value)
    reasons = str(caught.value).removeprefix(f"{tmp_path / 'tokenizer.json'}: ")
    assert reasons.count(" = ") == 8 and reasons.endswith(" are not supported")
    assert len(reasons) <= 300 and "\n" not in reasons
    content["added_tokens"] += [{**content["added_tokens"][0], "content": f"<{n}>", "id": 2002 + n} for n in range(5000)]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"single_word = true; .* are not supported; and [\d,]+ more$") as caught:
        Tokenizer.load(tmp_path)
    assert len(str(caught.value)) <= 300 + len(f"{tmp_path / 'tokenizer.json'}: ")
    content["added_tokens"] = [{**content["added_tokens"][1], "content": "\n"}]  # hides no other reason
    del content["normalizer"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"pre_tokenizer = null are not supported; special token 1 \('\\n'\) must be text of at least two bytes"):
        Tokenizer.load(tmp_path)


PRETOKENIZERS = r"pre_tokenizer\.pretokenizers\."


def with_unknown_bytes(content):
    del content["model"]["vocab"]["a"]
    content["model"].update(unk_token=END, merges=[])


def with_a_repeated_merge(content):
    content["model"]["merges"].insert(1, content["model"]["merges"][0])
    content["model"]["ignore_merges"] = True


def with_a_token_that_is_not_in_nfc(content):
    content["normalizer"] = {"type": "NFC"}
    with_token("e\u0301e", normalized=True)(content)


REFUSED = [  # [^;]*$: no other reason is given
    (with_change("normalizer", {"type": "NFD"}), r'normalizer\.type = "NFD" is not supported[^;]*$'),
    (with_a_token_that_is_not_in_nfc, "the normalized added token .* is not in NFC[^;]*$"),
    *[(with_change("post_processor", {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": END, "type_id": 0}}, *texts],
                                      "pair": [], "special_tokens": {}}), "a template of .* is not supported: text A must be in it once[^;]*$")
      for texts in ([], [{"Sequence": {"id": "A", "type_id": 0}}] * 2, [{"Sequence": {"id": "B", "type_id": 0}}])],
    (with_change("version", "2.0"), 'version = "2.0" is not supported[^;]*$'),
    (with_change("pre_tokenizer", None), "pre_tokenizer = null is not supported[^;]*$"),
    (with_change("pre_tokenizer", "pretokenizers", []), r'pre_tokenizer = .*"pretokenizers": \[\]} is not supported[^;]*$'),
    (with_change("pre_tokenizer", {"type": "Metaspace"}), 'pre_tokenizer.pretokenizers.0.type = "Metaspace" is not supported[^;]*$'),
    (with_change("pre_tokenizer", "pretokenizers", 0, "pattern", "Regex", "(?:" * 400 + "a" + ")" * 400), "more than 50 nested groups and sets"),
    (with_a_repeated_merge, r"merge 1 .*\(b'.*', b'.*'\), repeats an earlier one"),
    (with_change("model", "byte_fallback", True), r"model\.byte_fallback = true is not supported"),
    (with_change("model", "dropout", 0.1), r"model\.dropout = 0\.1 is not supported"),
    (with_change("model", "continuing_subword_prefix", "##"), r'model\.continuing_subword_prefix = "##" is not supp'),
    (with_change("model", "end_of_word_suffix", "</w>"), r'model\.end_of_word_suffix = "</w>" is not supported'),
    (with_unknown_bytes, r"model\.unk_token = .* is for bytes without a token \(1, such as b'a'\): set it to null, .*or add them"),
    (with_change("model", "type", "WordPiece"), "WordPiece"),
    (with_change("model", {"type": "Unigram", "vocab": [["a", 0.0]]}),
     'this is a SentencePiece model, not byte-level BPE: model.type = "Unigram" is not supported[^;]*$'),
    (with_change("model", "something_new", 7), r"model\.something_new = 7 is not supported"),
    (with_change("something_new", {"a": [1]}), r"something_new.* is not supported"),
    (with_change("pre_tokenizer", "pretokenizers", 1, "add_prefix_space", True),
     PRETOKENIZERS + "1.add_prefix_space = true is not supported"),
    (lambda content: content["pre_tokenizer"]["pretokenizers"].pop(), "pre_tokenizer"),
    (with_change("pre_tokenizer", {"type": "Whitespace"}), "pre_tokenizer"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "invert", True), PRETOKENIZERS + "0.invert = true is not supp"),
    (with_change("pre_tokenizer", "pretokenizers", 0, "behavior", "Removed"), PRETOKENIZERS + '0.behavior = "Removed"'),
    (with_change("pre_tokenizer", "pretokenizers", 0, "pattern", {"String": ""}), "pre_tokenizer.*String|not a byte-level"),
    (with_change("model", "merges", 3, ["a", "b", "c"]), r"merge 3 \(from 0\) must be two tokens, not \['a', 'b', 'c'\]"),
    (with_change("model", "merges", 3, {"t": 0, "h": 0}), r"merge 3 \(from 0\) must be two tokens, not \{'t': 0, 'h': 0\}"),
    (with_change("model", "merges", 3, ["a b"]), r"merge 3 \(from 0\) must be two tokens, not \['a b'\]"),
    (with_change("model", "merges", 3, ["a", "b\nc d"]), r"a merge uses 'b\\nc d', which is not in the vocabulary"),
    (with_change("model", "merges", 3, "a b\nc d"), r"a merge uses 'b\\nc d', which is not in the vocabulary"),
    (lambda content: content["model"]["merges"][-1].append(content["model"]["merges"][-1].pop() + "\0"),
     r"a merge uses '.*\\x00', which is not in the vocabulary"),
    (with_change("model", "vocab", "a", -1), "vocab maps ids from 0 to 4294967294 to bytes, not -1 to b'a'"),
    (with_change("model", "vocab", "a", 2**32), "vocab maps ids from 0 to 4294967294 to bytes, not 4294967296 to b'a'"),
    (with_change("model", "vocab", "a", "7"), "vocab maps ids from 0 to 4294967294 to bytes, not '7' to b'a'"),
    (with_change("decoder", {"type": "WordPiece", "prefix": "##", "cleanup": True}), "decoder"),
    (with_token("<x>", single_word=True), r"added_tokens\.1\.single_word = true is not supported[^;]*$"),
    (lambda content: [with_token(text, id=id, lstrip=True, rstrip=True)(content) for id, text in ((600, "<x>"), (601, " \n"))],
     r"the added token ' \\n' is whitespace and has lstrip, and another has rstrip"),
    *[(with_token(text, normalized=True), "overlaps another, and only one is normalized")
      for text in ("text|><", f"x{END}y", f"{END}y")],  # tokenizers looks for others first
    *[(lambda content, names=names: [with_token(name, id=600 + n, normalized=n == 0)(content) for n, name in enumerate(names)],
       f"'{names[0]}' overlaps another") for names in (["zqzqzx!", "zqzx"], ["zqz!", "zqzx", "qz"])],  # found from a shorter prefix
    (with_token("é"), r"added_tokens\.1\.id = 600 \(tokenizers gives 'é' the id 233\) is not"),  # the name of the byte E9
    (with_token(END, id=256, special=False), "duplicate.*endoftext"),
    (with_change("model", "vocab", "a", 98), r"two tokens have the same id 98: '.' and '.'"),
    (lambda content: [content["model"]["vocab"].update({"<x>": 256}), with_token("<x>", id=256)(content)],
     rf"two tokens have the same id 256: '{END}' and '<x>'".replace("|", r"\|")),
    (with_change("added_tokens", 0, "id", 300), r"added_tokens\.0\.id = 300"),
    (lambda content: [with_token("<x>", id=number)(content) for number in (600, 601)], "<x>"),
    (with_token("<x>", id=601), r"added_tokens\.1\.id = 601 \(tokenizers gives '<x>' the id 600\) is not supported"),
    (with_change("model", {"vocab": [["<pad>", 0.0], ["\u2581t", -2.5]], "unk_id": 2}), "SentencePiece model, not byte-level"),  # T5, 2020
    (lambda content: [with_change("model", "end_of_word_suffix", "</w>")(content), *(
        with_token(f"<{n}>", id=600 + n, single_word=True)(content) for n in range(20))],
     "this is a model of words that end in '</w>', as CLIP's do, not byte-level BPE"),
    (with_change("model", "vocab", END, 9999), r"added_tokens\.0\.id"),
    (with_token("x\ufffd"), "special token"),
]  # fmt: skip


@once
@pytest.mark.parametrize("change, text", REFUSED)
def test_a_tokenizer_json_with_more_than_tokenizer_does_is_an_error_that_names_it(tmp_path, monkeypatch, change, text):
    path, told = changed(tmp_path, change), []
    for place in (path, tmp_path, path):
        with pytest.raises(ValueError, match=rf"(?s){regex.escape(str(tmp_path))}.*({text})") as caught:
            Tokenizer.load(place)
        told.append(str(caught.value))
        if place == tmp_path:
            without_engine(monkeypatch)
    assert told[0] == told[2]


@only_python
@pytest.mark.parametrize("change, text", [
    (lambda content: content.update({"x" * 20_000: [1] * 20_000}), r"x{50,100} = \[1, 1"),
    (lambda content: [with_token(f"<{n}>", id=600 + n, single_word=True)(content) for n in range(1, 2000)], r"added_tokens.*; and [\d,]+ more"),
    (lambda content: content["added_tokens"].append({**content["added_tokens"][0], "content": "a" * 150_000, "id": 7}), "added_tokens.1.id = 7"),
    (lambda content: content["model"]["merges"].append(["th" * 100_000, "e"]), "a merge uses 'thth"),
    (lambda content: content["model"].update(type="x" * 100_000), 'model.type = "xxx'),
    (lambda content: content.update(new=functools.reduce(lambda tree, _: [tree, 1], range(800), 1)), r"new(\.0)+ = "),
])  # fmt: skip
def test_a_refusal_is_one_short_line_even_for_huge_entries(tmp_path, change, text):
    """A key of 20,000 characters over 20,000 values took 7 s and 780 MB, and the message repeated the key."""
    path = changed(tmp_path, change)
    start = time.process_time()
    with pytest.raises(ValueError, match=text) as caught:
        Tokenizer.load(path)
    assert time.process_time() - start < 1
    message = str(caught.value).removeprefix(f"{path}: ")
    assert len(message) <= 300 and "\n" not in message


@only_python
def test_json_that_is_nested_too_deep_is_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text('{"x": ' + "[" * 500_000 + "]" * 500_000 + "}")
    with pytest.raises(ValueError, match=r"not a byte-level BPE model \(RecursionError.{1,200}$"):
        Tokenizer.load(tmp_path)


@only_python
def test_a_template_is_as_deep_as_tokenizers_opens_it(tmp_path):
    tokenizers = need("tokenizers")
    Tokenizer.train(texts=["low lower"], vocab_size=260, special_tokens=["<s>"]).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    content, template = json.loads(path.read_bytes()), {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    for n in range(1, 301):
        template = {"type": "Sequence", "processors": [template]}
        path.write_text(json.dumps({**content, "post_processor": template}))
        if n == 62:
            tokenizers.Tokenizer.from_file(str(path))
            loaded = Tokenizer.load(tmp_path).rename_special_tokens({"<s>": "<t>"}).prune(258)
            assert loaded.rest["post_processor"] == template
        if n in (63, 300):
            with pytest.raises(Exception, match="recursion limit"):
                tokenizers.Tokenizer.from_file(str(path))
            with pytest.raises(ValueError, match=r"tokenizer\.json: post_processor is nested more than 126 levels deep$"):
                Tokenizer.load(tmp_path)


@only_python
@pytest.mark.parametrize("special_tokens", [[f"<{n}>" for n in range(1000)], [f"<{n}>" for n in range(20_000)], ["ab" * 150_000, "cb" * 150_000]])
def test_many_or_long_added_tokens_are_checked_fast(tmp_path, special_tokens):
    Tokenizer(*trained(300), special_tokens).save(tmp_path)
    half = lambda content: [token.update(normalized=True) for token in content["added_tokens"][::2]]  # noqa: E731
    path = changed(tmp_path, half)
    start = time.process_time()
    assert list(Tokenizer.load(path).special_ids) == special_tokens
    assert time.process_time() - start < 2


@only_python
@pytest.mark.parametrize("pattern, flags", [(("NFC", "gpt2"), ["normalized"]), ("gpt2", ["normalized", "lstrip"])])
def test_text_with_many_added_tokens_is_prepared_and_cut_fast(pattern, flags):
    special_tokens = [f"<{n}>" for n in range(10_000)]
    tokenizer = Tokenizer(*trained(300), special_tokens, pattern, **dict.fromkeys(flags, special_tokens))
    start, text = time.process_time(), "low <7> lower " * 1000
    assert list(tokenizer.encode_iterable([text] * 5)) == tokenizer.encode(text * 5)
    assert time.process_time() - start < 8
