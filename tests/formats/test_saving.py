"""Files of a model, written: by bpe_more/formats/saving.py, and read again by us and by other programs."""

import contextlib
import functools
import importlib.util
import json
import os
import random
from pathlib import Path

import pytest
import regex

import bpe
import bpe_more
from bpe_more import training
from bpe_more.patterns.steps import TIKTOKEN_CL100K
from bpe_more.tokenizer import Tokenizer
from shared import (
    CORPORA,
    KNOWN,
    MODELS,
    contents,
    edit,
    least_seconds,
    load_elsewhere,
    only_c,
    only_python,
    same_everywhere,
    train_and_save,
    trained,
)
from test_bpe import END, FIXTURE, PART, TEXTS, TRICKY, files_of, naive_files, need, random_text, with_merges


@only_python
def test_save_then_load_is_the_identity_for_any_bytes(tmp_path):
    rng, specials = random.Random(1), [END, "two words", "字 \n\t"]
    merges = [(b"#", b"version"), (b"#", b"version:")]  # the first line of merges.txt looks like that
    merges += [(b"version"[:n], b"version:"[n : n + 1]) for n in range(1, 8)]
    tokens = [bytes([byte]) for byte in range(256)] + [b"#version", b"#version:", *(b"".join(pair) for pair in merges[2:])]
    while len(merges) < 2000:
        left, right = rng.choice(tokens), rng.choice(tokens)
        if len(left + right) < 12 and left + right not in tokens:
            merges.append((left, right))
            tokens.append(left + right)
    rng.shuffle(tokens)
    vocab = {3 * i: token for i, token in enumerate(tokens + [special.encode() for special in specials])}
    # only cl100k's own {1,3}+ is rewritten for Oniguruma; elsewhere it could change the words
    tokenizer = Tokenizer(vocab, merges, specials, r"\p{N}{1,3}+5|[\s\S]")
    tokenizer.save(tmp_path / "a" / "b")
    assert contents(Tokenizer.load(tmp_path / "a" / "b")) == contents(tokenizer)
    assert Tokenizer.from_files(tmp_path / "a/b/vocab.json", tmp_path / "a/b/merges.txt", specials).vocab == vocab


def test_a_folder_has_everything_about_a_model_and_nothing_of_an_earlier_one(main, part):
    text, names = f"I'LL 12345 theory\n\nHTMLParser's<x><y>{END}", set()
    for number in (0, 1, 2, 3, 0):
        options = MODELS[number]
        vocab, merges = train_and_save("model", part, **options)
        names = names or set(os.listdir("model"))
        assert set(os.listdir("model")) == names >= {"merges.txt", "tokenizer.json", "vocab.json"}
        tokenizer, arguments = Tokenizer.load("model"), (options["special_tokens"], options.get("pattern", "gpt2"))
        assert (tokenizer.vocab, tokenizer.merges) == (vocab, merges) == training.train_bpe(part, **options)
        assert (list(tokenizer.special_tokens), tokenizer.pattern) == arguments
        ids = tokenizer.encode(text)
        assert ids == Tokenizer(vocab, merges, *arguments).encode(text)
        assert main("--show", text, "--model", "model")[1].splitlines()[-2] == " ".join(map(str, ids))
        model = json.loads(Path("model/tokenizer.json").read_bytes())["model"]
        assert model["vocab"] == json.loads(Path("model/vocab.json").read_bytes())
        lines = Path("model/merges.txt").read_bytes().decode().split("\n")
        assert [" ".join(merge) for merge in model["merges"]] == lines[1:-1]


@only_python
@pytest.mark.parametrize("module", [bpe, bpe_more])
def test_tokenizer_json_alone_is_the_model(tmp_path, module):
    """bpe_more also writes files for transformers, and takes a folder's roles and template from them when it saves again."""
    tokenizer = module.Tokenizer(*trained(300), [END])
    bpe_more.Tokenizer(*trained(300), [END]).save(tmp_path, eos_token=END, chat_template="a")
    for name in set(os.listdir(tmp_path)) - {"tokenizer.json"}:
        (tmp_path / name).write_bytes(b"\xff{")
    for place in (tmp_path, tmp_path / "tokenizer.json"):
        assert contents(module.Tokenizer.load(place)) == contents(tokenizer)
    tokenizer.save(tmp_path)
    assert json.loads((tmp_path / "vocab.json").read_bytes())["h"] == ord("h")


