"""Tests of bpe_more/tokenizer/changes.py: extending, renaming, pruning, and the sources of embeddings.

fuzz_changes.py has the oracle, and does more of the same: `python tests/fuzz_changes.py 10000`.
"""

import collections
import functools
import json
import random
import time
import warnings
from pathlib import Path

import pytest

import bpe
import fuzz_changes
from bpe_more import choices, training
from bpe_more.patterns import steps
from bpe_more.tokenizer import Tokenizer
from fuzz_changes import check_extension, encode_by_rank, extend_by_definition
from shared import only_python
from test_bpe import END, FIXTURE, HERE, PART, need

TEXT = FIXTURE[:40_000]


@functools.cache
def model(size, specials):
    """(vocab, merges), which are the same in both engines."""
    return training.train_bpe(texts=[TEXT], vocab_size=size, special_tokens=specials)


def trained(size, specials=(END,)):
    return Tokenizer(*model(size, tuple(specials)), specials)


def merged(tokenizer):
    """The merges that were added to the 256 bytes."""
    return [left + right for left, right in tokenizer.merges]


# --- extending -------------------------------------------------------------------------------------------------------


def test_extending_on_the_same_text_is_training_further():
    old = trained(757)
    new, whole = old.extend(texts=[TEXT], n_tokens=500), trained(1257)
    assert new.vocab == whole.vocab and new.merges == whole.merges and new.special_ids == whole.special_ids
    assert new.encode(FIXTURE) == whole.encode(FIXTURE)
    assert len(old) == 757  # and the old one stays


@pytest.mark.parametrize("trial", range(20))
def test_random_models_are_extended_by_the_definition(trial, engine):
    check_extension(random.Random(trial), ["c" if choices.find_engine()[0] else "python"])


@pytest.mark.parametrize("trial", range(8))
def test_extended_models_have_the_same_ids_in_tokenizers(trial):
    need("tokenizers")
    _, new, _ = check_extension(random.Random(1000 + trial), ["python"])
    assert not fuzz_changes.compare_with_tokenizers(random.Random(trial), new)


def by_hand():
    """Merges of bytes: a b, ab c; the token `bc` is made by none; `xbc` is made of it."""
    tokens = [b"ab", b"abc", b"bc", b"xbc"]
    return Tokenizer(dict(enumerate([*bpe.BYTES, *tokens])), ((b"a", b"b"), (b"ab", b"c"), (b"x", b"bc")), [END])


def test_a_pair_with_the_bytes_of_an_old_token_is_never_merged():
    """By hand. b c comes 6 times, but if it became bc, then x bc would be merged by its old, low rank."""
    new = by_hand().extend(words={b"xbc": 6, b"bcd": 1}, n_tokens=9)
    # x b 6 is the best; then xb c makes the old token xbc. Of b c (1: the word bcd) and c d, c d is next;
    # then b cd. So xbc stays two tokens
    assert new.merges[3:] == [(b"x", b"b"), (b"c", b"d"), (b"b", b"cd")]
    assert [new.vocab[i] for i in new.encode("xbc")] == [b"xb", b"c"]
    assert [new.vocab[i] for i in new.encode("bcd")] == [b"bcd"]
    assert new.ids[b"xb"] == 261  # after <|endoftext|>, which is 260


def test_words_that_stay_divided_do_not_hide_the_others():
    """One merge is wanted of two words. The first one can have none, and C's threshold expects one there."""
    specials = ["ab"]
    old = Tokenizer(dict(enumerate(bpe.BYTES)), (), specials, pattern=r"[\s\S]+")
    assert old.extend(words={b"ab": 9, b"cd": 2, b"ef": 1}, n_tokens=1).merges == [(b"c", b"d")]
    assert old.extend(words={b"ab": 9, b"cd": 2, b"ef": 1}, n_tokens=2).merges == [(b"c", b"d"), (b"e", b"f")]
    with pytest.warns(UserWarning, match="2 new tokens, not 3: no other pair that makes a new token has a count of 1 or more"):
        old.extend(words={b"ab": 9, b"cd": 2, b"ef": 1}, n_tokens=3)


