"""Reads tokenizer.json, of any byte-level BPE. Tokenizer.load() calls read_model() for tekken.json and minbpe, too.

The file may come from anyone, so no file, however odd, may take more than time and memory in proportion to its size.

Gives: read_model(), which returns the arguments of Tokenizer.
Uses: errors, gpt2, kinds, saving, supported, tiktoken, patterns.expressions, patterns.steps.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

import bpe
from bpe_more.errors import require
from bpe_more.formats import gpt2, kinds, saving, supported, tiktoken
from bpe_more.formats.gpt2 import MergeIds
from bpe_more.patterns import steps
from bpe_more.patterns.expressions import METACHARACTERS, differs_in_oniguruma
from bpe_more.patterns.steps import NORMAL_FORMS, ONLY_MATCHES, Pattern, check_pattern, steps_of

# A file that begins like this is from save(): no other program ends lines like this. Its expressions are for the
# package regex; those in other files are for Oniguruma, which the package tokenizers uses.
OUR_BEGINNING = b'{"version": "1.0",\n"truncation"'
UNUSED = ["truncation", "padding", "post_processor"]  # by encode(); save() writes them back


def read_model(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of Tokenizer: the four that each model has, and {name: value} of those that few models need.

    The content tells if a file is a tokenizer.json, a tekken.json, or a .model of minbpe. Raises ValueError for
    what is not supported, KeyError for what is missing.
    """
    if data.startswith(kinds.MINBPE):
        return tiktoken.read_minbpe(data.decode("utf-8")), {}
    content = json.loads(data)
    if "config" in content and "vocab" in content:
        return tiktoken.read_tekken(content), {}
    model = content["model"]
    # T5's file had no type before 2021
    model_type = model.setdefault("type", "BPE" if isinstance(model.get("vocab", {}), dict) else "Unigram")
    kind = kinds.kind_of(content)  # "this is a ..., not byte-level BPE: ", or ""
    require(model_type == "BPE", "{}model.type = {:.99} is not supported", kind, json.dumps(model_type))
    merges: Any = list(model.pop("merges", []))
    vocab = model.pop("vocab", {})
    # spelled: normalizer and pre_tokenizer as save() would write them; border: an expression for two
    # characters that no merge may join, or ""; only Falcon has one (see digits_in_bytes)
    pattern, spelled, border = read_steps(content, is_ours=data.startswith(OUR_BEGINNING))
    special_ids, settings = read_entries(content, vocab, pattern, spelled)
    if border:  # drop merges across a border, which are never applied
        merges = [pair for pair in gpt2.pairs_of(merges) if not re.search(border, f"{pair[0][-1:]}{pair[1][:1]}")]
    by_id, merges = read_tokens(vocab, merges, special_ids, settings)
    # Tokenizer doesn't warn of tokens that no merge makes if merges are a tuple or MergeIds: other programs never give
    # such tokens, either. It doesn't check SpecialTokens again.
    arguments = by_id, merges, steps.SpecialTokens(special_ids), pattern
    return arguments, {name: value for name, value in settings.items() if value}


