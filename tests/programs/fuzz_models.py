"""Load random tokenizer.json files: `PYTHONPATH=.:tests python tests/programs/fuzz_models.py 4000 [SEED]`; `60s` is a bound in seconds.

Each file is a valid one in which entries were dropped, changed, moved from other files, or made huge or nested. Either
Tokenizer.load gives the ids of the package tokenizers, and so does what save() writes then, or it raises ValueError, in
one line of at most 300 characters after the path, within two seconds. Expressions are swapped, not changed: tests/engine/test_patterns.py
is about their dialects.
"""

import copy
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import tokenizers

from bounds import bounded, choose_seed
from bpe_more.tokenizer import Tokenizer
from foreign import KINDS, foreign

HUGE: list[Any] = [
    "x" * 20_000, ["a"] * 20_000, {"x" * 5000: [1] * 5000}, {f"k{n}": n for n in range(5000)}, 10**40, "é" * 5000,
    [[[[[[n]]]]] for n in range(1000)], ["ab", "c", "d"] * 3000,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 1.5, "", "a", "Ġ", "x y", "\ud800", "\n", "\ufffd", [], {}, [None], {"type": "NFC"}, {"type": "x"},
    {"String": " "}, {"String": "a"}, {"Regex": r"\s+"}, {"type": "ByteLevel"}, "Isolated", "Removed", "MergedWithNext", ["a", "b"],
]  # fmt: skip
TEXTS = [
    "The ferry was late again, <|begin|>and  the 12345 <|end|> of it.\n\n", "\u00e9t\u00e9s e\u0301te\u0301s 字字字 1234567", "zzz zz ferrys",
    "<think> <EOT>a<META>   <|im_end|>", "カタカナ ABC def's I'LL", "\u3000a\t\tb \r\n", "x" * 300, "", "<0><1><22>\u00e9\u0301<",
    "a \n<0>\u3000 <1>\x1c <22>  <0> <|begin|> x \u00e9  e\n\n<0>  ", "\u212b <0>  <22> <1>\u00b4",
]  # fmt: skip


def places_in(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all entries, but of a vocabulary or a list of merges only some."""
    keys = list(tree) if isinstance(tree, dict) else list(range(len(tree))) if isinstance(tree, list) else []
    keys = random.Random(len(keys)).sample(keys, 8) if len(keys) > 50 else keys
    return [place for key in keys for place in [(*path, key), *places_in(tree[key], (*path, key))]]


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def mutate(rng: random.Random, content: dict[str, Any], others: list[dict[str, Any]]) -> str:
    """Change a file in one way; returns the name of the way."""
    places = places_in(content)
    if not places:
        return "nothing is left"
    *parent, key = rng.choice(places)
    holder = at(content, tuple(parent))
    way = rng.choice(["drop", "value", "value", "huge", "move", "move", "nest", "copy", "new", "number", "tokens", "text", "swap"])
    if way == "drop":
        del holder[key]
    elif way in ("value", "huge"):
        holder[key] = copy.deepcopy(rng.choice(VALUES if way == "value" else HUGE))
    elif way == "move":
        other = rng.choice(others)
        name = rng.choice([name for name in other if name != "model"])
        content[name] = copy.deepcopy(other[name])
    elif way == "nest":
        value = holder[key]
        is_deep = any(len(place) > 100 for place in places)  # twice 400 are too deep for this script
        for _ in range(rng.choice([1, 2] if is_deep else [1, 2, 400])):
            value = rng.choice([[value], {"a": value}])
        holder[key] = value
    elif way == "copy" and isinstance(holder, list):
        holder.insert(rng.randint(0, len(holder)), copy.deepcopy(holder[key]))
    elif way == "new" and isinstance(holder, dict):
        holder[rng.choice(["x", "type", "special", "lstrip", "unk_token", "y" * 20_000])] = copy.deepcopy(rng.choice(VALUES))
    elif way == "number" and isinstance(holder[key], int):
        holder[key] += rng.choice([-1, 1, 1000])
    elif way == "tokens" and isinstance(content.get("added_tokens"), list):
        added, model = content["added_tokens"], content.get("model")
        size = len(model["vocab"]) if isinstance(model, dict) and isinstance(model.get("vocab"), dict) else 0
        names = rng.choice([["<0>", "<1>"], [f"<{n}>" for n in range(3000)], ["ab" * 50_000], ["e", "Ġ", "é"], ["<|end|><", "d|>"], ["õ", "the"], ["<0>", " <1", "<22> "]])
        flags = {name: rng.random() < chance for name, chance in [
            ("single_word", 0.1), ("lstrip", 0.4), ("rstrip", 0.4), ("normalized", 0.4), ("special", 0.5)]}  # fmt: skip
        start = size + len(added)
        added += [{"id": start + n, "content": name, **flags} for n, name in enumerate(names)]
    elif way == "text" and isinstance(holder[key], str) and "Regex" not in (key, *parent):
        place = rng.randint(0, len(holder[key]))
        holder[key] = holder[key][:place] + rng.choice(["", "a", "Ġ", " ", "é"]) + holder[key][place + rng.randint(0, 1) :]
    elif way == "swap":
        *parent, key_2 = rng.choice(places)
        holder_2 = at(content, tuple(parent))
        holder[key], holder_2[key_2] = copy.deepcopy(holder_2[key_2]), copy.deepcopy(holder[key])
    return way


def ids_of(encode: Any) -> list[Any]:
    return [encode(text) for text in TEXTS]


def check(path: Path, folder: Path) -> str:
    """Load a file with both, and compare; returns what happened."""
    start = time.process_time()
    message = ""
    try:
        ours = Tokenizer.load(path)
    except ValueError as error:
        message = str(error).removeprefix(f"{path}: ")
    seconds = time.process_time() - start
    assert seconds < 2, f"{seconds:.1f} s to load"
    if message:
        assert len(message) <= 300 and "\n" not in message, message
        return "refused"
    try:
        theirs = tokenizers.Tokenizer.from_file(str(path))
    except Exception:  # pyo3 has no other name for its errors
        return "loaded here only"
    try:
        ids = ids_of(ours.encode)
    except ValueError as error:
        assert "no token for the byte" in str(error), error
        return "a byte without a token"
    assert ids == ids_of(lambda text: theirs.encode(text, add_special_tokens=False).ids), "other ids"
    ours.save(folder)
    assert ids_of(Tokenizer.load(folder).encode) == ids, "other ids after a save"
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert ids_of(lambda text: theirs.encode(text, add_special_tokens=False).ids) == ids, "other ids elsewhere after a save"
    return "the same ids"


def main() -> None:
    seed = choose_seed(sys.argv[2:])
    warnings.simplefilter("ignore")
    bases = [json.loads(foreign(kind)) for kind in KINDS]
    seen: Counter[str] = Counter()
    n = wrong = 0
    with tempfile.TemporaryDirectory() as name:
        path, folder = Path(name, "tokenizer.json"), Path(name, "saved")
        for case in bounded(sys.argv[1]):
            n += 1
            rng = random.Random(seed + case)
            content = copy.deepcopy(rng.choice(bases))
            ways = [mutate(rng, content, bases) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
            path.write_text(json.dumps(content))
            try:
                seen[check(path, folder)] += 1
            except Exception as error:
                wrong += 1
                print(f"seed {seed + case}, {', '.join(ways)}: {type(error).__name__}: {error!s:.300}", flush=True)
    print(f"{n:,} files from seed {seed}: {wrong} wrong; " + ", ".join(f"{count:,} {what}" for what, count in seen.most_common()))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