def test_words_that_are_tokens_stay_whole_if_the_model_keeps_them_whole():
    vocab = dict(enumerate([*bpe.BYTES, b"abc"]))
    whole = Tokenizer(vocab, (), ignore_merges=True)
    assert whole.extend(words={b"abc": 5, b"abcd": 1}, n_tokens=1).merges == [(b"c", b"d")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert Tokenizer(vocab, ()).extend(words={b"abc": 5, b"abcd": 1}, n_tokens=1).merges == [(b"b", b"c")]


def test_options_are_those_of_training(tmp_path):
    old, text = trained(300), tmp_path / "text.txt"
    text.write_bytes(b"qqq\nqqq\nzzzz \xff")
    with pytest.raises(ValueError, match="not valid UTF-8"):
        old.extend(text, 1)
    assert merged(old.extend(text, 1, errors="replace", min_word_count=2))[-1] == b"qq"  # zz occurs more often
    with pytest.warns(UserWarning, match="not 50: no other pair that makes a new token has a count of 3 or more"):
        assert merged(old.extend(text, 50, errors="replace", min_frequency=3))[len(old.merges) :] == [b"qq", b"zz"]
    for bad in (0, -1, None, True, "9", 1.5):
        with pytest.raises(ValueError, match="n_tokens must be a positive integer"):
            old.extend(text, bad)
    for arguments in ({"pattern": "llama3"}, {"special_tokens": ["<x>"]}, {"vocab_size": 5}):
        with pytest.raises(TypeError):
            old.extend(text, 1, **arguments)
    with pytest.raises(ValueError, match="either text or words"):
        old.extend(text, 1, words={b"a": 1})
    with pytest.raises(ValueError, match="no text"):
        old.extend(texts=[], n_tokens=1)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64, 2**80])
def test_numbers_of_any_size_are_limits_of_an_extension(number):
    """By hand: ab occurs three times, then xab is left."""
    old, words = Tokenizer(dict(enumerate(bpe.BYTES)), []), {b"ab": 2, b"xab": 1}
    with pytest.warns(UserWarning, match=f"2 new tokens, not {number:,}: "):
        assert merged(old.extend(words=words, n_tokens=number)) == [b"ab", b"xab"]
    for options in ({"min_frequency": number}, {"min_word_count": number}):
        assert merged(old.extend(words=words, **options)) == []


def test_wanted_words_become_one_token_each():
    old = trained(400)
    wanted = [" Ferry", " harbour-master", "字", " timetable", "\U0001f468\u200d"]
    new = old.extend(words={word.encode(): 1 for word in wanted})
    for word in wanted:
        assert encode_by_rank(word.encode(), new.merges) == [word.encode()]
        if steps.find_words(word, "gpt2") == [word]:  # not " harbour-master", which the pattern splits
            assert new.encode(word) == [new.ids[word.encode()]]


@pytest.mark.parametrize("words", [["gangway"], ["ab"], [b"gangway"], [b"ab"], ("abc",), "gangway", b"gangway"])
def test_words_without_counts_are_an_error_that_says_how_to_count_them(words):
    for call in (trained(300).extend, lambda words: training.train_from_counts(words, 300)):
        if words != b"gangway":
            with pytest.raises(TypeError, match=r"is not a pair .* pass \{word.encode\(\): 1 for word in words\}"):
                call(words=words)
        with pytest.raises(TypeError, match="words must be a mapping of words to counts, or pairs"):
            call(words=5)


def test_tokens_of_another_model_are_learned_even_parts_of_characters():
    """Two vocabularies become one: each token of the second is a token then, though many are no UTF-8."""
    old = trained(400)
    other = Tokenizer.train(texts=["字典の文字 словарь" * 3 + PART], vocab_size=600)
    assert any(b"\x80" <= token[:1] < b"\xc0" for token in merged(other))
    new = old.extend(words=dict.fromkeys(other.ids, 1))
    assert set(other.ids) <= set(new.ids) and new.merges[: len(old.merges)] == old.merges
    words = collections.Counter(dict.fromkeys(other.ids, 1))
    learned, _ = extend_by_definition(set(old.ids), old.merges, lambda word: False, words, 10**9)
    assert new.merges[len(old.merges) :] == [(left, right) for left, right, _, _ in learned]