def read_entries(content: dict[str, Any], vocab: Mapping[str, int], pattern: Pattern,
                 spelled: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the ids of special tokens, and the settings; check all entries.

    content    the file, whose "vocab" has been removed and is passed as `vocab`
    spelled    the entries that read_steps() returns: normalizer and pre_tokenizer as save() would write them
    """
    model, added = content["model"], content.get("added_tokens") or []
    if len({token["content"] for token in added}) < len(added):  # keep one of those that are equal in every entry
        added = [*{json.dumps(token, sort_keys=True): token for token in added}.values()]
    specials = tuple(token["content"] for token in added)
    special_ids = saving.ids_by_position(vocab, specials)  # check_supported() compares them with the ids in the file
    gpt2.refuse_same_ids(special_ids.items())
    kept = tuple(token["content"] for token in added if not token.get("special"))
    rest = {name: content[name] for name in UNUSED if content.get(name)}
    settings: dict[str, Any] = {"kept": kept, "rest": rest, "ignore_merges": model.get("ignore_merges") is True}
    settings |= {flag: tuple(token["content"] for token in added if token.get(flag)) for flag in supported.FLAGS}

    expected = saving.tokenizer_json({}, [], special_ids, pattern, settings)
    decoder = content.get("decoder") or expected["decoder"]  # a file without a decoder gives the same ids
    unknown = [character for character in bpe.CHARACTERS if character not in vocab] if model.get("unk_token") else []
    # unk_token stands for bytes without a token, and fuse_unk joins several of these. If there are such bytes,
    # unsupported_bytes() refuses unk_token, so it isn't compared here; without them, fuse_unk does nothing.
    model = {**model, "unk_token": None, "fuse_unk": model.get("fuse_unk") if unknown else None}
    entries = {**spelled, "decoder": decoder, "added_tokens": added, "model": model}
    form, _ = steps_of(pattern)
    reasons = [
        *supported.unsupported_bytes(content, unknown),
        *supported.unsupported_special_tokens(specials),
        *supported.unsupported_tokens(special_ids, settings, form),
        *supported.unsupported_templates(content),
        *supported.unsupported_rest(rest),
    ]
    supported.check_supported(content, entries, expected, reasons)
    return special_ids, settings


def read_tokens(vocab: dict[str, int], merges: Any, special_ids: Mapping[str, int],
                settings: dict[str, Any]) -> tuple[dict[int, bytes], Any]:
    """Return (vocab, merges) as Tokenizer takes them; add "unreachable" and "shared" to the settings.

    Special tokens that aren't shared are taken out of `vocab`, {name: id}.
    """
    # Other programs search for words in printable characters, so never find a name with another character, as in "a b".
    other_character = re.compile(f"[^{re.escape(bpe.CHARACTERS)}]").search
    names = [name for name in vocab if name not in special_ids]
    odd_names = list(filter(other_character, names)) if other_character("".join(names)) else []
    # find_merges() joins a pair with a space, so it could misread names with spaces, which are among the odd ones
    found: Any = MergeIds() if odd_names else gpt2.find_merges(vocab, merges)
    pairs = [] if found else gpt2.pairs_of(merges)  # nothing is found without C, or if a merge has to be checked
    if odd_names:  # merges that use one are never applied
        pairs = list(filter(set(odd_names).isdisjoint, pairs))
    numbers: Sequence[int] = ()  # the ids that merges have, which matter only for special tokens
    if found:
        numbers = found.numbers
    elif special_ids:
        numbers = [vocab.get(name, -1) for left, right in pairs for name in (left, right, left + right)]
    settings["unreachable"] = {vocab[name]: name for name in odd_names}
    settings["shared"] = shared_tokens(vocab, numbers, special_ids, settings["ignore_merges"])
    own_ids = {text: token_id for text, token_id in special_ids.items() if token_id not in settings["shared"]}
    for text in own_ids:
        vocab.pop(text, None)
    tokens = gpt2.tokens_at_once(vocab)
    by_id = dict(zip(vocab.values(), tokens))
    by_id |= zip(own_ids.values(), map(str.encode, own_ids))
    if len(by_id) < len(vocab) + len(own_ids):
        gpt2.refuse_same_ids([*vocab.items(), *own_ids.items()])
    if not found:
        token_of = dict(zip(vocab, tokens)) | {text: text.encode("utf-8") for text in own_ids}
        found = tuple(gpt2.merges_as_bytes(pairs, token_of))
    return by_id, found


def shared_tokens(vocab: Mapping[str, int], numbers: Sequence[int], specials: Iterable[str],
                  ignore_merges: Any) -> dict[int, str]:
    """Return {id: special token} of special tokens that are ordinary tokens, too ("shared", see Tokenizer).

    numbers has three ids for each merge: left, right and new, as in MergeIds.
    """
    named = {vocab[text]: text for text in specials if text in vocab}
    # special tokens such as "é": as a part of a merge, this name means other bytes than the text, here the byte E9
    mean_others = {token_id for token_id, text in named.items() if bpe.to_token(text) != text.encode("utf-8")}
    shared = {token_id for token_id, text in named.items() if saving.is_also_bytes(text, ignore_merges)}
    if named:  # those that a merge makes; filtered, since a set of all takes longer
        shared |= set(filter(named.__contains__, numbers[2::3]))
    if mean_others:
        shared |= set(filter(mean_others.__contains__, numbers))
    return {token_id: named[token_id] for token_id in shared}


def read_steps(content: dict[str, Any], is_ours: bool) -> tuple[Pattern, dict[str, Any], str]:
    """Return the pattern of a tokenizer.json; its normalizer and pre_tokenizer, spelled as by save(); and a border.

    The border is an expression for the last character of a left part and the first of a right one, between which
    no merge may join, or "" (see digits_in_bytes).
    """
    normalizer = content.get("normalizer") or {}
    while normalizer.get("type") == "Sequence":
        several = [step for step, _ in itertools.groupby(normalizer["normalizers"])]  # NFC twice is NFC
        if len(several) > 1:
            break
        normalizer = (several or [{}])[0]
    pattern = [normalizer["type"]] if normalizer.get("type") in NORMAL_FORMS else []

    pre_tokenizer = content.get("pre_tokenizer") or {}
    listed, border = pre_tokenizer.get("pretokenizers", [pre_tokenizer]), ""
    # With ignore_merges, a word that is a token crosses borders without a merge, so borders would not be enough.
    if not content["model"].get("ignore_merges"):
        listed, border = digits_in_bytes(listed)
    spelled = []
    for given in listed:
        is_literal = bool(given.get("pattern", {}).get("String"))
        for step in spelled_by_save(given):
            if step.get("type") == "ByteLevel":
                spelled.append(step)
                continue
            expression = step.get("pattern", {}).get("Regex", "")
            ours = (ONLY_MATCHES if step.get("invert") else "") + expression
            if step == saving.split_step(ours) and (is_ours or is_literal or not differs_in_oniguruma(expression)):
                pattern.append(check_pattern(ours))
                spelled.append(saving.split_step(pattern[-1]))  # any spelling of a named pattern compares equal
            else:  # check_supported() reports this step; with "gpt2" in its place, later steps keep their positions
                pattern.append("gpt2")
                spelled.append(step)
    entries = {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": spelled}}
    return check_pattern(tuple(pattern)), entries, border


def digits_in_bytes(listed: list[Any]) -> tuple[list[Any], str]:
    """Return Falcon's pre-tokenizers without "Digits", which follows "ByteLevel"; and a border.

    After "ByteLevel", "Digits" sees the characters that stand for bytes, and some of these are numbers: it splits "ü",
    which is "Ã¼" there, before "¼". Instead, no merge may join two characters in which the border, an expression, is
    found. A Split at three digits is moved before "ByteLevel", since ASCII digits stand for themselves. Any other
    list is returned as it is, with the border "".
    """
    types = [step.get("type") for step in listed]
    place = types.index("ByteLevel") if "ByteLevel" in types else len(types)
    three_digits = saving.split_step("[0-9][0-9][0-9]")
    splits = [step for step in listed[place + 1 :] if step == three_digits]
    later = [step for step in listed[place + 1 :] if step != three_digits]
    if [step.get("type") for step in later] != ["Digits"]:
        return listed, ""
    its_split = [saving.split_step("gpt2")] if listed[place].get("use_regex", True) else []  # of ByteLevel itself
    number, other = "[0-9²³¹¼½¾]", "[^0-9²³¹¼½¾]"
    border = number if later[0].get("individual_digits") else f"{number}{other}|{other}{number}"
    return [*listed[:place], *its_split, *splits, {**listed[place], "use_regex": False}], border


def spelled_by_save(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a pre-tokenizer as save() writes it: all but ByteLevel is a Split, and its pattern an expression."""
    kind = step.get("type")
    literal, expression = map(step.get("pattern", {}).get, ("String", "Regex"))
    if kind == "ByteLevel" and step.get("use_regex", True):  # the default: it splits text, too
        yield saving.split_step("gpt2")
        yield {**step, "use_regex": False}
    elif kind == "Digits":
        yield saving.split_step(r"\p{N}" if step.get("individual_digits") else r"\p{N}+")
    elif kind == "Punctuation" and step.get("behavior", "Isolated") in ("Isolated", "Contiguous"):
        yield saving.split_step(r"[\p{P}$+<=>^`|~]" + "+" * (step.get("behavior") == "Contiguous"))
    elif literal:  # tokenizers also escapes it; in a group, since "gpt2" alone would be the name of a pattern
        yield {**step, "pattern": {"Regex": f"(?:{regex.escape(literal)})"}}
    elif expression and METACHARACTERS.isdisjoint(expression):  # for the same reason
        yield {**step, "pattern": {"Regex": f"(?:{expression})"}}
    else:
        yield step