@only_python
def test_tokenizer_json_has_the_spelling_of_gpt2s_pattern_that_other_programs_know(tmp_path):
    """Tokenizers 1.0 has no look-ahead of its own, and knows GPT-2's pattern by its exact spelling."""
    spelling = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # from GPT-2's encoder.py
    for pattern in ("gpt2", bpe.GPT2, spelling):
        tokenizer = Tokenizer(*trained(300), [END], pattern)
        tokenizer.save(tmp_path)
        split = json.loads((tmp_path / "tokenizer.json").read_bytes())["pre_tokenizer"]["pretokenizers"][0]
        assert split["pattern"] == {"Regex": spelling}
        assert tokenizer.pattern == Tokenizer.load(tmp_path).pattern == "gpt2"


def test_cl100k_in_tokenizer_json_has_nothing_that_javascript_reads_otherwise(tmp_path):
    """There, possessive quantifiers are dropped or an error, and $ is the end of any line."""
    Tokenizer(*trained(300), [], "cl100k").save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    split = content["pre_tokenizer"]["pretokenizers"][0]["pattern"]
    assert not regex.search(r"[+*?]\+|\d}\+|\$", split["Regex"])
    for text in [*TRICKY, PART, " \na", "a \n", " \n \n", "\n a\r\n\r\n  b  "]:
        assert regex.findall(split["Regex"], text) == regex.findall(TIKTOKEN_CL100K, text)
    assert Tokenizer.load(tmp_path).pattern == "cl100k"
    before = TIKTOKEN_CL100K.replace("{1,3}+", "{1,3}")  # in files of version 0.4.0
    assert Tokenizer({0: b"a"}, [], pattern=before).pattern == "cl100k"


def test_merges_of_a_byte_that_is_a_special_token_too_are_saved(tmp_path):
    """Other programs know both by one name, as the byte E9 and the special token "é"; and the merge is applied."""
    vocab = dict(enumerate([*bpe.BYTES, b"\xe9\x8d"]))
    tokenizer = Tokenizer(vocab, [(b"\xe9", b"\x8d")], ["é"], shared={0xE9: "é"})
    assert tokenizer.encode("é鍸") == [0xE9, 256, 0xB8]  # 鍸 is E9 8D B8
    tokenizer.save(tmp_path / "model")
    _, _, [ids] = same_everywhere(tmp_path / "model/tokenizer.json", ["é鍸"], tmp_path / "again")
    assert ids == [0xE9, 256, 0xB8]


@only_python
def test_the_expressions_of_tiktoken_have_our_names(monkeypatch):
    need("tiktoken")
    theirs = importlib.import_module("tiktoken_ext.openai_public")
    monkeypatch.setattr(theirs, "load_tiktoken_bpe", lambda *_, **__: {})  # no download
    for name in ("cl100k", "o200k"):
        expression = getattr(theirs, f"{name}_base")()["pat_str"]
        assert Tokenizer({0: b"a"}, [], pattern=expression).pattern == name


