"""Files of other programs: tokenizer.json of any byte-level BPE, ranks of tiktoken, settings for transformers."""

from __future__ import annotations

import binascii
import codecs
import contextlib
import gc
import itertools
import json
import operator
import os
import re
from array import array
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import regex

import bpe
from bpe_more import choices, kinds, outputs, signals, steps
from bpe_more.checks import is_integer, require
from bpe_more.steps import (
    NORMAL_FORMS,
    ONLY_MATCHES,
    Pattern,
    check_pattern,
    differs_in_oniguruma,
    normalize_text,
    steps_of,
)

# ------------------------------
# Saving, with settings for transformers
# ------------------------------

def model_files(folder: bpe.FilePath) -> list[str]:
    """Return the paths of the files of a model, in the order in which save() replaces them."""
    for_transformers = [*TRANSFORMERS_FILES, "chat_template.jinja"]
    names = ["tokenizer.json", *for_transformers, "vocab.json", "merges.txt"]
    return [os.path.join(folder, name) for name in names]


def save_model(vocab: Mapping[int, bytes], merges: Sequence[Any], special_ids: Mapping[str, int], pattern: Pattern,
               folder: bpe.FilePath, settings: Mapping[str, Any], roles: Mapping[str, str | None],
               source: bpe.FilePath | None = None) -> str:
    """Write the files of a model; return a note about roles of another model that the folder's files had, or "".

    settings    {name: value} of the arguments of Tokenizer that only models of other programs have, such as kept
    roles       {"eos_token": special token, ...} for transformers, also with "chat_template"; None: not given
    source      the folder whose files for transformers come along; by default `folder`
    """
    unreachable = {name: token_id for token_id, name in settings.get("unreachable", {}).items()}
    ids, merges_text = printable(vocab, merges, {**special_ids, **unreachable})
    shared = settings.get("shared", {}).values()
    own_ids = {name: token_id for name, token_id in special_ids.items() if name not in shared}
    left_out = special_tokens_left_out(ids, own_ids)
    if not left_out:
        check_special_names(name for name in own_ids if is_word_in_file(name, settings.get("ignore_merges")))
    reasons = list(unsupported_tokens(special_ids, settings, steps_of(pattern)[0]))
    require(not reasons, "can't be saved, since other programs would give other ids: {}", "; ".join(reasons[:2]))
    if left_out:  # merges use none of them
        ids = {name: token_id for name, token_id in ids.items() if name not in left_out}
    for_transformers, note = transformers_files(folder if source is None else source, special_ids, roles, ids)
    texts = model_texts(tokenizer_json(ids, [], special_ids, pattern, settings), merges_text)
    outputs.write_files(folder, {"tokenizer.json": texts.pop("tokenizer.json"), **for_transformers, **texts})
    return note


BETWEEN, AFTER = "\ud800", "\ud801"  # the tokens of a merge, and a merge: lone surrogates, which no token's name has


