"""Special tokens that remove the whitespace beside them (lstrip, rstrip) have the ids of tokenizers, wherever text is cut."""

import json
import random

import pytest

import bpe
from bpe_more.corpus import reading, slicing
from bpe_more.engine import encoder as encoder_in_c
from bpe_more.patterns.steps import WHITESPACE
from bpe_more.tokenizer import Tokenizer, encoders
from foreign import BYTE_LEVEL, OWN_PATTERN, foreign, split_at
from shared import MANY, ids_in_file, read_ids, same_everywhere

tokenizers = pytest.importorskip("tokenizers")

SPACES = [" ", "  ", "\n", "\t", "\u3000", "\xa0", "\x85", "\u2028", "\x1c", "\u200b", "\r\n", "     ", "\u00b4"]
WORDS = ["a", "cats", "the", "12", "x", ".", "it's", "\u00e9", "e\u0301", "字", "\u0301", "＜mask＞", "™", "mask", "\ufc5e"]
NAMES = ["<mask>", "<r>", "mask", " <x>", "<x> ", "  ", "\n\n", "<\u00e9", "<m", "ask>", "x y", "TM", "\xa0\xa0"]
STEPS = [OWN_PATTERN, [split_at(r"\s|[a-z]+|\S"), BYTE_LEVEL], [split_at(r"[a-z]+(?<!9)"), BYTE_LEVEL], [split_at(bpe.PATTERNS["qwen2"]), BYTE_LEVEL]]


def random_model(rng):
    """A model with any of these tokens and flags, and the file that it was loaded from."""
    content = json.loads(foreign("StarCoder"))
    steps = rng.choice(STEPS)
    content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if isinstance(steps, list) else steps
    content["normalizer"] = rng.choice([None, None, {"type": "NFC"}, {"type": "NFKC"}])
    first = content["added_tokens"][0]
    flags = [{flag: rng.random() < 0.4 for flag in ("lstrip", "rstrip", "normalized", "special")} for _ in NAMES]
    added = [{**first, **flags[number], "content": name} for number, name in enumerate(rng.sample(NAMES, rng.randint(1, 4)))]
    content["added_tokens"] = [{**token, "id": 2000 + number} for number, token in enumerate(added)]
    return content


@pytest.mark.parametrize("seed", range(MANY // 10))
def test_random_models_and_cuts_give_the_ids_of_the_package(tmp_path, monkeypatch, seed):
    rng = random.Random(seed)
    ours, path = None, tmp_path / "tokenizer.json"
    while not ours:
        content = random_model(rng)
        path.write_text(json.dumps(content))
        try:
            ours = Tokenizer.load(path)
        except ValueError as error:
            assert any(reason in str(error) for reason in ("overlaps", "is whitespace and has lstrip", "is not in NF")), error
    parts = [SPACES, WORDS, list(ours.special_tokens), WORDS]
    texts = ["".join(rng.choice(rng.choice(parts)) for _ in range(rng.choice([2, 5, 30]))) for _ in range(20)]
    texts.append("".join(rng.choice(rng.choice(parts)) for _ in range(2000)))
    ours, _, expected = same_everywhere(path, texts, tmp_path / "saved")
    in_python = Tokenizer.load(path)
    in_python._made_encoder = in_python.encoder_for("python")
    for same in (ours.with_special_tokens(["<new>"]), in_python):
        assert [same.encode(text) for text in texts] == same.encode_batch(texts) == expected
    ids, offsets = ours.encode_arrays(texts)
    assert [ids[start:stop].tolist() for start, stop in zip(offsets, offsets[1:])] == expected

    text, whole = texts[-1], expected[-1]
    for module, name, value in [(slicing, "WINDOW_BYTES", rng.choice([60, 300])), (slicing, "SLICE_BYTES", 200), (reading, "SLICE_BYTES_IN_C", 200),
                                (encoder_in_c, "PART_OF_TEXT", 50), (encoder_in_c, "WINDOW_OF_TEXT", rng.choice([60, 400]))]:  # fmt: skip
        monkeypatch.setattr(module, name, value)
    size = rng.randint(1, 40)
    assert list(ours.encode_iterable(text[at : at + size] for at in range(0, len(text), size))) == whole
    cuts = encoder_in_c.parts_of(text, encoders.last_cut_for(ours))
    assert [token_id for start, end in cuts for token_id in ours.encode(text[start:end])] == whole
    for engine in ("auto", "python"):
        assert ids_in_file(ours, text, tmp_path, engine=engine) == whole


def test_the_whitespace_that_goes_is_that_of_the_package():
    """str.strip() would remove \\x1c to \\x1f, too."""
    vocab = {bpe.to_printable(byte): number for number, byte in enumerate(bpe.BYTES)}
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.add_special_tokens([tokenizers.AddedToken("<m>", lstrip=True), tokenizers.AddedToken("<r>", rstrip=True)])
    characters = [chr(code) for code in range(0x3100)]
    for side in ("a{}<m>", "<r>{}a"):
        encoded = theirs.encode_batch([side.format(character) for character in characters], add_special_tokens=False)
        assert {character for character, ids in zip(characters, encoded) if len(ids) == 2} == set(WHITESPACE)


def test_flags_follow_a_token_that_gets_another_name_and_documents_have_no_special_tokens(tmp_path):
    old = Tokenizer.train(texts=["a cat, a dog. " * 9], vocab_size=270, special_tokens=["<mask>", "</s>"])
    old = Tokenizer(old.vocab, tuple(old.merges), old.special_tokens, lstrip=["<mask>"], rstrip=["</s>"])
    mask, end = old.special_ids.values()
    assert old.encode("a \n <mask></s>\t a") == [97, mask, end, 97]
    for new in (old.rename_special_tokens({"<mask>": "<m>"}), old.rename_special_tokens({"<mask>": "<m>"}).prune(265)):
        assert new.encode("a \n <m></s>\t a") == [97, mask, end, 97] and new.decode([97, mask, end]) == "a<m></s>"
    longer = old.extend(texts=["zz zz zz <mask>"], n_tokens=1)
    assert longer.encode("zz \n <mask>") == [longer.ids[b"zz"], mask]
    ordinary = old.encode_ordinary("a <mask>")
    assert mask not in ordinary and old.decode(ordinary) == "a <mask>"
    old.encode_files(texts=["a <mask>"], output=tmp_path / "ids.npy", end="</s>")
    assert read_ids(tmp_path / "ids.npy")[1] == [*ordinary, end]