def test_a_byte_without_a_token_is_an_error_that_names_the_word():
    old = Tokenizer({0: b"a", 1: b"b"}, [])
    for word in (b"abc", b"ab\xff"):
        with pytest.raises(ValueError, match="no token for"):
            old.extend(words={word: 1})
    assert old.extend(words={b"abab": 1}).vocab == {0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}


def test_a_model_of_another_program_keeps_its_settings(tmp_path):
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [256], "tokens": ["<s>"]}}}  # fmt: skip
    vocab = dict(enumerate([*bpe.BYTES, b"<s>", b"<keep>", b"<norm>", b"ab"]))
    old = Tokenizer(vocab, ((b"a", b"b"),), ["<s>", "<keep>", "<norm>"], ("NFC", "gpt2"), kept=["<keep>"],
                           normalized=["<norm>"], rest={"post_processor": template}, ignore_merges=True)  # fmt: skip
    with pytest.warns(UserWarning, match="no other pair"):
        new = old.extend(texts=["abcd é e\u0301"], n_tokens=50)
    assert new.settings() == old.settings() and new.pattern == old.pattern and "é".encode() in new.ids
    new.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert (again.vocab, again.merges, again.settings()) == (new.vocab, new.merges, new.settings())


# --- sources ---------------------------------------------------------------------------------------------------------


def test_sources_are_the_old_tokens_of_each_new_one():
    old = trained(500)
    new = old.extend(texts=[PART], n_tokens=100)
    sources = new.sources(old)
    assert list(sources) == list(new.vocab)
    assert all(sources[token_id] == [token_id] for token_id in old.vocab)
    for token_id in new.vocab.keys() - old.vocab.keys():
        expected = encode_by_rank(new.vocab[token_id], old.merges)
        assert [old.vocab[i] for i in sources[token_id]] == expected and len(expected) > 1


def test_sources_after_other_changes():
    old = trained(500, [END, "<|r|>"])
    pruned = old.prune(400)
    assert pruned.sources(old) == {i: [old.special_ids.get(t.decode("utf-8", "ignore"), old.ids[t])] for i, t in pruned.vocab.items()}
    more = old.with_special_tokens(["<|user|>"])
    assert more.sources(old)[500] == old.encode_ordinary("<|user|>")
    known = Tokenizer({**old.vocab, 500: b"<|user|>"}, tuple(old.merges), old.special_tokens)  # a token, but not special
    assert known.with_special_tokens(["<|user|>"]).sources(known) == {token_id: [token_id] for token_id in known.vocab}
    renamed = old.rename_special_tokens({"<|r|>": "<|user|>"})
    assert renamed.sources(old) == {token_id: [token_id] for token_id in old.vocab}
    for names in ({END: "<|r|>", "<|r|>": END}, {END: "<|r|>", "<|r|>": "<|s|>"}):
        assert old.rename_special_tokens(names).sources(old) == {token_id: [token_id] for token_id in old.vocab}
    small = Tokenizer({**{i: bytes([i]) for i in range(256)}, 256: b"ab", 257: b"cd", 258: b"ef"},
                          [(b"a", b"b"), (b"c", b"d"), (b"e", b"f")], ["<e>"])  # fmt: skip
    both = small.prune(259).with_special_tokens(["<u>"])
    assert both.special_ids == {"<e>": 258, "<u>": 259} and both.sources(small)[258] == [259]
    assert both.sources(small)[259] == small.encode_ordinary("<u>")
    with pytest.raises(ValueError, match="is of another model"):
        by_hand().sources(old)
    vocab = {**{i: bytes([i]) for i in range(256)}, 256: b"ab", 257: "字".encode(), 258: b"c"}
    unreachable = Tokenizer(vocab, ((b"a", b"b"),), unreachable={257: "字", 258: "c字"})  # a copy of "c", too
    for new in (unreachable.extend(words={b"abab": 1}), unreachable.with_special_tokens(["<u>"])):
        assert [new.sources(unreachable)[i] for i in (99, 257, 258)] == [[99], [257], [258]]
    assert [unreachable.prune(258).sources(unreachable)[i] for i in (256, 257)] == [[257], [258]]


class Table:
    """What the recipe below uses of a table of torch."""

    def __init__(self, rows):
        self.data = rows

    def detach(self):
        return self

    def clone(self):
        return self.data.copy()