@only_python
def test_roles_and_a_template_are_written_and_stay(tmp_path):
    tokenizer = Tokenizer(*trained(300), [END, "<pad>", "<s>"])
    read = lambda name: (tmp_path / name).read_bytes().decode()  # noqa: E731
    config = lambda: json.loads(read("tokenizer_config.json"))  # noqa: E731
    template = "{% for m in messages %}{{ m.content }}\r\n{% endfor %}é"
    tokenizer.save(tmp_path, eos_token=END, chat_template=template)
    assert (config()["eos_token"], config()["chat_template"], read("chat_template.jinja")) == (END, template, template)
    assert "pad_token" not in config()
    before = files_of(tmp_path)
    Tokenizer.load(tmp_path).save(tmp_path)
    assert files_of(tmp_path) == before
    tokenizer.save(tmp_path, pad_token="<pad>", bos_token="<s>")
    roles = [config()[name] for name in ("eos_token", "pad_token", "bos_token")]
    assert roles == [END, "<pad>", "<s>"] and read("chat_template.jinja") == template
    for role in ("bos_token", "eos_token", "pad_token"):
        for wrong in ("<unk>", "", "a"):
            with pytest.raises(ValueError, match=f"{role}='{wrong}' must be one of the special tokens"):
                tokenizer.save(tmp_path, **{role: wrong})
    assert config()["eos_token"] == END
    # transformers 5: another class, and the template in its own file only
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "TokenizersBackend", "eos_token": "<s>"}))
    (tmp_path / "chat_template.jinja").write_text("{{ 5 }}\n", newline="")
    tokenizer.save(tmp_path)
    assert (config()["tokenizer_class"], config()["eos_token"], config()["chat_template"]) == ("PreTrainedTokenizerFast", "<s>", "{{ 5 }}\n")
    # transformers 4: several templates
    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": several}))
    tokenizer.save(tmp_path)
    assert config()["chat_template"] == several and not (tmp_path / "chat_template.jinja").exists()
    # a template that was changed in its own file, of which save() had written a copy: version 5 prefers this one
    tokenizer.save(tmp_path, chat_template="old")
    (tmp_path / "chat_template.jinja").write_text("new")
    tokenizer.save(tmp_path)
    assert config()["chat_template"] == read("chat_template.jinja") == "new"


def bytes_of_printable(text):
    """The JSON of text whose bytes are printable characters."""
    return json.dumps(next(iter(naive_files({0: text.encode()}, [])[0])), ensure_ascii=False).encode()


@only_python
def test_special_tokens_that_are_no_bytes_of_utf8_can_be_saved(words_txt):
    """"é" would be the byte E9, which a continuation byte follows in any text, so no token is read as "<début>"."""
    for special in ["éé", "<début>", "«END»", "<|im start|>", "[TAB]\t", "😀", "<｜begin▁of▁sentence｜>", "\u00a0\u00a0"]:
        tokenizer = Tokenizer.train("words.txt", 300, [special])
        tokenizer.save("model")
        assert json.loads(Path("model/vocab.json").read_bytes())[special] == 256
        again = Tokenizer.from_files("model/vocab.json", "model/merges.txt", [special])
        for same in (Tokenizer.load("model"), again):
            assert contents(same) == contents(tokenizer) and same.encode(f"low{special}")[-1] == 256
        before = bytes_of_printable(special)  # how version 0.5.0 wrote it
        now = json.dumps(special, ensure_ascii=False).encode()
        edit(Path("model/vocab.json"), lambda data: data.replace(now, before, 1))  # noqa: B023 (called at once)
        again = Tokenizer.from_files("model/vocab.json", "model/merges.txt", [special])
        assert contents(again) == contents(tokenizer)


@only_python
def test_a_special_token_that_is_spelled_like_another_token_is_not_saved(words_txt):
    vocab = {**dict(enumerate(bpe.BYTES)), 256: b"<d\xe9but>"}  # bytes that no text has, so they were never learned
    with pytest.raises(ValueError, match="special token '<début>' is also another token in printable characters"):
        Tokenizer(vocab, [], ["<début>"]).save("model")


