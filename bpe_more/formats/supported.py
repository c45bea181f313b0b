"""What a tokenizer.json may have: it is compared with what save() would write for the same tokens and steps.

Each difference is an error, except in entries that change no id.

Gives: check_supported(), which compares; functions whose names begin with unsupported_, for what a comparison can't
find; overlapping(), for tokens that overlap others; FLAGS of added tokens.
Uses: kinds, transformers, patterns.expressions, patterns.steps.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import bpe
from bpe_more.formats import kinds, transformers
from bpe_more.patterns import steps
from bpe_more.patterns.expressions import differs_in_oniguruma
from bpe_more.patterns.steps import normalize_text

# An expression for the names (from differences()) of entries that change no id: trim_offsets only changes the places
# of tokens in text, and a decoder uses neither add_prefix_space nor use_regex.
HARMLESS = r".*\.trim_offsets|decoder\.(add_prefix_space|use_regex)"
FLAGS = ("normalized", "lstrip", "rstrip")  # of added tokens; a setting with this name lists the tokens that have it
MOST_LEVELS = 126  # of lists and dicts in an entry that save() writes back; tokenizers opens no deeper file


def check_supported(content: dict[str, Any], entries: dict[str, Any], expected: dict[str, Any],
                    other_reasons: Sequence[str]) -> None:
    """Raise ValueError if a tokenizer.json has values that could change ids, or if there are other reasons.

    The message is one line of at most 300 characters: what the file is, if it isn't byte-level BPE, then as many
    reasons as fit, and how many more there are.

    content        the file
    entries        {name: value} of entries that a file may spell in several ways, spelled as save() does; they are
                   compared instead of those in content
    expected       what save() would write
    other_reasons  reasons that a comparison can't find
    """
    found = differences(expected, {**content, **entries})
    different = {name: value for name, value in found if not re.fullmatch(HARMLESS, name)}
    values = {name: value for name, value in different.items() if value is not None}
    # None is what only save() would write. Then the whole entry of the file is shown, such as "pre_tokenizer": null.
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
    if reasons:
        raise ValueError(in_one_line(kinds.kind_of(content), reasons, len(values)))


def in_one_line(kind: str, reasons: list[str], n_values: int) -> str:
    """Return the message: the kind of the file, and reasons, the first n_values of which are values of the file."""
    lengths = list(itertools.accumulate(len(reason) + 2 for reason in reasons))
    # The rest of 300 characters is for " are not supported", and "; and 12 more" if not all fit.
    most = (280 if lengths[-1] + len(kind) <= 280 else 260) - len(kind)
    shown = reasons[: max(1, sum(length <= most for length in lengths))]
    n_values = min(len(shown), n_values)
    if n_values:
        shown[n_values - 1] += " is not supported" if n_values == 1 else " are not supported"
    if len(shown) < len(reasons):
        shown.append(f"and {len(reasons) - len(shown):,} more")
    return kind + "; ".join(shown)


def differences(ours: Any, theirs: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) for each value in a tree of JSON that differs from ours.

    The name of 1 in {"a": {"b": [1]}} is a.b.0. Null, false, 0, "" and an empty list or dict equal a missing entry.
    For a value that only our tree has, yield (name, None).
    """
    pairs = [("", ours, theirs)]  # not a recursion, because a file may be nested deeper than Python's stack
    while pairs:
        name, our_tree, their_tree = pairs.pop()
        if name and (our_tree or None) == (their_tree or None):
            continue
        # Names of 20,000 levels would take memory in proportion to the square; errors show 99 characters.
        if not isinstance(their_tree, (dict, list)) or len(name) > 98:
            yield name, their_tree or None
            continue
        if our_tree and not isinstance(our_tree, (dict, list)):
            yield name, None
        our_values, their_values = transformers.entries_of(our_tree), transformers.entries_of(their_tree)
        for key in reversed({**our_values, **their_values}):
            full_name = f"{name}.{key!s:.99}" if name else f"{key!s:.99}"
            pairs.append((full_name, our_values.get(key), their_values.get(key)))


