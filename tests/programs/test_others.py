"""Files of other programs that have no tokenizer.json load with the ids of these programs: Mistral's tekken.json, ranks of
rustbpe, models of minbpe, vocabularies in GGUF files. Other kinds are named.
"""

import base64
import functools
import json
from pathlib import Path

import llama
import pytest
import regex
from compare import texts_for

import bpe
from bpe_more import training
from bpe_more.formats.tiktoken import TEKKEN, read_tiktoken
from bpe_more.tokenizer import Tokenizer
from shared import trained
from test_bpe import END, FIXTURE, PART, naive_encoder, need

HERE = Path(__file__).resolve().parents[2]
MISTRAL = (HERE / "docs/compatibility.md").read_text(encoding="utf-8").split("each digit is a word.\n\n    ")[1].split("\n")[0]


@functools.cache
def texts():
    return [*texts_for([END], 500), PART]


# --- Mistral's tekken.json -------------------------------------------------------------------------------------------


def tekken(*, named):
    """The contents of a small tekken.json: 30 special tokens, and more tokens than the model has."""
    vocab, _ = trained(2000, MISTRAL)
    tokens = [token for token in vocab.values() if token != END.encode()]
    content = {
        "config": {"pattern": MISTRAL, "num_vocab_tokens": len(tokens), "default_vocab_size": 1500, "default_num_special_tokens": 30,
                   "version": "v13" if named else "v3"},
        "vocab": [{"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None} for rank, token in enumerate(tokens)],
    }  # fmt: skip
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[THINK]"]
    return {**content, "special_tokens": [{"rank": n, "token_str": text, "is_control": True} for n, text in enumerate(names)]} if named else content


@pytest.mark.parametrize("named", [False, True])
def test_a_tekken_json_has_the_ids_of_mistral_common(tmp_path, named):
    need("mistral_common")
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(tekken(named=named)))
    theirs, ours = Tekkenizer.from_file(path), Tokenizer.load(tmp_path)
    assert [ours.encode_ordinary(text) for text in texts()] == [theirs.encode(text, bos=False, eos=False) for text in texts()]
    assert {text: theirs.get_special_token(text) for text in ours.special_tokens} == ours.special_ids and len(ours.special_ids) == 30
    assert (len(ours), ours.encode("<s>")) == (theirs.n_words, [theirs.bos_id])
    ours.save(tmp_path)
    elsewhere = need("tokenizers").Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = Tokenizer.load(tmp_path)
    for text in texts():
        assert ours.encode(text) == again.encode(text) == elsewhere.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("change, text", [
    (lambda content: content["config"].update(pattern=r"\pL+|."), r"programs may read .*pL.* in config.pattern differently"),
    (lambda content: content["config"].update(pattern=r"\<a|."), r"programs may read .*\\<.* in config.pattern differently"),
    (lambda content: content["config"].update(default_num_special_tokens=10**9), "1,000,000,000 is more than there are tokens"),
    (lambda content: content["config"].update(default_vocab_size=29), "default_vocab_size = 29 is too small for 30 special tokens"),
    (lambda content: content["special_tokens"][2].update(rank=77), "two special tokens have the same text, or ids beyond 30"),
    (lambda content: content["special_tokens"][2].update(token_str="<s>"), "two special tokens have the same text"),
    (lambda content: content["vocab"][2].update(rank=1), "two tokens have the same rank"),
    (lambda content: content["vocab"][2].clear(), "not a byte-level BPE model"),
])  # fmt: skip
def test_a_damaged_tekken_json_is_an_error_with_its_name(tmp_path, change, text):
    content = tekken(named=True)
    change(content)
    (tmp_path / "tekken.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"tekken.json: .*{text}") as caught:
        Tokenizer.load(tmp_path)
    assert len(str(caught.value)) <= 300 + len(str(tmp_path / "tekken.json"))


def test_the_special_tokens_that_a_tekken_json_does_not_list_are_those_of_mistral_common():
    need("mistral_common")
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    assert [token["token_str"] for token in Tekkenizer.DEPRECATED_SPECIAL_TOKENS] == TEKKEN


# --- rustbpe and minbpe ----------------------------------------------------------------------------------------------


def test_the_ranks_of_rustbpe_have_its_ids():
    theirs = need("rustbpe").Tokenizer()
    theirs.train_from_iterator(iter(FIXTURE.split(END)), 1000)
    ours = Tokenizer(*read_tiktoken(theirs.get_mergeable_ranks()), pattern=theirs.get_pattern())
    assert [ours.encode(text) for text in texts()] == [theirs.encode(text) for text in texts()]


WHOLE = r"[\s\S]+"
MINBPE_GPT4 = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"""


@pytest.mark.parametrize("pattern", ["", MINBPE_GPT4, bpe.GPT2, r"[a-z]+|\d"])
def test_a_model_of_minbpe_has_its_ids(tmp_path, pattern):
    """Its words are the matches alone, or the whole text; its file has the ids of each merge, which makes the next id."""
    vocab, merges = training.train_bpe(texts=[PART], vocab_size=320, pattern=pattern or WHOLE)
    ids, specials = {token: token_id for token_id, token in vocab.items()}, {"<|endoftext|>": 100257, "<|fim|>": 100258}
    lines = ["minbpe v1", pattern, "2", *(f"{text} {token_id}" for text, token_id in specials.items())]
    lines += [f"{ids[left]} {ids[right]}" for left, right in merges]
    (tmp_path / "mine.model").write_text("\n".join([*lines, ""]), encoding="utf-8", newline="")
    encode_word, few = naive_encoder(vocab, merges, pattern=WHOLE), [*texts()[::12], PART[:500]]
    expected = [[token_id for word in regex.findall(pattern or WHOLE, text) for token_id in encode_word(word)] for text in few]
    ours = Tokenizer.load(tmp_path / "mine.model")
    assert [ours.encode_ordinary(text) for text in few] == expected
    assert ours.special_ids == specials and ours.encode("a<|fim|>") == [97, 100258]
    ours.save(tmp_path)
    assert [Tokenizer.load(tmp_path).encode_ordinary(text) for text in few] == expected
    (tmp_path / "mine.model").write_bytes((tmp_path / "mine.model").read_bytes().replace(b"\n", b"\r\n"))
    assert Tokenizer.load(tmp_path / "mine.model").vocab == ours.vocab


doubled = "".join(f"{token_id} {token_id}\n" for token_id in range(256, 276))  # a token of 2 MB


@pytest.mark.parametrize("text", ["minbpe v1\n[[a-z]--b]\n0\n", "minbpe v1\n\n0\n97 999\n", "minbpe v1\n\n", "minbpe v1\n(\n0\n",
                                  "minbpe v1\n\n1\n<a>\n", "minbpe v1\n\n0\n97 98\n97 98\n",
                                  f"minbpe v1\n\n0\n97 97\n{doubled}"])  # fmt: skip
def test_a_damaged_model_of_minbpe_is_an_error_with_its_name(tmp_path, text):
    (tmp_path / "mine.model").write_text(text)
    with pytest.raises(ValueError, match=r"mine\.model: ") as caught:
        Tokenizer.load(tmp_path / "mine.model")
    assert "\n" not in str(caught.value)


# --- GGUF, and kinds that are only named -----------------------------------------------------------------------------


def test_the_lines_of_the_docs_read_the_vocabulary_of_a_gguf_file(tmp_path, monkeypatch):
    gguf = need("gguf")
    monkeypatch.chdir(tmp_path)
    model = Tokenizer(*trained(1000), [END, "<pad>"])
    llama.write_gguf(model, "gpt-2", Path("model.gguf"))
    page = (HERE / "docs/compatibility.md").read_text(encoding="utf-8")
    found = {}
    exec(regex.search(r"(?s)<!-- needs gguf -->\n```python\n(.*?)```", page)[1], found)
    ours = found["load_gguf"]("model.gguf", "gpt2")
    assert (ours.vocab, ours.merges, ours.special_ids) == (model.vocab, model.merges, model.special_ids)
    vocab, merges = trained(1000)
    assert b"  " in vocab.values()
    model = Tokenizer({**vocab, 1000: b"  "}, merges, ["  "])  # as GPT-NeoX: a token, and an added token, too
    llama.write_gguf(model, "gpt-2", Path("model.gguf"))
    ours = found["load_gguf"]("model.gguf", "gpt2")
    assert (ours.vocab, ours.special_ids) == (model.vocab, {"  ": 1000}) and ours.ids[b"  "] < 1000
    assert [ours.encode(text) for text in texts()] == [model.encode(text) for text in texts()]
    with monkeypatch.context() as patch:
        patch.setattr(gguf.GGUFWriter, "add_tokenizer_model", lambda writer, _: writer.add_string("tokenizer.ggml.model", "bert"))
        patch.setattr(gguf.GGUFWriter, "add_token_merges", lambda writer, _: None)  # as in BERT's files
        llama.write_gguf(model, "gpt-2", Path("model.gguf"))
    with pytest.raises(AssertionError, match="not byte-level BPE"):
        found["load_gguf"]("model.gguf", "gpt2")


@pytest.mark.parametrize("name", ["tokenizer.model.v1", "mistral_instruct_tokenizer_241114.model.v7"])
def test_a_file_of_sentencepiece_is_named(name):
    path = Path(need("mistral_common").__file__).parent / "data" / name
    for read in (Tokenizer.load, read_tiktoken):
        with pytest.raises(ValueError, match=f"{name}: this is a SentencePiece model, not byte-level BPE$"):
            read(path)


def tokenizer_json(tokenizers, kind):
    """The tokenizer.json of a kind, as tokenizers writes it."""
    models, pre = tokenizers.models, tokenizers.pre_tokenizers
    model = {"WordPiece": models.WordPiece, "Unigram": models.Unigram, "WordLevel": models.WordLevel}.get(kind, models.BPE)()
    tokenizer = tokenizers.Tokenizer(model)
    if kind == "Llama 2":
        tokenizer = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        tokenizer.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")])
    elif kind == "Metaspace":
        tokenizer.pre_tokenizer = pre.Metaspace()
    elif kind == "characters":
        tokenizer.pre_tokenizer = pre.Whitespace()
    return tokenizer.to_str()


@pytest.mark.parametrize("kind, name, reason", [
    ("Unigram", "SentencePiece model", 'model.type = "Unigram"'), ("Llama 2", "SentencePiece model", '.type = "Prepend"'),
    ("Metaspace", "SentencePiece model", '"Metaspace"'), ("WordPiece", "WordPiece model", 'model.type = "WordPiece"'),
    ("WordLevel", "model of whole words", 'model.type = "WordLevel"'), ("characters", "BPE model of characters", '"Whitespace"'),
])  # fmt: skip
def test_a_tokenizer_json_of_another_kind_is_named_by_its_kind_first_then_by_all_reasons(tmp_path, kind, name, reason):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json(need("tokenizers"), kind), encoding="utf-8")
    with pytest.raises(ValueError) as caught:
        Tokenizer.load(path)
    message = str(caught.value).removeprefix(f"{path}: ")
    assert message.startswith(f"this is a {name}, not byte-level BPE: ") and reason in message
    assert len(message) <= 300 and "\n" not in message  # three lines of 100 characters