def printable(vocab: Mapping[int, bytes], merges: Sequence[Any],
              special_ids: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """Return {name of a token in files: id}, and the merges as one text, in which BETWEEN and AFTER separate names."""
    decode, characters = codecs.charmap_decode, bpe.CHARACTERS  # without a call of bpe.to_printable() for each token
    names = {token_id: decode(vocab[token_id], "strict", characters)[0] for token_id in sorted(vocab)}
    names |= {token_id: special for special, token_id in special_ids.items()}
    ids = dict(zip(names.values(), names))
    if len(ids) < len(names):
        check_special_names(special_ids)
        raise ValueError("can't be saved: a special token is also another token in printable characters")
    if isinstance(merges, MergeIds):
        text_of: Mapping[Any, str] = names
        lefts, rights = merges.numbers[::3], merges.numbers[1::3]
    else:
        # reversed: if two ids have the same bytes, merges have the first one's name
        text_of = {vocab[token_id]: names[token_id] for token_id in reversed([*vocab])}
        lefts, rights = zip(*merges) if merges else ((), ())

    def pairs() -> Iterator[tuple[str, str]]:
        return zip(map(text_of.__getitem__, lefts), map(text_of.__getitem__, rights))

    check_names_in_merges(pairs(), special_ids)
    return ids, AFTER.join([f"{left}{BETWEEN}{right}" for left, right in pairs()])


def model_texts(content: dict[str, Any], merges_text: str) -> dict[str, str]:
    """Return the text of each file of a model. The vocabulary is written once, and all merges at once."""
    model, quoted = content["model"], json.encoder.encode_basestring  # which json.dumps() uses
    # without a list of (name, id), as json.dumps() makes
    vocab = "{" + ",\n".join([f"{quoted(name)}: {token_id}" for name, token_id in model["vocab"].items()]) + "}"
    merges = quoted(merges_text).replace(AFTER, '"],\n["').replace(BETWEEN, '",\n"')
    without = bpe.to_json({**content, "model": {**model, "vocab": {}}})
    beginning = without.removesuffix('{},\n"merges": []}}\n')  # they are the last entries
    lines = merges_text.replace(AFTER, "\n").replace(BETWEEN, " ")
    return {
        "tokenizer.json": f'{beginning}{vocab},\n"merges": {f"[[{merges}]]" if merges_text else "[]"}}}}}\n',
        "vocab.json": f"{vocab}\n",
        "merges.txt": f"#version: 0.2\n{lines}\n" if lines else "#version: 0.2\n",
    }


def is_word_in_file(special: str, ignore_merges: Any) -> bool:
    """Tell if other programs, which know only the names in a vocabulary, find a special token's name in bytes, too."""
    token = bpe.to_token(special)
    is_word = bool(ignore_merges) and token.decode("utf-8", "ignore").encode() == token  # "<é>" would have the byte E9
    return token != special.encode("utf-8") and (len(token) == 1 or is_word)


def special_tokens_left_out(ids: Mapping[str, int], special_ids: Mapping[str, int]) -> set[str]:
    """Return special tokens that only "added_tokens" can have, and not "vocab"; mostly none.

    DeepSeek-Coder has the special token "õ", and lacks the byte that is written as "õ" in "vocab". A token
    outside of "vocab" gets its id from its position. So first all special tokens from the first unclear
    one on are tried, then the unclear ones alone; the first set that gives the right ids is returned.
    """
    unclear = {special for special in special_ids if not is_clear_name(special)}
    if not unclear:
        return unclear
    first = min(map(special_ids.__getitem__, unclear))
    for left_out in ({special for special in special_ids if special_ids[special] >= first}, unclear):
        in_vocab = {name: token_id for name, token_id in ids.items() if name not in left_out}
        if ids_by_position(in_vocab, special_ids) == special_ids:
            return left_out
    return set()


def ids_by_position(vocab: Mapping[str, int], special_tokens: Iterable[str]) -> dict[str, int]:
    """Return the ids of special tokens; outside the vocabulary, they count from its size on, as in tokenizers."""
    new_id, special_ids = len(vocab), {}
    for text in special_tokens:
        special_ids[text] = token_id = vocab.get(text, new_id)
        if token_id >= new_id:
            new_id = token_id + 1
    return special_ids


TRANSFORMERS_FILES = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
LISTS_OF_ROLES = ["additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"]


def transformers_files(folder: bpe.FilePath, special_ids: Mapping[str, int], roles: Mapping[str, Any],
                       names: Mapping[str, int]) -> tuple[dict[str, str], str]:
    """Return the texts of files that only transformers reads, and a note about what is left out.

    They have these roles, and the earlier settings in the folder, without roles and added tokens of
    another model: transformers would give those an id beyond the vocabulary, whose names are given.
    Version 5 prefers chat_template.jinja; version 4.45 reads only tokenizer_config.json.
    """
    new = {name: value for name, value in roles.items() if value is not None}
    for name, value in new.items():
        if name != "chat_template":
            require(value in special_ids, "{}={!r:.99} must be one of the special tokens", name, value)
        elif not isinstance(value, str):
            raise TypeError(f"chat_template must be a str, not {value!r:.60}")

    old, in_map, added = (dict_in_file(os.path.join(folder, name)) for name in TRANSFORMERS_FILES)
    with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, "chat_template.jinja"), "rb") as file:
        old["chat_template"] = file.read().decode("utf-8")
    decoder = old.pop("added_tokens_decoder", None)  # tokenizer.json has the same
    if decoder is None:  # only then, transformers reads the other two files
        old |= in_map
    # torchtitan's tokenizer.json has no added tokens: transformers takes them from here, with the ids of the vocabulary
    listed = {content_of(token) or "": token_id for token_id, token in entries_of(decoder).items()}
    in_vocab = {text for text, token_id in listed.items() if str(names.get(text)) == token_id}
    own = in_vocab.union(special_ids)
    kept, gone = own_roles({name: value for name, value in old.items() if name not in new}, own)
    others = {*listed, *added}.difference(own)
    gone += [f"the added token {text!r:.60}" for text in sorted(map(str, others))]

    defaults = {
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],  # else transformers 4 adds token_type_ids
    }
    # The class of another model, such as Qwen2Tokenizer, brings its own pattern in version 5.
    config = {"tokenizer_class": "", **defaults, **kept, **new}  # the first entry
    config["tokenizer_class"] = "PreTrainedTokenizerFast"  # whatever the folder had
    config.pop("auto_map", None)  # a class in a file of Python
    if still := {str(names[text]): decoder[str(names[text])] for text in in_vocab.difference(special_ids)}:
        config["added_tokens_decoder"] = still
    files = {
        "special_tokens_map.json": {name: value for name, value in config.items() if is_role(name, value)},
        "added_tokens.json": {text: token_id for text, token_id in added.items() if special_ids.get(text) == token_id},
    }
    in_folder = [name for name in files if os.path.exists(os.path.join(folder, name))]
    texts = {name: bpe.to_json(files[name]) for name in in_folder}
    if isinstance(template := config.get("chat_template"), str):  # in version 4, it may be a list of several
        texts["chat_template.jinja"] = template
    what = ", ".join(gone[:5]) + f" and {len(gone) - 5:,} more" * (len(gone) > 5)
    note = f"not in this model, so no longer in the settings for transformers: {what}" if gone else ""
    return {"tokenizer_config.json": bpe.to_json(config), **texts}, note


def dict_in_file(path: str) -> dict[str, Any]:
    """Return a dict from a file of JSON; an empty one if there is no such file, or another content."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with open(path, "rb") as file:
            content = json.load(file)
        bpe.to_json(content).encode("utf-8")  # no lone surrogate
        if isinstance(content, dict):
            return content
    return {}


def content_of(token: Any) -> str | None:
    """Return the text of a token in transformers' files, which is a str or a dict, or None."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def is_role(name: str, value: Any) -> bool:
    """Tell if a setting of transformers names one or several special tokens."""
    return name in LISTS_OF_ROLES or (name.endswith("_token") and content_of(value) is not None)


def own_roles(settings: Mapping[str, Any], special_tokens: Container[str]) -> tuple[dict[str, Any], list[str]]:
    """Return settings with only those roles that a model's special tokens can have, and names of the others."""
    kept, gone = {}, []
    for name, value in settings.items():
        if not is_role(name, value):
            kept[name] = value
            continue
        tokens = entries_of(value) if name in LISTS_OF_ROLES else {0: value}
        texts = {key: content_of(token) for key, token in tokens.items()}
        own = {key: text for key, text in texts.items() if text in special_tokens}
        gone += [f"{name} {texts[key]!r:.60}" for key in texts if key not in own]
        if name in LISTS_OF_ROLES:
            kept[name] = own if isinstance(value, dict) else list(own.values())
        elif own:
            kept[name] = own[0]  # of {0: value}
    return kept, gone


FLAGS = ("normalized", "lstrip", "rstrip")  # of added tokens; in the settings, the tokens that have them


