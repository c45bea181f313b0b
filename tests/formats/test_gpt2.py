"""vocab.json and merges.txt of other programs: bpe_more/formats/gpt2.py."""

import gc
import json
import random
from pathlib import Path

import pytest

import bpe
from bpe_more import choices
from bpe_more.formats import gpt2
from bpe_more.formats.tiktoken import read_tiktoken
from bpe_more.tokenizer import Tokenizer
from foreign import foreign
from shared import only_c, only_python, trained, without_engine
from test_bpe import END


def two_files(vocab, merges):
    Path("vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    Path("merges.txt").write_text(merges, encoding="utf-8")
    return "vocab.json", "merges.txt"


@only_python
@pytest.mark.parametrize("vocab, merges, part", [
    ({"l": 0, "o": 1, "w": 2, "w</w>": 3, "lo": 4, "low</w>": 5}, "l o\nlo w</w>", "w</w>"),  # CLIP's kind
    ({"l": 0, "o@@": 1, "w": 2, "lo@@": 4}, "l o@@", "o@@"),
    ({"▁": 0, "l": 1, "▁l": 2}, "▁ l", "▁"),  # of characters beyond ASCII
])
def test_merges_of_another_kind_are_an_error_and_not_other_ids(words_txt, vocab, merges, part):
    with pytest.raises(ValueError, match=f"merges.txt: line .: no merge makes '{part}'; these are not merges of bytes"):
        Tokenizer.from_files(*two_files(vocab, merges))


@only_python
def test_the_two_files_may_have_a_bom_and_tokens_that_are_text(words_txt):
    vocab = {"l": 0, "o": 1, "w": 2, "lo": 3, "<mask> ": 4, "[TAB]\t": 5, "😀": 6, "<d\u00e9but>": 7}
    expected = {0: b"l", 1: b"o", 2: b"w", 3: b"lo", 4: b"<mask> ", 5: b"[TAB]\t", 6: "😀".encode(), 7: "<d\u00e9but>".encode()}
    for bom in ("", "\ufeff"):
        paths = two_files(vocab, f"{bom}#version: 0.2\nl o\n")
        tokenizer = Tokenizer.from_files(*paths, ["<mask> ", "[TAB]\t", "😀", "<d\u00e9but>"])
        assert tokenizer.vocab == expected and tokenizer.encode("low<mask> 😀[TAB]\t<d\u00e9but>") == [3, 2, 4, 6, 5, 7]
    assert Tokenizer.from_files(*paths).vocab == {**expected, 7: b"<d\xe9but>"}  # not named as a special token


def test_the_two_files_may_give_a_special_token_the_bytes_of_another_token(words_txt):
    """"  " beside "ĠĠ", as in the GGUF files of GPT-NeoX; 2 is a merge, and 3 the special token."""
    paths = two_files({"Ġ": 0, "a": 1, "ĠĠ": 2, "  ": 3}, "Ġ Ġ")
    tokenizer = Tokenizer.from_files(*paths, ["  "], "gpt2")
    assert tokenizer.vocab == {0: b" ", 1: b"a", 2: b"  ", 3: b"  "} and tokenizer.special_ids == {"  ": 3}
    assert (tokenizer.encode("a   a"), tokenizer.encode_ordinary("a   a")) == ([1, 3, 0, 1], [1, 2, 0, 1])
    with pytest.raises(ValueError, match="vocab.json: the token b'  ' has two ids"):
        Tokenizer.from_files(*paths)


@only_python
def test_a_merge_that_is_not_two_tokens_of_the_vocabulary_is_named_with_its_line(words_txt):
    for line, told in [("zz l", "'zz' is not in vocab.json"), ("l zz", "'zz' is not in vocab.json"), ("l w", "'lw' is not in vocab.json"),
                       ("c", "must be two tokens .*'c'"), ("c d e", "must be two tokens .*'c d e'")]:  # fmt: skip
        paths = two_files({"l": 0, "o": 1, "w": 2, "lo": 3}, f"#version: 0.2\nl o\n\n\n{line}\n")
        with pytest.raises(ValueError, match=f"merges.txt: line 5:? {told}"):
            Tokenizer.from_files(*paths)
    two_files([1], "")
    with pytest.raises(ValueError, match="vocab.json: not a byte-level BPE model .*tokenizer.json is for Tokenizer.load"):
        Tokenizer.from_files("vocab.json", "merges.txt")
    content = json.loads(foreign("Llama 3"))
    content["model"]["merges"].append("zz l")
    Path("tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="a merge uses 'zz', which is not in the vocabulary"):
        Tokenizer.load("tokenizer.json")


@only_python
def test_the_garbage_collector_works_again_after_a_model_is_read_or_refused(tmp_path):
    Tokenizer(*trained(300)).save(tmp_path)
    (tmp_path / "wrong.json").write_text("{}")
    try:
        for enable in (gc.disable, gc.enable):
            enable()
            Tokenizer.load(tmp_path)
            read_tiktoken({b"a": 0, b"aa": 1})
            with pytest.raises(ValueError):
                Tokenizer.load(tmp_path / "wrong.json")
            assert gc.isenabled() == (enable is gc.enable)
    finally:
        gc.enable()


def test_two_threads_that_pause_the_garbage_collector_leave_it_on(monkeypatch):
    """The second one asks while it is paused, and goes on after the first has turned it on again."""
    first, second = gpt2.paused_collector(), gpt2.paused_collector()
    first.__enter__()
    is_enabled = gc.isenabled

    def asked_late():
        answer = is_enabled()
        first.__exit__(None, None, None)
        return answer

    try:
        monkeypatch.setattr(gc, "isenabled", asked_late)
        second.__enter__()
        monkeypatch.undo()
        second.__exit__(None, None, None)
        assert gc.isenabled()
    finally:
        gc.enable()


@only_c
def test_a_model_loads_without_c_as_with_it(tmp_path, monkeypatch):
    """C finds the ids of merges, and the splits of tiktoken's tokens, if it is there."""
    rng, (engine, _) = random.Random(8), choices.find_engine()
    tokens = {bytes(rng.choices(b"abc ", k=rng.choice([2, 3, 8, 30]))) for _ in range(300)}
    ranks = {token: 3 * rank for rank, token in enumerate([*bpe.BYTES, *sorted(tokens), b""])}
    vocab, merges = trained(2000)
    (tmp_path / "strings").mkdir()
    Tokenizer(vocab, merges, [END]).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    content["model"]["vocab"]["<a b>"] = 10**6  # whose name has a character that stands for no byte
    (tmp_path / "strings" / "tokenizer.json").write_text(json.dumps(content))

    def loaded_models():
        loaded = [Tokenizer.load(folder) for folder in (tmp_path, tmp_path / "strings")]
        loaded.append(Tokenizer(*read_tiktoken(ranks)))
        return [(model.vocab, model.merges, list(model.merge_ids)) for model in loaded]

    with_c, found = loaded_models(), []
    for name in ("find_merges", "find_splits"):
        real = getattr(engine, name)
        monkeypatch.setattr(engine, name, lambda *arguments, real=real: found.append(real(*arguments)) or found[-1])
    assert loaded_models() == with_c and len(found) == 2 and all(found)
    without_engine(monkeypatch)
    assert loaded_models() == with_c and len(found) == 2