class Layer:
    """What it uses of a layer: its tables, by name."""

    def __init__(self, **tables):
        self.named_parameters = tables.items
        vars(self).update(tables)


class Model:
    """What it uses of a model of transformers: two layers, of which the second one may have a bias."""

    def __init__(self, numpy, n, bias):
        rng = numpy.random.default_rng(1)
        more = {"bias": Table(rng.random(n))} if bias else {}
        self.layers = [Layer(weight=Table(rng.random((n, 3)))), Layer(weight=Table(rng.random((n, 3))), **more)]
        self.get_input_embeddings, self.get_output_embeddings = (lambda layer=layer: layer for layer in self.layers)
        self.resize = numpy.resize

    def resize_token_embeddings(self, n, mean_resizing):
        assert not mean_resizing
        for layer in self.layers:
            for _, table in layer.named_parameters():
                table.data = self.resize(table.data, (n, *table.data.shape[1:]))


@pytest.mark.parametrize("bias", [False, True])
def test_the_recipe_for_embeddings_moves_each_row_to_its_new_id(bias):
    """With tables of NumPy. With torch 2.14 and transformers 5.24, Llama, GPT-2, Phi and RoBERTa gave the same logits for old tokens."""
    numpy, found = pytest.importorskip("numpy"), {}
    text = (HERE / "docs/extend.md").read_text(encoding="utf-8")
    exec(text[text.index("def move_embeddings") :].partition("```")[0], found)
    old = trained(500, [END])
    extended = old.extend(texts=["天气很好，渡船准时。" * 9], n_tokens=9)
    for new in (extended, old.prune(400), old.prune(400).with_special_tokens(["<|user|>"])):
        model, same = Model(numpy, len(old), bias), Model(numpy, len(old), bias)
        found["move_embeddings"](model, new, old)
        for token_id, sources in new.sources(old).items():
            for layer, before in zip(model.layers, same.layers):
                for (_, table), (_, rows) in zip(layer.named_parameters(), before.named_parameters()):
                    assert numpy.allclose(table.data[token_id], sum(rows.data[i] for i in sources) / len(sources))
                    assert len(table.data) == len(new)