def tokenizer_json(ids: Mapping[str, int], pairs: Sequence[Any], special_ids: Mapping[str, int], pattern: Pattern,
                   settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of tokenizer.json, with the settings that only models of other programs have."""
    content = bpe.tokenizer_json(ids, pairs, special_ids, "gpt2")
    kept, normalized, lstrip, rstrip = (set(settings.get(name, ())) for name in ("kept", *FLAGS))
    for token in content["added_tokens"]:
        text = token["content"]
        token["special"], token["normalized"] = text not in kept, text in normalized
        token["lstrip"], token["rstrip"] = text in lstrip, text in rstrip
    form, steps = steps_of(pattern)
    content["normalizer"] = {"type": form} if form else None
    content["pre_tokenizer"]["pretokenizers"][:1] = map(split_step, steps)
    content["model"]["ignore_merges"] = settings.get("ignore_merges", False)
    return {**content, **settings.get("rest", {})}


def split_step(step: str) -> dict[str, Any]:
    """Return a step of a pattern as tokenizer.json has it."""
    expression = bpe.PUBLISHED_GPT2 if step == "gpt2" else bpe.PATTERNS.get(step, step.removeprefix(ONLY_MATCHES))
    pattern = {"Regex": expression}
    invert = step.startswith(ONLY_MATCHES)
    behavior = "Removed" if invert else "Isolated"
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


# ------------------------------
# Reading a tokenizer.json
# ------------------------------

@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Pause the garbage collector, which would look through all tokens and merges again and again as they are made."""
    was_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()


# The expressions in a file that begins like this are for regex, and not for Oniguruma: save() has written it, since no
# other program ends lines like this.
OUR_BEGINNING = b'{"version": "1.0",\n"truncation"'

# A tokenizer.json of another program is compared with what save() would write for its tokens and its steps. A
# difference is an error that names it, except for entries that change no id: trim_offsets is about places in text, and
# decoding uses neither add_prefix_space nor use_regex. Such a file may come from anywhere, so reading it takes time and
# memory in proportion to its size.
# HARMLESS matches the names of these entries, as differences() gives them.
HARMLESS = r".*\.trim_offsets|decoder\.(add_prefix_space|use_regex)"
UNUSED = ["truncation", "padding", "post_processor"]  # save() writes them back; encode() ignores them
MOST_LEVELS = 126  # of lists and dicts in them; tokenizers opens no more


def read_tokenizer_json(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of Tokenizer, and those with a name that only some models need.

    Raises ValueError for what is not supported, KeyError for what is missing.
    """
    if data.startswith(b"minbpe v1"):
        return kinds.read_minbpe(data.decode("utf-8")), {}
    content, is_ours = json.loads(data), data.startswith(OUR_BEGINNING)
    if "config" in content and "vocab" in content:
        ranks, first_ids, expression = kinds.read_tekken(content)
        by_id, splits = read_tiktoken(ranks)
        by_id |= {token_id: text.encode("utf-8") for text, token_id in first_ids.items()}
        return (by_id, splits, tuple(first_ids), expression), {}
    model = content["model"]
    # a file of T5 of before 2021 has no type
    model_type = json.dumps(model.setdefault("type", "BPE" if isinstance(model.get("vocab", {}), dict) else "Unigram"))
    kind, added = kinds.kind_of(content), content.get("added_tokens") or []
    require(model_type == '"BPE"', f"{kind}model.type = {model_type:.99} is not supported")
    merges: Any = list(model.pop("merges", []))
    vocab = model.pop("vocab", {})

    if len({token["content"] for token in added}) < len(added):  # equal ones are one
        added = [*{json.dumps(token, sort_keys=True): token for token in added}.values()]
    specials, reasons = tuple(token["content"] for token in added), []
    unknown = [character for character in bpe.CHARACTERS if character not in vocab]
    if (unk_token := model.pop("unk_token", None)) and unknown and not kind:
        text = f'model.unk_token = {json.dumps(unk_token):.60} is for bytes without a token ({len(unknown)}, such as '
        text += f'{bpe.to_token(unknown[0])!r}): set it to null, so that encode() refuses them, or add them to "vocab"'
        reasons.append(text)
    if not unknown or not unk_token:
        model.pop("fuse_unk", None)  # which is for these bytes
    try:
        specials = steps.check_special_tokens(specials)
    except ValueError as error:  # such as "\n", of one byte; there may be more reasons
        reasons.append(f"{error!s:.200}")
    special_ids = ids_by_position(vocab, specials)  # check_supported() compares them with the ids in the file

    pattern, entries, digits = read_steps(content, is_ours)
    kept = tuple(token["content"] for token in added if not token.get("special"))
    rest = {name: content[name] for name in UNUSED if content.get(name)}
    for name, value in rest.items():  # save() could not write it, and other programs don't read it
        written = bpe.to_json(value)
        half = re.search("[\ud800-\udfff]", written)
        require(not half, "{} has half of a surrogate pair: {!r:.60}", name, half and written[half.start() :])
    settings: dict[str, Any] = {"kept": kept, "rest": rest, "ignore_merges": model.get("ignore_merges") is True}
    settings |= {flag: tuple(token["content"] for token in added if token.get(flag)) for flag in FLAGS}

    expected = tokenizer_json({}, [], special_ids, pattern, settings)
    entries["decoder"] = content.get("decoder") or expected["decoder"]  # a file without one has the same ids
    entries["added_tokens"] = added  # each once
    reasons += unsupported_tokens(special_ids, settings, steps_of(pattern)[0])
    reasons += unsupported_templates(content)
    reasons += [f"{name} is nested more than {MOST_LEVELS} levels deep" for name in rest if is_deep(rest[name])]
    check_supported(content, entries, expected, reasons, kind)

    if digits:  # a merge across a border of numbers is never made
        merges = [pair for pair in pairs_of(merges) if not re.search(digits, f"{pair[0][-1:]}{pair[1][:1]}")]
    # Other programs look for words in printable characters, so they never find other names.
    other_character = re.compile(f"[^{re.escape(bpe.CHARACTERS)}]").search
    names = [name for name in vocab if name not in special_ids]
    unclear = {}
    if other_character("".join(names)):
        unclear = {vocab[name]: name for name in names if other_character(name)}
    in_merges = {name for pair in pairs_of(merges) for name in (*pair, "".join(pair))} if unclear else set()
    settings["unreachable"] = {token_id: name for token_id, name in unclear.items() if name not in in_merges}

    found: Any = () if unclear else find_merges(vocab, merges)
    settings["shared"] = shared_tokens(vocab, found or pairs_of(merges), specials, settings["ignore_merges"])
    own_ids = {text: token_id for text, token_id in special_ids.items() if token_id not in settings["shared"]}
    for text in own_ids:
        vocab.pop(text, None)
    tokens = tokens_at_once(vocab)
    by_id = dict(zip(vocab.values(), tokens))
    by_id |= zip(own_ids.values(), map(str.encode, own_ids))
    require(len(by_id) == len(vocab) + len(own_ids), "two tokens have the same id")
    if not found:
        token_of = dict(zip(vocab, tokens)) | {text: text.encode("utf-8") for text in own_ids}
        found = tuple(to_bytes({}, pairs_of(merges), token_of)[1])
    # a tuple, for which Tokenizer warns of no token that no merge makes: the ids are right anyway
    return (by_id, found, specials, pattern), {name: value for name, value in settings.items() if value}


def read_vocab(data: bytes, specials: Sequence[str]) -> tuple[dict[str, int], dict[int, bytes]]:
    """Return {name: id} and {id: token} of a vocab.json, in which special tokens have the names of text."""
    names = dict(json.loads(data, object_pairs_hook=entries_once))
    for special in specials:
        name = special if special in names else bpe.to_printable(special.encode("utf-8"))
        if name in names:
            names[special] = names.pop(name)
    vocab = dict(zip(names.values(), tokens_at_once(names)))
    require(len(vocab) == len(names), "two tokens have the same id")
    vocab |= {names[special]: special.encode("utf-8") for special in specials if special in names}
    return names, vocab


def entries_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of an object of JSON. Raises ValueError if two have the same key."""
    entries = dict(pairs)
    return entries if len(entries) == len(pairs) else without_duplicates(pairs)


def merges_of_file(text: str, names: Mapping[str, int], vocab: Mapping[int, bytes]) -> Any:
    """Return the merges of a merges.txt: as ids if C is here and nothing is wrong, else as tokens, or the error."""
    lines = re.sub("^#version.*", "", text).split("\n")
    merges = find_merges(names, list(filter(None, lines)))
    lefts, rights, new = (merges.numbers[part::3] for part in range(3))
    token_of, made = vocab.__getitem__, set(new)
    joined = map(operator.add, map(token_of, lefts), map(token_of, rights))
    if all(len(vocab[part]) == 1 for part in {*lefts, *rights} - made) and [*joined] == [*map(token_of, new)] and made:
        return merges
    tokens = {name: vocab[token_id] for name, token_id in names.items()}
    return to_bytes({}, read_merges(text, names), tokens)[1]


def shared_tokens(vocab: Mapping[str, int], merges: Any, specials: Iterable[str], ignore_merges: Any) -> dict[int, str]:
    """Return {id: special token} of special tokens that other programs find in bytes, too, by their names."""
    named = {vocab[text]: text for text in specials if text in vocab}
    if not named:
        return {}
    other = {token_id for token_id, text in named.items() if bpe.to_token(text) != text.encode("utf-8")}
    if isinstance(merges, MergeIds):  # filtered, since a set of all takes longer
        found: set[Any] = set(filter(named.__contains__, merges.numbers[2::3]))
        found |= set(filter(other.__contains__, merges.numbers)) if other else set()
    else:
        found = {vocab.get("".join(pair)) for pair in merges}
        found |= other.intersection(vocab.get(name, -1) for pair in merges for name in pair)
    words = (token_id for token_id, text in named.items() if is_word_in_file(text, ignore_merges))
    return {token_id: named[token_id] for token_id in found.union(words) if token_id in named}


def tokens_at_once(names: Collection[str]) -> list[bytes]:
    """Return the tokens with these names in printable characters, mostly all in one call."""
    try:
        data, _ = codecs.charmap_encode("".join(names), "strict", bpe.BYTE_OF)
    except UnicodeEncodeError:  # a name has other characters
        return [bpe.to_token(name) for name in names]
    ends = list(itertools.accumulate(map(len, names)))  # a character is a byte
    return [data[start:end] for start, end in zip([0, *ends], ends)]


def pairs_of(merges: Iterable[Any]) -> list[Any]:
    """Return merges as pairs: older versions of other programs write a pair as "t h"."""
    return [pair.partition(" ")[::2] if isinstance(pair, str) else pair for pair in merges]


def find_merges(ids: Mapping[str, int], merges: Sequence[Any]) -> MergeIds:
    """Return the ids of merges of printable tokens; none without C, or if Tokenizer has to say what is wrong."""
    engine, _ = choices.find_engine()
    if not engine or engine.only_learns:
        return NO_MERGES
    try:
        types = set(map(type, merges))
        if str not in types and set(map(len, merges)) == {2}:
            merges, types = list(map(" ".join, merges)), {str}
        is_clear = types == {str} and len(set(merges)) == len(merges)
        return MergeIds(engine.find_merges(ids, merges)) if is_clear else NO_MERGES
    except (UnicodeEncodeError, TypeError, OverflowError):
        return NO_MERGES


def read_steps(content: dict[str, Any], is_ours: bool) -> tuple[Pattern, dict[str, Any], str]:
    """Return the pattern of a tokenizer.json; its normalizer and pre_tokenizer, spelled as by save(); and digits.

    digits is "", or from digits_in_bytes().
    """
    normalizer = content.get("normalizer") or {}
    while normalizer.get("type") == "Sequence":
        several = [step for step, _ in itertools.groupby(normalizer["normalizers"])]  # NFC twice is NFC
        if len(several) > 1:
            break
        normalizer = (several or [{}])[0]
    pattern = [normalizer["type"]] if normalizer.get("type") in NORMAL_FORMS else []

    pre_tokenizer = content.get("pre_tokenizer") or {}
    listed, digits = pre_tokenizer.get("pretokenizers", [pre_tokenizer]), ""
    if not content["model"].get("ignore_merges"):
        listed, digits = digits_in_bytes(listed)
    steps = []
    for given in listed:
        is_literal = bool(given.get("pattern", {}).get("String"))
        for step in spelled_by_save(given):
            if step.get("type") == "ByteLevel":
                steps.append(step)
                continue
            expression = step.get("pattern", {}).get("Regex", "")
            ours = (ONLY_MATCHES if step.get("invert") else "") + expression
            if step == split_step(ours) and (is_ours or is_literal or not differs_in_oniguruma(expression)):
                pattern.append(check_pattern(ours))
                steps.append(split_step(pattern[-1]))  # any spelling of a named pattern compares equal
            else:  # check_supported() reports it; a placeholder keeps the index of later steps
                pattern.append("gpt2")
                steps.append(step)
    entries = {"normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    return check_pattern(tuple(pattern)), entries, digits


def digits_in_bytes(steps: list[Any]) -> tuple[list[Any], str]:
    """Return the pre-tokenizers of Falcon with "ByteLevel" at the end, and without the "Digits" after it.

    There, "Digits" splits words of the characters that stand for bytes, some of which are numbers: "ü" is "Ã¼". As no
    merge may join what it splits, an expression for such pairs is returned, too. A Split at three digits
    may come before "ByteLevel" as well, because ASCII digits stay what they are. Other steps stay as they are, with "".
    """
    types = [step.get("type") for step in steps]
    place = types.index("ByteLevel") if "ByteLevel" in types else len(types)
    splits = [step for step in steps[place + 1 :] if step == split_step("[0-9][0-9][0-9]")]
    later = [step for step in steps[place + 1 :] if step not in splits]
    if [step.get("type") for step in later] != ["Digits"]:
        return steps, ""
    own_words = [split_step("gpt2")] if steps[place].get("use_regex", True) else []
    number, other = "[0-9²³¹¼½¾]", "[^0-9²³¹¼½¾]"
    border = number if later[0].get("individual_digits") else f"{number}{other}|{other}{number}"
    return [*steps[:place], *own_words, *splits, {**steps[place], "use_regex": False}], border


def spelled_by_save(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a pre-tokenizer as save() writes it: all but ByteLevel is a Split, and its pattern an expression."""
    kind = step.get("type")
    literal = step.get("pattern", {}).get("String")
    if kind == "ByteLevel" and step.get("use_regex", True):  # the default: it splits text, too
        yield split_step("gpt2")
        yield {**step, "use_regex": False}
    elif kind == "Digits":
        yield split_step(r"\p{N}" if step.get("individual_digits") else r"\p{N}+")
    elif kind == "Punctuation" and step.get("behavior", "Isolated") in ("Isolated", "Contiguous"):
        yield split_step(r"[\p{P}$+<=>^`|~]" + "+" * (step.get("behavior") == "Contiguous"))
    elif literal:  # tokenizers makes an expression of it, too
        yield {**step, "pattern": {"Regex": f"(?:{regex.escape(literal)})"}}
    else:
        yield step


def check_supported(content: dict[str, Any], entries: dict[str, Any], expected: dict[str, Any],
                    other_reasons: Sequence[str], kind: str) -> None:
    """Raise ValueError, in one line, with each value of a tokenizer.json that could change ids, and other reasons.

    `entries` replace those of the file, whose spelling may differ from that of save(). The error begins with the kind.
    """
    found = differences(expected, {**content, **entries})
    different = {name: value for name, value in found if not re.fullmatch(HARMLESS, name)}
    values = {name: value for name, value in different.items() if value is not None}
    # where only our side has values, as for "pre_tokenizer": null, their whole entry is shown
    entries_shown = {name.split(".")[0] for name in values}
    for entry in (name.split(".")[0] for name in different):
        if entry not in entries_shown:
            values[entry] = content.get(entry)

    reasons = []
    ids = {token["content"]: token["id"] for token in expected["added_tokens"]}
    for name, value in values.items():
        part = differs_in_oniguruma(value) if name.endswith(".pattern.Regex") else ""
        why = f", of which tokenizers and Python's regex may read {part!r} differently," if part else ""
        if number := re.fullmatch(r"added_tokens\.([0-9]+)\.id", name):
            text = entries["added_tokens"][int(number[1])]["content"]
            why = f" (tokenizers gives {text!r:.60} the id {ids[text]})"
        reasons.append(f"{name:.99} = {json.dumps(value):.99}{why}")
    reasons += other_reasons
    if not reasons:
        return

    lengths = list(itertools.accumulate(len(reason) + 2 for reason in reasons))
    most = (280 if lengths[-1] + len(kind) <= 280 else 260) - len(kind)  # what is left of 300 is for the words below
    shown = reasons[: max(1, sum(length <= most for length in lengths))]
    n_values = min(len(shown), len(values))
    if n_values:
        shown[n_values - 1] += " is not supported" if n_values == 1 else " are not supported"
    if len(shown) < len(reasons):
        shown.append(f"and {len(reasons) - len(shown):,} more")
    raise ValueError(kind + "; ".join(shown))


def differences(ours: Any, theirs: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each value in a tree of JSON that differs from ours.

    In {"a": {"b": [1]}}, 1 has the name a.b.0. Null, false, 0, "" and empty lists mean the same as no
    entry; for a value that only our tree has, yield (name, None).
    """
    pairs = [("", ours, theirs)]  # not a recursion, because a file may be nested deeper than Python's stack
    while pairs:
        name, our_tree, their_tree = pairs.pop()
        if name and (our_tree or None) == (their_tree or None):
            continue
        if not isinstance(their_tree, (dict, list)) or len(name) > 98:  # else 20,000 names could be long
            yield name, their_tree or None
            continue
        if our_tree and not isinstance(our_tree, (dict, list)):
            yield name, None
        our_values, their_values = entries_of(our_tree), entries_of(their_tree)
        for key in reversed({**our_values, **their_values}):
            full_name = f"{name}.{key!s:.99}" if name else f"{key!s:.99}"
            pairs.append((full_name, our_values.get(key), their_values.get(key)))


def entries_of(tree: Any) -> dict[Any, Any]:
    """Return the entries of a dict or a list, else none."""
    return tree if isinstance(tree, dict) else dict(enumerate(tree)) if isinstance(tree, list) else {}


def is_deep(tree: Any) -> bool:
    """Tell if a tree of JSON has more than MOST_LEVELS levels of lists and dicts."""
    level = [tree]
    for _ in range(MOST_LEVELS):
        level = [value for each in level for value in entries_of(each).values()]
    return any(isinstance(each, (dict, list)) for each in level)


def unsupported_tokens(special_tokens: Iterable[str], settings: Mapping[str, Any], form: Any) -> Iterator[str]:
    """Yield a reason for each added token that the package tokenizers could find elsewhere than we do."""
    normalized, lstrip, rstrip = (settings.get(flag, ()) for flag in FLAGS)
    # In "<a><b>", if "<a>" is normalized and "a><b" is not, the package tokenizers finds "a><b": it
    # first searches the whole text for tokens that are not normalized. We do so only with a normal
    # form. (In "a><b><c>", "a><b" begins first, so we find it, too.)
    others = set(special_tokens).difference(normalized) if normalized and not form else ()
    for token in overlapping(normalized, others):
        yield f"the added token {token!r:.99} overlaps another, and only one is normalized"
    for token in normalized:
        if token != normalize_text(form, token):
            yield f"the normalized added token {token!r:.99} is not in {form}"
    # Where a token before it has removed the whitespace that is this token, tokenizers drops it, or stops in a panic.
    for token in lstrip if rstrip else ():
        if token.isspace():
            yield f"the added token {token!r:.99} is whitespace and has lstrip, and another has rstrip"


def overlapping(tokens: Sequence[str], others: Iterable[str]) -> Iterator[str]:
    """Yield each token that has one of the others in it, or ends with a beginning of one.

    This is the algorithm of Aho and Corasick (1975), since comparing all pairs takes too long. A state is
    a beginning of some of the others; state 0 is the empty one.
    """
    following: dict[tuple[int, str], int] = {}  # (state, next character) -> state
    shorter = [0]  # the state of the longest proper ending of a state that is a state, too
    complete = {0: False}  # whether a state ends with one of the others

    def after(state: int, character: str) -> int:
        while state and (state, character) not in following:
            state = shorter[state]
        return following.get((state, character), 0)

    left = [(other, 0) for other in others if tokens]
    for place in itertools.count():  # the shortest states first
        left = [(other, state) for other, state in left if place < len(other)]
        if not left:
            break
        for number, (other, state) in enumerate(left):
            new = following.get((state, other[place]))
            if new is None:
                new = len(shorter)
                shorter.append(after(shorter[state], other[place]) if state else 0)
                following[state, other[place]] = new
                complete[new] = complete[shorter[new]]
            complete[new] |= place + 1 == len(other)
            left[number] = other, new
    for token in tokens:
        state, found = 0, False
        for character in token:
            state = after(state, character)
            found |= complete[state]
        if found or state:
            yield token


def unsupported_templates(content: dict[str, Any]) -> Iterator[str]:
    """Yield a reason for each template in which the text does not occur once."""
    processor = content.get("post_processor") or {}
    for step in processor.get("processors", [processor]):
        template = step.get("single", [{"Sequence": {"id": "A"}}])
        texts = [part["Sequence"]["id"] for part in template if "SpecialToken" not in part]
        if texts != ["A"]:
            yield f"a template of {json.dumps(template):.99} is not supported: text A must be in it once"


def in_templates(tree: Any, names: Mapping[str, str], ids: Mapping[int, int], key: str = "") -> Any:
    """Return an entry of a tokenizer.json such as "post_processor" with other names and ids of special tokens."""
    if isinstance(tree, dict):
        new_names = names if key == "special_tokens" else {}
        return {new_names.get(name, name): in_templates(value, names, ids, name) for name, value in tree.items()}
    if isinstance(tree, list):
        return [in_templates(value, names, ids, key) for value in tree]
    if key in ("id", "tokens", "pad_token", "cls", "sep") and isinstance(tree, str):  # "cls": ["<s>", 0]
        return names.get(tree, tree)
    return ids.get(tree, tree) if key in ("ids", "pad_id", "cls", "sep") else tree


# ------------------------------
# Reading ranks of tiktoken
# ------------------------------

class MergeIds(Sequence[tuple[int, int, int]]):
    """Merges as ids: left, right, new. A Tokenizer takes them instead of pairs of tokens if they are known.

    They are in one array, since the garbage collector would look through tuples.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers) // 3

    def __getitem__(self, rank: Any) -> Any:
        return tuple(self.numbers[3 * rank : 3 * rank + 3])

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        numbers = iter(self.numbers)
        return zip(numbers, numbers, numbers)


NO_MERGES = MergeIds(array("I"))


class WordsFirst(list[bpe.Pair]):
    """Merges of a model in which a word that is a token stays whole: ignore_merges of Tokenizer."""

    known: tuple[Mapping[int, bytes], list[bpe.Pair], MergeIds] = {}, [], NO_MERGES

    def ids_for(self, vocab: Mapping[int, bytes]) -> MergeIds:
        """Return the ids of these merges, which read_tiktoken() found; none if they or the vocabulary have changed."""
        known_vocab, known_merges, merge_ids = self.known
        return merge_ids if known_merges == self and known_vocab == vocab else NO_MERGES


def read_tiktoken(path: bpe.FilePath | Mapping[Any, Any] | list[Any]) -> bpe.Model:
    """Read a .tiktoken file, such as cl100k_base.tiktoken; return (vocab, merges).

    Each line has a token in base64 and its rank, which is its id. The merges are all ways to make a
    token of two others, in the order of ranks; words that are tokens stay whole. Instead of a path, take
    ranks as programs hold them in memory: {token: rank}, as tiktoken does, {rank: token}, or pairs of the
    two, as rustbpe does.
    """
    if isinstance(path, list):
        path = dict(path)
    vocab = ranks_in_memory(path) if isinstance(path, Mapping) else ranks_of_file(path)
    merge_ids = MergeIds(splits_of(vocab))
    token_of = in_list(vocab).__getitem__
    lefts, rights = (map(token_of, merge_ids.numbers[part::3]) for part in range(2))
    with paused_collector():
        merges = WordsFirst(zip(lefts, rights))
    merges.known = vocab.copy(), merges[:], merge_ids  # copies, since the caller may change both
    return vocab, merges


def in_list(values: Mapping[int, Any]) -> Any:
    """Return {number: value} as a list, in which look-ups take half of the time, unless it would have large gaps."""
    n = max(values, default=-1) + 1
    if n > 4 * len(values):
        return values
    as_list = [None] * n
    for number, value in values.items():
        as_list[number] = value
    return as_list


def splits_of(vocab: Mapping[int, bytes]) -> Sequence[int]:
    """Return all ways to make a token of two others, as ids: left, right, token; sorted by the token, then by left."""
    engine, _ = choices.find_engine()
    if engine and not engine.only_learns and max(vocab) <= bpe.MAX_ID:
        return engine.find_splits(vocab)  # type: ignore[no-any-return]
    with signals.all_delayed():
        import bisect

    # Only places that leave lengths of other tokens: a token of 300 KB has 300,000 places in all.
    lengths, id_of = sorted({len(token) for token in vocab.values() if token}), dict(zip(vocab.values(), vocab)).get
    splits = [
        (rank, left, right)
        for rank, token in vocab.items()
        for end in lengths[: bisect.bisect_left(lengths, len(token))]
        if (left := id_of(token[:end])) is not None and (right := id_of(token[end:])) is not None
    ]
    return [number for rank, left, right in sorted(splits) for number in (left, right, rank)]


def ranks_in_memory(ranks: Mapping[Any, Any]) -> dict[int, bytes]:
    """Return {rank: token} for that, or for {token: rank}."""
    pairs = [pair if isinstance(pair[0], bytes) else pair[::-1] for pair in ranks.items()]
    for token, rank in pairs:
        valid = isinstance(token, bytes) and is_integer(rank) and rank >= 0
        require(valid, "ranks must be {{bytes: rank}} or {{rank: bytes}}, not {!r:.60} with {!r:.60}", token, rank)
    vocab = {operator.index(rank): token for token, rank in pairs}
    unique = len(vocab) == len(set(vocab.values())) == len(ranks)
    require(unique, "two tokens have the same rank, or a token has two ranks")
    require(vocab, "there are no ranks")
    return vocab


def ranks_of_file(path: bpe.FilePath) -> dict[int, bytes]:
    """Return {rank: token} for a .tiktoken file."""
    in_base64 = b"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)|=)"
    whole_line = re.compile(b"\n%s [0-9]+$" % in_base64, re.MULTILINE)  # "=" is b"" in Whisper's file
    with open(path, "rb") as file, error_prefix(path):
        data = file.read().removeprefix(codecs.BOM_UTF8)
        other = whole_line.sub(b"", b"\n" + data.replace(b"\r", b"\n")).strip(b"\n")
        fields = data.split() if not other else []
        tokens = list(map(binascii.a2b_base64, fields[::2]))
        vocab = dict(zip(map(int, fields[1::2]), tokens))
        if other or not len(vocab) == len(set(tokens)) == len(tokens):
            check_lines(data.splitlines(), whole_line)
        require(vocab, "the file is empty")
    return vocab


def check_lines(lines: Iterable[bytes], whole_line: re.Pattern[bytes]) -> None:
    """Raise the error of the first line of a .tiktoken file that is no token and its rank, or repeats one."""
    tokens: set[bytes] = set()
    ranks: set[int] = set()
    for number, line in enumerate(lines, 1):
        if line:
            if not whole_line.fullmatch(b"\n" + line):
                raise ValueError(f"line {number} must be a token in base64 and its rank: {line!r:.60}")
            in_base64, digits = line.split(b" ")
            token, rank = binascii.a2b_base64(in_base64), int(digits)
            # of a file that ends too early, the last line may have 25 instead of 257
            fresh = token not in tokens and rank not in ranks
            require(fresh, "line {} repeats a token or a rank: {!r:.60}", number, line)
            tokens.add(token)
            ranks.add(rank)


# ------------------------------
# Errors of files
# ------------------------------

@contextlib.contextmanager
def error_prefix(path: bpe.FilePath) -> Iterator[None]:
    """Put a file's name before an error of at most 300 characters, and say what the file seems to be."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        text = str(error)
        if type(error) is not ValueError:
            hint = "vocab.json and merges.txt are for Tokenizer.from_files"
            if os.fspath(path).endswith(("vocab.json", "merges.txt")):
                hint = "tokenizer.json is for Tokenizer.load"
            text = f"not a byte-level BPE model ({error!r:.99}); {hint}, .tiktoken files for read_tiktoken"
        text = looks_like(path) or text
        text = text if len(text) <= 300 else f"{text[:299]}…"
        raise ValueError(f"{os.fspath(path)}: {text}") from None


def looks_like(path: bpe.FilePath) -> str:
    """Say what a file that can't be read seems to be, and what to do with it; "" if its beginning doesn't tell."""
    with open(path, "rb") as file:
        content = file.read()
    start = content[:200].strip()
    if not start:
        return "the file is empty"
    if start.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, not the file itself, which `git lfs pull` gets"
    for beginning, what in kinds.BEGINNINGS.items():
        if re.match(beginning, content):
            return what
    if re.match(rb"<[!?A-Za-z]", start):
        return "this looks like a web page, not a model"
    if found := kinds.kind_of_json(dict_in_file(os.fspath(path))):
        return found
    if len(re.findall(rb'</w>(?:"\s*:|\r?\n)', content)) > len(re.findall(rb'"\s*:|\n', content)) / 10:
        return kinds.SUFFIXES
    if re.match(rb'\{\s*"[0-9]+"\s*:\s*"', start):
        way = "ids = {token: int(i) for i, token in json.load(open(path)).items()}"
        way += '; json.dump(ids, open("vocab.json", "w"))'
        return f"this is {{id: token}}, not {{token: id}}; to convert it: {way}"
    return pairs_of_ids(content.decode("utf-8", "replace"))


PAIRS_OF_IDS = (
    f"these are pairs of ids, not of tokens; to convert them: {kinds.NAMES}"
    "; lines = [f'{names[left]} {names[right]}' for left, right in pairs]"
)


def pairs_of_ids(text: str) -> str:
    """Say so, and how to convert them, if merges are written as ids; else return ""."""
    # 116 104, or (116, 104), or [[116, 104], ... If these were tokens, another merge would make "116"
    ids = re.match(r"(?:#version.*\n)?[\s\[(]*([0-9]+)[\s,]+([0-9]+)\b", text)
    made = set(map("".join, re.findall(r"([0-9]+)[^\S\n,]*,? ([0-9]+)", text))) if ids else set()
    if not ids or all(len(token) == 1 or token in made for token in ids.groups()):
        return ""
    return PAIRS_OF_IDS


def check_special_names(special_tokens: Iterable[str]) -> None:
    """Refuse special tokens that could not be told from other tokens in a file."""
    for special in special_tokens:
        text = "special token {!r:.99} can't be saved: it looks like bytes in printable characters"
        require(is_clear_name(special), text, special)


def is_clear_name(special: str) -> bool:
    """Tell if a special token, which a file has as text, can't be another token in printable characters.

    "Ġlow" could be the learned token " low", and "é" the byte E9. "<début>" is clear: with the byte E9 for
    é, it can't occur in UTF-8, and training learns only bytes that do. "¡hola!" is clear, too: no word has
    a letter and then "!".
    """
    token = bpe.to_token(special)
    if token == special.encode("utf-8"):
        return True
    if len(token) == 1:  # all single bytes are tokens
        return False
    inner = re.sub(rb"^[\x80-\xbf]{1,3}", b"", token)  # a token may begin inside a character
    try:
        text, _ = codecs.utf_8_decode(inner, "strict", False)  # False: it may end inside one
    except UnicodeDecodeError:
        return True
    return regex.search(bpe.WORD_END, text) is not None


def check_names_in_merges(pairs: Iterable[Sequence[str]], special_tokens: Iterable[str]) -> None:
    """Refuse merges of special tokens whose names aren't their bytes in printable characters, such as "<a b>".

    Other programs look for the token that such a merge makes under the joined names: "<a b>" and "x" would make
    "<a b>x", but the vocabulary has "<aĠb>x".
    """
    others = {special for special in special_tokens if bpe.to_printable(special.encode("utf-8")) != special}
    text = "can't be saved: the merge {} uses a special token, so it is never applied: leave it out"
    for pair in pairs if others else ():
        require(others.isdisjoint(pair), text, tuple(pair))


def without_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the entries of an object of JSON. Raises ValueError if two have the same key."""
    entries: dict[str, Any] = {}
    for key, value in pairs:
        require(key not in entries, "{!r:.60} is there twice, with {} and {}", key, entries.get(key), value)
        entries[key] = value
    return entries


def to_bytes(ids: Mapping[str, int], pairs: Sequence[Sequence[str]], tokens: Mapping[str, bytes]) -> bpe.Model:
    """Return (vocab, merges) for ids and merges of texts, which stand for these tokens."""
    vocab = {token_id: tokens[text] for text, token_id in ids.items()}
    require(len(vocab) == len(ids), "two tokens have the same id")
    try:
        return vocab, [(tokens[left], tokens[right]) for left, right in pairs]
    except KeyError as error:
        raise ValueError(f"a merge uses {error!s:.99}, which is not in the vocabulary") from None
    except ValueError:
        wrong = next((number, pair) for number, pair in enumerate(pairs) if len(pair) != 2)
        raise ValueError("merge {} (from 0) must be two tokens, not {!r:.99}".format(*wrong)) from None


def read_merges(text: str, vocab: Mapping[str, int] | None = None) -> list[list[str]]:
    """Return the pairs of printable tokens in a merges.txt; vocab, if given, must have them."""
    require(text.strip(), "the file is empty")
    lines = re.sub("^#version.*", "", text).split("\n")  # ^ is only the beginning of the text
    pairs = {number: line.split(" ") for number, line in enumerate(lines, 1) if line}
    made = set(map("".join, pairs.values()))
    for number, pair in pairs.items():
        if len(pair) != 2:
            raise ValueError(f"line {number} must be two tokens separated by one space: {' '.join(pair)!r}")
        if vocab is None:
            continue
        for token in (*pair, "".join(pair)):
            if token not in vocab:
                raise ValueError(f"line {number}: {token!r} is not in vocab.json")
            if token not in made and len(bpe.to_token(token)) > 1:
                hint = "these are not merges of bytes (CLIP's have </w> at the end of words, others @@ inside)"
                raise ValueError(f"line {number}: no merge makes {token!r}; {hint}")
    return list(pairs.values())
