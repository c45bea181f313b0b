"""The files of a model, written: tokenizer.json, vocab.json, merges.txt. transformers.py makes the settings.

Gives: save_model(), model_files(), check_special_names(); and for huggingface.py, which compares a file with what
save() would write: tokenizer_json(), split_step(), ids_by_position() and is_also_bytes().
Uses: errors, gpt2, supported, transformers, outputs, patterns.steps.
"""

from __future__ import annotations

import codecs
import collections
import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import regex

import bpe
from bpe_more import outputs
from bpe_more.errors import require
from bpe_more.formats import supported, transformers
from bpe_more.formats.gpt2 import MergeIds
from bpe_more.patterns.steps import ONLY_MATCHES, Pattern, steps_of


def model_files(folder: bpe.FilePath) -> list[str]:
    """Return the paths of the files of a model, in the order in which save() replaces them."""
    for_transformers = [*transformers.TRANSFORMERS_FILES, "chat_template.jinja"]
    names = ["tokenizer.json", *for_transformers, "vocab.json", "merges.txt"]
    return [os.path.join(folder, name) for name in names]


def save_model(vocab: Mapping[int, bytes], merges: MergeIds, special_ids: Mapping[str, int], pattern: Pattern,
               folder: bpe.FilePath, settings: Mapping[str, Any], roles: Mapping[str, str | None],
               source: bpe.FilePath | None = None) -> str:
    """Write the files of a model; return a note about roles in the folder's files that this model doesn't have, or "".

    settings    {name: value} of the arguments of Tokenizer that only models of other programs have (see Tokenizer);
                two have ids: "unreachable", {id: name}, of tokens that are in no text, and "shared",
                {id: special token}, of special tokens that are ordinary tokens, too
    roles       {"eos_token": special token, "chat_template": ..., ...} for transformers; None means not given
    source      the folder whose settings for transformers are kept; by default `folder`
    """
    unreachable = {name: token_id for token_id, name in settings.get("unreachable", {}).items()}
    shared = set(settings.get("shared", {}).values())  # their names are those of ordinary tokens
    own_ids = {name: token_id for name, token_id in special_ids.items() if name not in shared}
    ids, pairs = printable(vocab, merges, {**own_ids, **unreachable}, pattern)
    ids = ids_in_vocab(ids, pairs, own_ids, special_ids, pattern, settings.get("ignore_merges"))
    form, _ = steps_of(pattern)  # "NFC", "NFKC" or ""
    reasons = list(supported.unsupported_tokens(special_ids, settings, form))
    require(not reasons, "can't be saved, since other programs would give other ids: {}", "; ".join(reasons[:2]))
    source = folder if source is None else source
    for_transformers, note = transformers.transformers_files(source, special_ids, roles, ids)
    # The vocabulary is in two files, but is converted once, since that takes the longest. In tokenizer.json, the text
    # of vocab.json without its last newline replaces the {} of "vocab": {}. Only merges follow: the last match counts.
    vocab_json = bpe.to_json(ids)
    content = bpe.to_json(tokenizer_json({}, pairs, special_ids, pattern, settings))
    before, _, merges_json = content.rpartition('"vocab": {}')
    content = f'{before}"vocab": {vocab_json[:-1]}{merges_json}'
    lines = "\n".join(["#version: 0.2", *map(" ".join, pairs), ""])
    files = {"tokenizer.json": content, **for_transformers, "vocab.json": vocab_json, "merges.txt": lines}
    outputs.write_files(folder, files)
    return note