def test_a_token_with_two_names_keeps_both_when_others_go(tmp_path):
    trained(300, [END]).save(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"] |= {"\u00e2\u0138\u0123a": 300, "\u2581a": 301}  # both are the bytes of U+2581 and a
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    tokenizer = Tokenizer.load(tmp_path)
    pruned = tokenizer.prune(290)
    assert len(pruned) == 290 and pruned.encode(PART) == trained(289, [END]).encode(PART)
    pruned.save(tmp_path / "pruned")
    vocab = json.loads((tmp_path / "pruned" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert vocab["\u2581a"] == 289
    with pytest.raises(ValueError, match="vocab_size must be at least 258: bytes and special tokens stay"):
        tokenizer.prune(257)


# --- special tokens --------------------------------------------------------------------------------------------------


def processors(first=256):
    """Templates of three kinds, as tokenizers writes them; first is the id of <s>."""
    part = {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    special = {"<s>": {"id": "<s>", "ids": [first], "tokens": ["<s>"]}}
    return [
        {"type": "TemplateProcessing", "single": list(part), "pair": [], "special_tokens": special},
        {"type": "RobertaProcessing", "sep": ["</s>", first + 1], "cls": ["<s>", first], "trim_offsets": True, "add_prefix_space": False},
        {"type": "BertProcessing", "sep": ["</s>", first + 1], "cls": ["<s>", first]},
    ]


def rest_with(processor, first=256):
    """What a tokenizer.json has besides the model: a template, and padding with <r>."""
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": first + 2, "pad_type_id": 0, "pad_token": "<r>"}
    return {"post_processor": processor, "padding": padding}


STEPS = "NFC", "qwen2"


def with_processor(processor):
    vocab = dict(enumerate([*bpe.BYTES, b"<s>", b"</s>", b"<r>", b"ab", b"cd", b"abcd"]))
    merges = (b"a", b"b"), (b"c", b"d"), (b"ab", b"cd")
    return Tokenizer(vocab, merges, ["<s>", "</s>", "<r>"], STEPS, ["<r>"], ["</s>"], rest_with(processor), ignore_merges=True)


def ids_in_tokenizers(tokenizer, folder, texts):
    tokenizers = need("tokenizers")
    tokenizer.save(folder)
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [encoding.ids for encoding in theirs.encode_batch(texts)], theirs


@pytest.mark.parametrize("processor", processors(), ids=lambda processor: processor["type"])
def test_a_renamed_special_token_keeps_its_id_its_kind_and_its_templates(tmp_path, processor):
    old = with_processor(processor)
    names = {"<s>": "<|begin|>", "<r>": "<|user|>", "</s>": "<|end|>"}
    new = old.rename_special_tokens(names)
    assert new.special_ids == {"<|begin|>": 256, "<|end|>": 257, "<|user|>": 258} and new.merges == old.merges
    assert new.encode("ab<|user|>cd<r>") == [259, 258, 260, *b"<r>"]
    assert new.decode([258], skip_special_tokens=True) == "<|user|>"  # kept, as before
    ids, theirs = ids_in_tokenizers(old, tmp_path / "old", ["ab<r>cd</s>", "abcd"])
    new_ids, others = ids_in_tokenizers(new, tmp_path / "new", ["ab<|user|>cd<|end|>", "abcd"])
    assert ids == new_ids and others.padding["pad_token"] == "<|user|>"
    assert Tokenizer.load(tmp_path / "new").special_ids == new.special_ids


def test_renaming_25000_special_tokens_takes_linear_time():
    names = {f"<{number}>": f"<|{number}|>" for number in range(25_000)}
    old = Tokenizer(dict(enumerate(bpe.BYTES)), [], list(names))
    start = time.process_time()
    new = old.rename_special_tokens(names)
    sources = new.sources(old.prune(len(old)))
    assert time.process_time() - start < 1
    assert new.special_ids == {name: number for number, name in enumerate(names.values(), 256)}
    assert sources[256] == [256]


def test_names_that_can_not_be_given_are_errors():
    old = with_processor(processors()[0])
    for names, text in [({"<x>": "<y>"}, "not special tokens of this model"), ({"<s>": "<r>"}, "is a token already"),
                        ({"<s>": "x"}, "must be text of at least two bytes"), ({"<s>": "abcd"}, "abcd.* is a token already")]:  # fmt: skip
        with pytest.raises(ValueError, match=text):
            old.rename_special_tokens(names)
    # two tokens are b"<s>": 300, which only merges could make, and 301, the special token
    twice = Tokenizer({0: b"<x>", **dict(enumerate(bpe.BYTES, 1)), 300: b"<s>", 301: b"<s>"}, (), ["<x>", "<s>"])
    assert twice.rename_special_tokens({"<x>": "<y>", "<s>": "<x>"}).special_ids == {"<y>": 0, "<x>": 301}
    with pytest.raises(ValueError, match="'<s>' is a token already"):
        twice.rename_special_tokens({"<x>": "<s>", "<s>": "<y>"})


@pytest.mark.parametrize("processor", processors(), ids=lambda processor: processor["type"])
def test_more_special_tokens_get_the_next_ids_and_the_rest_stays(tmp_path, processor):
    old = with_processor(processor)
    new = old.with_special_tokens(["<|user|>", "<|system|>"])
    assert new.special_ids == {**old.special_ids, "<|user|>": 262, "<|system|>": 263}
    same = "merges", "pattern", "kept", "normalized", "rest", "ignore_merges"
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert new.encode("<r>abcd<|user|>") == [258, 261, 262]
    assert new.decode([258, 261, 262], skip_special_tokens=True) == "<r>abcd"
    old_ids, _ = ids_in_tokenizers(old, tmp_path / "old", ["abcd", "x"])
    assert ids_in_tokenizers(new, tmp_path / "new", ["abcd", "x"])[0] == old_ids
    loaded = Tokenizer.load(tmp_path / "new")
    assert (loaded.options, loaded.settings()) == (new.options, new.settings())


def test_special_tokens_that_can_not_be_added_are_errors(tmp_path):
    old = Tokenizer(dict(enumerate(bpe.BYTES)), [], ["<n>"], "qwen2", normalized=["<n>"])
    with pytest.raises(ValueError, match="duplicate special token"):
        old.with_special_tokens(["<n>"])
    with pytest.raises(ValueError, match="can't be saved, .* the added token '<n>' overlaps another"):
        old.with_special_tokens(["n><m"]).save(tmp_path)  # tokenizers would look for n><m first


# --- pruning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [257, 258, 400, 599, 600])
def test_pruning_from_the_end_is_training_at_that_size(size):
    pruned, smaller = trained(600).prune(size), trained(size)
    assert pruned.vocab == smaller.vocab and pruned.merges == smaller.merges
    assert pruned.encode(PART) == smaller.encode(PART)


def check_pruned(old, new, texts):
    """Words without a removed token keep their tokens; the others have tokens that are left."""
    gone = set(old.ids) - set(new.ids)
    for text in texts:
        for word in steps.find_words(text, old.pattern):
            before = [old.vocab[i] for i in old.encode(word)]
            after = [new.vocab[i] for i in new.encode(word)]
            assert gone.intersection(before) or before == after, (word, before, after)
            assert b"".join(before) == b"".join(after)


def test_the_tokens_that_a_text_uses_least_go_first():
    old = trained(900)
    used = collections.Counter(old.encode_ordinary(PART))
    new = old.prune(600, texts=[PART])
    check_pruned(old, new, [PART, TEXT[:10_000]])
    assert len(new) == 600 and new.special_ids == {END: 256}
    by_end = old.prune(600)
    assert len(new.encode(PART)) < len(by_end.encode(PART))
    assert set(new.ids) >= {old.vocab[i] for i, n in used.items() if n > 20}


def test_least_used_by_hand():
    """abcd is used once: without it, ab and cd have its use, and so ab 3, cd 1, ef 2."""
    vocab = dict(enumerate([*bpe.BYTES, b"ab", b"cd", b"abcd", b"ef"]))
    old = Tokenizer(vocab, [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd"), (b"e", b"f")], pattern=r"\S+|\s+")
    text = ["abcd ab ab ef ef"]
    assert [merged(old.prune(size, texts=text)) for size in (259, 258, 257)] == [[b"ab", b"cd", b"ef"], [b"ab", b"ef"], [b"ab"]]
    assert merged(old.prune(258)) == [b"ab", b"cd"]  # the last ones: ef, then abcd


def test_without_a_size_all_tokens_go_that_the_text_never_uses():
    """abcd and xy are never used: ab is, and cd isn't, once abcd no longer needs it; ef stays as a part of efef."""
    tokens = [b"ab", b"cd", b"abcd", b"ef", b"efef", b"xy"]
    pairs = [(b"a", b"b"), (b"c", b"d"), (b"ab", b"cd"), (b"e", b"f"), (b"ef", b"ef"), (b"x", b"y")]
    old = Tokenizer(dict(enumerate([*bpe.BYTES, *tokens])), pairs, pattern=r"\S+|\s+")
    text = ["ab efef a"]
    new = old.prune(texts=text)
    assert merged(new) == [b"ab", b"ef", b"efef"] and len(old) - len(new) == 3
    assert old.prune(None, texts=text).vocab == new.vocab
    assert new.prune(texts=text).vocab == new.vocab
    with pytest.raises(ValueError, match="prune needs vocab_size, or text of which all tokens stay"):
        old.prune()
    for size in (None, 260):
        with pytest.raises(ValueError, match="no text"):
            old.prune(size, texts=iter([]))


def test_beyond_two_to_the_sixteen_ids_arrays_have_32_bits():
    old = Tokenizer({**dict(enumerate(bpe.BYTES)), 2**16 - 2: b"xy"}, [(b"x", b"y")])
    assert old.id_bytes == 2 and old.extend(texts=["aabb"], n_tokens=1).id_bytes == 2
    assert old.extend(texts=["aabb"], n_tokens=2).id_bytes == 4


def test_pruning_never_keeps_more_tokens_than_it_was_asked_for():
    """A special token that is also an ordinary one needs the merges that make it."""
    merges = [(b"f", b"e"), (b"fe", b"r"), (b"a", b"b")]
    vocab = dict(enumerate([*bpe.BYTES, b"fe", b"fer", b"ab"]))
    tokenizer = Tokenizer(vocab, merges, ["fer"], shared={257: "fer"})
    assert len(tokenizer.prune(258)) == 258
    with pytest.raises(ValueError, match="vocab_size must be at least 258: a special token that is also an ordinary one"):
        tokenizer.prune(257)


def test_a_special_token_with_a_byte_that_the_old_model_lacks_has_no_source():
    old = Tokenizer({0: b"a"}, [], [])
    new = old.with_special_tokens(["<x>"])
    assert new.sources(old) == {0: [0], 1: []}


def test_a_model_without_all_bytes_is_pruned_down_to_what_it_has():
    old = Tokenizer({0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}, [(b"a", b"b"), (b"ab", b"ab")], [END])
    assert old.prune(4).vocab == {0: b"a", 1: b"b", 2: b"ab", 3: END.encode()}
    assert old.prune(3).vocab == {0: b"a", 1: b"b", 2: END.encode()}
    with pytest.raises(ValueError, match="vocab_size must be at least 3: bytes and special tokens stay"):
        old.prune(2)


@pytest.mark.parametrize("trial", range(30))
def test_random_models_are_pruned_without_a_change_of_the_text_or_of_words_that_keep_their_tokens(trial):
    rng = random.Random(trial)
    old, letters = fuzz_changes.random_model(rng)
    if old.normalized:
        return
    texts = [fuzz_changes.random_text(rng, letters, 60) for _ in range(5)]
    new, used = old.prune(texts=texts), set()
    for text in texts:
        tokens = [old.vocab[i] for i in old.encode(text)]
        assert [new.vocab[i] for i in new.encode(text)] == tokens
        used.update(tokens)
    parts = {part for pair in new.merges for part in pair}
    others = {token for token in new.ids if len(token) > 1} - {special.encode() for special in new.special_tokens}
    assert others <= used | parts

    size = rng.randint(256 + len(old.special_tokens), len(old))
    new = old.prune(size, texts=texts if trial % 2 else None)
    assert len(new) == size and sorted(new.vocab) == list(range(size)) and new.settings().keys() == old.settings().keys()
    check_pruned(old, new, texts)


@pytest.mark.parametrize("kind", range(3), ids=[processor["type"] for processor in processors()])
def test_templates_have_the_new_ids(tmp_path, kind):
    """The tokens 10 to 13 are at the beginning, so special tokens move from 256 on to 252 on."""
    old = with_processor(processors()[kind])
    moved = {token_id + 4: token for token_id, token in old.vocab.items()} | dict(enumerate([b"qr", b"st", b"uv", b"wx"]))
    rest = rest_with(processors(260)[kind], 260)
    merges = (*old.merges, (b"q", b"r"), (b"s", b"t"), (b"u", b"v"), (b"w", b"x"))
    larger = Tokenizer(moved, merges, old.special_tokens, STEPS, ["<r>"], ["</s>"], rest, ignore_merges=True)
    new = larger.prune(len(old), texts=["abcd abcd"])
    assert (new.vocab, new.settings()) == (old.vocab, old.settings())
    assert ids_in_tokenizers(new, tmp_path / "a", ["abcd"])[0] == ids_in_tokenizers(old, tmp_path / "b", ["abcd"])[0]


def test_a_size_that_can_not_be_reached_is_an_error():
    old = trained(300)
    for size, text in [(301, "vocab_size must be at most 300"), (256, "vocab_size must be at least 257"), (0, "positive integer")]:
        with pytest.raises(ValueError, match=text):
            old.prune(size)


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """The current folder, with a model, old, that has roles and a template; and a text."""
    trained(300, [END, "<|user|>"]).save(tmp_path / "old", eos_token=END, chat_template="{{ messages }}")
    config = json.loads((tmp_path / "old/tokenizer_config.json").read_text())
    (tmp_path / "old/tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 77}))
    (tmp_path / "text.txt").write_text(PART, encoding="utf-8")
    return tmp_path


def test_the_command_line_extends_a_model_and_its_roles_come_along(main, folder):
    before = {path.name: path.read_bytes() for path in (folder / "old").iterdir()}
    status, _, log = main("text.txt", "+100", "--extend", "old", "--model", "new")
    assert status == 0, log
    expected = Tokenizer.load("old").extend("text.txt", 100)
    new = Tokenizer.load("new")
    assert (new.vocab, new.merges, new.special_ids) == (expected.vocab, expected.merges, expected.special_ids)
    config = json.loads((folder / "new/tokenizer_config.json").read_text())
    assert config["eos_token"] == END and config["model_max_length"] == 77 and config["chat_template"] == "{{ messages }}"
    assert {path.name for path in (folder / "new").iterdir()} == set(before)
    assert before == {path.name: path.read_bytes() for path in (folder / "old").iterdir()}
    assert "400 = 300 + 100 new tokens" in log and "old: 300 tokens, pattern gpt2" in log
    n_bytes = len(PART.encode()) - len(END) * PART.count(END)
    n_before, n_after = (len(model.encode(PART)) - PART.count(END) for model in (Tokenizer.load("old"), new))
    assert f"{n_bytes / n_after:.2f} bytes per token in these pre-tokens, {n_bytes / n_before:.2f} before" in log


def test_the_settings_of_a_snapshot_of_a_hub_whose_files_are_links_come_along(main, folder):
    for name in ("snapshot", "blobs"):
        Path(name).mkdir()
    for path in Path("old").iterdir():
        blob = Path("blobs", path.name.encode().hex())
        blob.write_bytes(path.read_bytes())
        Path("snapshot", path.name).symlink_to(f"../{blob}")
    assert main("text.txt", "+9", "--extend", "snapshot", "--model", "new")[0] == 0
    assert json.loads(Path("new/tokenizer_config.json").read_text())["model_max_length"] == 77


@only_python
@pytest.mark.parametrize("arguments, text", [
    (["10000", "--extend", "old"], "the number of new tokens, such as +10000 or +10k, not '10000'"),
    (["--extend", "old"], "the number of new tokens"), (["+0", "--extend", "old"], "not '+0'"),
    (["+10000"], "such as 10000 or 10k, not '+10000'; +N is for --extend MODEL"),
    (["+10k", "--extend", "old", "--pattern", "gpt2"], "--extend takes no --pattern: the model has one"),
    (["+10k", "--extend", "old", "--special-token", "<x>"], "the model has its own; to add more, in Python: Tokenizer.load(...).with_special_tokens(['<x>'])"),
    (["+10k", "--extend", "old", "--no-special-tokens"], "the model has its own"),
    (["+10k", "--extend", "old", "--model", "old"], "--model must name another folder than that of the old model"),
    (["+10k", "--extend", "old/tokenizer.json", "--model", "link"], "--model must name another folder"),
    (["+10k", "--extend", "missing"], "No such file or folder"), (["+10k", "--extend", "old", "--explain", "3"], "not allowed with"),
])  # fmt: skip
def test_what_the_command_line_refuses(error, folder, arguments, text):
    (folder / "link").symlink_to("old")
    assert text in error("text.txt", *arguments)
    assert not (folder / "bpeModel").exists()


def test_notes_name_separators_and_ids_of_32_bits(main, folder):
    (folder / "text.txt").write_text("<|user|>hello<|assistant|> hello<|eot|>\n" * 3)
    tokens = {**dict(enumerate(bpe.BYTES)), 2**16 - 3: b"xy", 2**16 - 2: b"<|user|>"}
    Tokenizer(tokens, [(b"x", b"y")], ["<|user|>"]).save("large")
    _, _, log = main("text.txt", "+5", "--extend", "large", "--model", "new")
    assert "<|assistant|>, <|eot|>: not special tokens of this model, so learned as text" in log
    assert "ids beyond 65,535: arrays of them are uint32 now" in log
    _, _, log = main("text.txt", "+500", "--extend", "old", "--model", "new2")
    assert "uint32" not in log and "500 requested, but no other pair that makes a new token has a count of 1 or more" in log


def test_files_of_a_third_model_are_not_mixed_in(error, folder):
    (folder / "new").mkdir()
    (folder / "new/special_tokens_map.json").write_text("{}")
    assert "special_tokens_map.json is of another model" in error("text.txt", "+5", "--extend", "old", "--model", "new")