def unsupported_tokens(special_tokens: Iterable[str], settings: Mapping[str, Any], form: Any) -> Iterator[str]:
    """Yield a reason for each added token that the package tokenizers could find in other places than we do."""
    normalized, lstrip, rstrip = (settings.get(flag, ()) for flag in FLAGS)
    # The package tokenizers first searches the whole text for tokens that are not normalized, then for the others. With
    # a normal form, lstrip or rstrip, so do we. Otherwise, we take the token that begins first. In "<a><b>", results
    # differ if "<a>" is normalized and "a><b" is not: it finds "a><b", we find "<a>". If only "<b>" is normalized, both
    # find "a><b". So only normalized tokens that contain another one, or end with its beginning, matter.
    in_two_searches = form or lstrip or rstrip
    others = set(special_tokens).difference(normalized) if normalized and not in_two_searches else ()
    for token in overlapping(normalized, others):
        yield f"the added token {token!r:.99} overlaps another, and only one is normalized"
    for token in normalized:
        if token != normalize_text(form, token):
            yield f"the normalized added token {token!r:.99} is not in {form}"
    # A whitespace token with lstrip may follow a token with rstrip, which has taken this whitespace already: then the
    # package tokenizers drops the token, or panics.
    for token in lstrip if rstrip else ():
        if token.isspace():
            yield f"the added token {token!r:.99} is whitespace and has lstrip, and another has rstrip"


def overlapping(tokens: Sequence[str], others: Iterable[str]) -> Iterator[str]:
    """Yield each token that contains one of the others, or ends with the beginning of one.

    A token that is itself the beginning of another doesn't count: where both begin, the longer one is found.

    This is the algorithm of Aho and Corasick (1975), since comparing all pairs takes too long. A state is a prefix of
    some of the others; state 0 is the empty prefix.
    """
    following: dict[tuple[int, str], int] = {}  # (state, next character) -> state
    lengths = [0]  # by state: of its prefix
    complete = set()  # the states that end with one of the others
    for other in others if tokens else ():
        state = 0
        for character in other:
            if (state, character) not in following:
                following[state, character] = len(lengths)
                lengths.append(lengths[state] + 1)
            state = following[state, character]
        complete.add(state)
    shorter = [0] * len(lengths)  # by state: its longest proper suffix that is a state (the failure link)

    def after(state: int, character: str) -> int:
        while state and (state, character) not in following:
            state = shorter[state]
        return following.get((state, character), 0)

    for (state, character), new in sorted(following.items(), key=lambda item: lengths[item[1]]):  # the shortest first
        shorter[new] = after(shorter[state], character) if state else 0
        if shorter[new] in complete:
            complete.add(new)
    for token in tokens:
        state, found = 0, False
        for character in token:
            state = after(state, character)
            found |= state in complete
        end = shorter[state] if lengths[state] == len(token) else state
        if found or end:
            yield token


def unsupported_templates(content: dict[str, Any]) -> Iterator[str]:
    """Yield a reason for each template without text A, or with it twice: tokenizers applies templates in any case."""
    processor = content.get("post_processor") or {}
    for step in processor.get("processors", [processor]):
        template = step.get("single", [{"Sequence": {"id": "A"}}])
        texts = [part["Sequence"]["id"] for part in template if "SpecialToken" not in part]
        if texts != ["A"]:
            yield f"a template of {json.dumps(template):.99} is not supported: text A must be in it once"


def unsupported_bytes(content: dict[str, Any], unknown: Sequence[str]) -> Iterator[str]:
    """Yield a reason if bytes have no token, and would become unk_token; `unknown` has their characters."""
    if unknown and not kinds.kind_of(content):  # a file that isn't byte-level BPE is refused for that
        unk_token, byte = json.dumps(content["model"]["unk_token"]), bpe.to_token(unknown[0])
        text = f"model.unk_token = {unk_token:.60} is for bytes without a token ({len(unknown)}, such as {byte!r}): "
        yield f'{text}set it to null, so that encode() refuses them, or add them to "vocab"'


def unsupported_special_tokens(special_tokens: bpe.Strings) -> Iterator[str]:
    """Yield the error of check_special_tokens(), if there is one."""
    try:
        steps.check_special_tokens(special_tokens)
    except ValueError as error:  # such as "\n", of one byte
        yield f"{error!s:.200}"


def unsupported_rest(rest: Mapping[str, Any]) -> Iterator[str]:
    """Yield a reason for each entry that save() could not write back so that other programs read it."""
    for name, value in rest.items():
        levels = [value]
        for _ in range(MOST_LEVELS):
            levels = [each for tree in levels for each in transformers.entries_of(tree).values()]
        if any(isinstance(each, (dict, list)) for each in levels):
            yield f"{name} is nested more than {MOST_LEVELS} levels deep"
        elif half := re.search("(?s)[\ud800-\udfff].*", bpe.to_json(value)):
            yield f"{name} has half of a surrogate pair: {half[0]!r:.60}"