@only_python
def test_a_special_token_that_a_merge_uses_has_an_entry_in_the_vocabulary(words_txt):
    """tokenizers opens no file in which "vocab" lacks a part of a merge."""
    vocab = dict(enumerate([byte for byte in bpe.BYTES if byte != b"\xf5"]))  # files write this byte as "õ"
    for merges, text in [([], None), ([(b"<a>", b"b")], "special token 'õ' can't be saved")]:
        tokenizer = Tokenizer({**vocab, 255: b"<a>b"}, tuple(merges), ["õ", "<a>"])
        with pytest.raises(ValueError, match=text) if text else contextlib.nullcontext():
            tokenizer.save("model")
    tokenizer = Tokenizer({**vocab, 255: b"<a>b", 257: "õ".encode(), 300: b"<a>"}, ((b"<a>", b"b"),), ["õ", "<a>"])
    tokenizer.save("with gaps")
    content = json.loads(Path("with gaps/tokenizer.json").read_bytes())
    assert content["model"]["vocab"].items() >= {("<a>", 300)} and "õ" not in content["model"]["vocab"]
    assert contents(Tokenizer.load("with gaps")) == contents(tokenizer)


def test_a_special_token_with_a_newline_shifts_no_ids(words_txt):
    """It comes before the tokens of merges, and one that no merge has after them."""
    tokenizer = Tokenizer.train("words.txt", 300, iter(["<a\nb>"])).with_special_tokens(["<end>"])
    tokenizer.save("model")
    files = Tokenizer.from_files("model/vocab.json", "model/merges.txt", tokenizer.special_tokens)
    for same in (Tokenizer.load("model"), files):
        assert contents(same) == contents(tokenizer) and same.merges == tokenizer.merges


@functools.cache
def texts_for_others(size):
    rng = random.Random(size)
    texts = [*TEXTS, FIXTURE if size > 5000 else PART]
    texts += [random_text(rng, rng.choices(KNOWN, k=40) + TRICKY + [END], rng.randint(0, 300)) for _ in range(60)]
    spaces = [c for c in map(chr, range(0x3001)) if c.isspace()]
    texts += [random_text(rng, [*spaces, "a", "1", "."], 60) for _ in range(60)]
    if CORPORA:
        texts += (Path(CORPORA) / "languages.txt").read_text(encoding="utf-8").split(END)[::7]
    return texts


@only_c
@pytest.mark.parametrize("size, pattern", [
    (300, "gpt2"), (2000, "gpt2"), (32_000, "gpt2"), (2000, "cl100k"), (2000, "o200k"), (300, "llama3"), (300, "qwen2"),
])  # fmt: skip
def test_a_folder_encodes_the_same_in_other_tools(tmp_path, size, pattern):
    tokenizer = Tokenizer(*trained(size, pattern), [END], pattern)
    tokenizer.save(tmp_path)
    theirs, encoding = load_elsewhere(tmp_path)
    for text in texts_for_others(size):
        ids = tokenizer.encode(text)
        assert theirs.encode(text).ids == ids, text[:100]
        assert encoding.encode(text, allowed_special="all") == ids, text[:100]
        assert encoding.encode_ordinary(text) == tokenizer.encode_ordinary(text), text[:100]
        assert encoding.decode(ids) == text == theirs.decode(ids, skip_special_tokens=False)


def test_a_model_of_32000_tokens_loads_in_less_than_half_a_second(tmp_path):
    pairs = [(bytes([left]), bytes([right])) for left in range(124) for right in range(256)]
    Tokenizer(with_merges(pairs), pairs).save(tmp_path)
    assert len(Tokenizer.load(tmp_path)) == 32_000
    assert least_seconds(Tokenizer.load, tmp_path) < 0.5


@only_python
def test_40000_added_tokens_load_in_linear_time_and_less_than_four_times_that_of_tokenizers(tmp_path):
    """It takes twice as long; 3.4 to 5.1 times when each was written as JSON again to find equal ones."""
    tokenizers, ours = need("tokenizers"), {}
    for n in (10_000, 40_000):
        Tokenizer(*trained(300), [f"<{number}>" for number in range(n)]).save(tmp_path / str(n))
        assert len(Tokenizer.load(tmp_path / str(n)).special_tokens) == n
        ours[n] = least_seconds(Tokenizer.load, tmp_path / str(n))
    theirs = least_seconds(tokenizers.Tokenizer.from_file, str(tmp_path / "40000" / "tokenizer.json"))
    assert ours[40_000] < 10 * ours[10_000] and ours[40_000] < 4 * theirs