def printable(vocab: Mapping[int, bytes], merges: MergeIds, special_ids: Mapping[str, int],
              pattern: Pattern) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return {name: id} for the names of tokens in files, and the merges as pairs of names.

    special_ids has the unreachable tokens, too, but no shared ones. Raises ValueError if two tokens have the same name.
    """
    decode, characters = codecs.charmap_decode, bpe.CHARACTERS  # without a call of bpe.to_printable() for each token
    names = {token_id: decode(vocab[token_id], "strict", characters)[0] for token_id in sorted(vocab)}
    names |= {token_id: special for special, token_id in special_ids.items()}
    ids = dict(zip(names.values(), names))
    if len(ids) < len(names):
        check_special_names(special_ids, pattern)
        [(same, _)] = collections.Counter(names.values()).most_common(1)
        raise ValueError(f"can't be saved: special token {same!r:.99} is also another token in printable characters")
    lefts, rights, _ = merges.columns()
    # names are in the order of ids: without gaps, a list has faster lookups
    name_of: Any = [*names.values()] if max(names, default=-1) + 1 == len(names) else names
    pairs = list(zip(map(name_of.__getitem__, lefts), map(name_of.__getitem__, rights)))
    # Other programs look for the token that a merge makes under the joined names: "<a b>" and "x" would make "<a b>x",
    # but the vocabulary has "<aĠb>x".
    others = {special for special in special_ids if bpe.to_printable(special.encode("utf-8")) != special}
    text = "can't be saved: the merge {} uses a special token, so it is never applied: leave it out"
    for pair in pairs if others else ():
        require(others.isdisjoint(pair), text, pair)
    return ids, pairs


def is_also_bytes(special: str, ignore_merges: Any) -> bool:
    """Tell if a special token is also the printable name of other bytes that other programs look up.

    They look up single bytes: "é" is the name of the byte E9. With ignore_merges, they look up whole words, too:
    "Ġlow" is the name of the word " low". But "<é>" is not the name of a word, since its byte E9 isn't UTF-8.
    """
    token = bpe.to_token(special)
    is_word = bool(ignore_merges) and token.decode("utf-8", "ignore").encode() == token
    return token != special.encode("utf-8") and (len(token) == 1 or is_word)


def ids_in_vocab(ids: dict[str, int], pairs: Iterable[Sequence[str]], own_ids: Mapping[str, int],
                 special_ids: Mapping[str, int], pattern: Pattern, ignore_merges: Any) -> dict[str, int]:
    """Return the ids for "vocab": usually all; otherwise, some special tokens are only in "added_tokens".

    own_ids are the special ids without those of special tokens that are ordinary tokens, too.

    A special token is unclear if its text is also the printable name of other bytes: DeepSeek-Coder has the special
    token "õ", and no token for the byte F5, whose name is "õ", so in "vocab" it would be read as that byte.

    The package tokenizers numbers tokens outside "vocab" by their position in "added_tokens", and looks up the parts
    of merges in "vocab". So two sets are tried: all special tokens whose id is at least the least id of an unclear one,
    and only the unclear ones. The first set that no merge uses, and without which each token keeps its id, is left out.
    """
    unclear = {special for special in own_ids if not is_clear_name(special, pattern)}
    if not unclear:
        return ids
    in_merges = set(itertools.chain.from_iterable(pairs))
    first = min(map(own_ids.__getitem__, unclear))
    for left_out in ({special for special in own_ids if own_ids[special] >= first}, unclear):
        in_vocab = {name: token_id for name, token_id in ids.items() if name not in left_out}
        given = [ids_by_position(in_vocab, special_ids, before_0_22) for before_0_22 in (False, True)]
        if left_out.isdisjoint(in_merges) and given == [special_ids, special_ids]:
            return in_vocab
    # printable() has refused special tokens with the name of another token, so the unclear ones here are names of
    # bytes that have no token. But one that is_also_bytes() would be found where text has these bytes: it is refused.
    check_special_names((name for name in unclear if is_also_bytes(name, ignore_merges)), pattern)
    return ids


def ids_by_position(vocab: Mapping[str, int], special_tokens: Iterable[str],
                    before_0_22: bool = False) -> dict[str, int]:
    """Return the ids that the package tokenizers gives special tokens.

    Those outside vocab are numbered from len(vocab) on. Before version 0.22, the numbers went on after the greatest id
    that a special token before had: if "<a>" has the id 300 in vocab, "<b>", which isn't there, had the id 301.
    """
    new_id, special_ids = len(vocab), {}
    for text in special_tokens:
        special_ids[text] = token_id = vocab.get(text, new_id)
        if text not in vocab or (before_0_22 and token_id >= new_id):
            new_id = token_id + 1
    return special_ids


def tokenizer_json(ids: Mapping[str, int], pairs: Sequence[Any], special_ids: Mapping[str, int], pattern: Pattern,
                   settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of tokenizer.json, with the settings that only models of other programs have."""
    content = bpe.tokenizer_json(ids, pairs, special_ids, "gpt2")  # its pattern is replaced below, by all steps
    kept, normalized, lstrip, rstrip = (set(settings.get(name, ())) for name in ("kept", *supported.FLAGS))
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
    # other programs read "gpt2" as it was published; bpe.PATTERNS has a faster spelling
    expression = bpe.PUBLISHED_GPT2 if step == "gpt2" else bpe.PATTERNS.get(step, step.removeprefix(ONLY_MATCHES))
    invert = step.startswith(ONLY_MATCHES)
    behavior = "Removed" if invert else "Isolated"
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": invert}


def check_special_names(special_tokens: Iterable[str], pattern: Pattern) -> None:
    """Refuse special tokens that could not be told from other tokens in a file."""
    for special in special_tokens:
        text = "special token {!r:.99} can't be saved: it looks like bytes in printable characters"
        require(is_clear_name(special, pattern), text, special)


def is_clear_name(special: str, pattern: Pattern) -> bool:
    """Tell if a special token, which files have as text, can't be mistaken for the printable name of a token.

    "Ġlow" could be the name of the learned token " low", and "é" that of the byte E9. "<début>" is clear: as a name,
    it has the byte E9 before "b", which never occurs in UTF-8, so training can't learn it. With a named pattern,
    "¡hola!" is clear, too: no word has a letter and then "!".
    """
    token = bpe.to_token(special)
    if token == special.encode("utf-8"):
        return True
    if len(token) == 1:  # mostly, all single bytes are tokens
        return False
    inner = re.sub(rb"^[\x80-\xbf]{1,3}", b"", token)  # a token may begin inside a character
    try:
        text, _ = codecs.utf_8_decode(inner, "strict", False)  # False: it may end inside one
    except UnicodeDecodeError:
        return True
    _, steps = steps_of(pattern)
    return not bpe.PATTERNS.keys().isdisjoint(steps) and regex.search(bpe.WORD_END, text) is not None
