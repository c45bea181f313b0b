"""Open docs/index.html in headless Chromium, and compare what it computes and displays with bpe.py.

    python tests/page/browser.py [SEED]

The browser is driven through a pipe, with the DevTools protocol: texts are typed into the page, buttons are clicked,
keys are pressed, and what is displayed is read. The texts are the presets and random ones; the seed is printed.
Requires regex, and Debian's packages chromium and fonts-noto-cjk (without a font, widths would be those of boxes).
"""

from __future__ import annotations

import collections
import decimal
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unicodedata
import urllib.parse
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import bpe
from bpe import plural
from bpe_more import explain, training
from bpe_more.patterns import steps
from bpe_more.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "index.html"
MOST_LINES, MOST_COLUMNS = 800, 120
RANDOM_TEXTS, ROUNDS, SPLIT_TEXTS = 35, 20, 500
PRESETS = ["words", "tie", "aaaa", "special", "chinese", "emoji", "code", "abcd"]
PATTERNS = {name: name for name in bpe.PATTERNS} | {"spaces": r"\S+|\s", "none": r"(?s:.+)"}
MARKS = {"\n": "\\n", " ": "␣"}  # of --explain
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
OPTIONS += " --disable-component-update --disable-sync --remote-debugging-pipe"
CORPUS = (ROOT / "fixtures" / "corpus.txt").read_text(encoding="utf-8")
BIG = 200_000  # bytes of text that the page takes; the corpus twice has more

# Control, Next and so on are used as a reader would use them. A change of the pattern starts the training again.
SCRIPT = """
const hex = (tokens) => tokens.map(hexOf);
const texts = (parent, selector) => Array.from(parent.querySelectorAll(selector), (element) => element.textContent);
const boxes = (word) => ({
  tokens: Array.from(word.querySelectorAll(".token"), (box) => [box.classList[1], texts(box, ".cell")]),
  above: texts(word, ".above"), ranks: texts(word, ".rank"),
});
const displayed = () => ({
  state: $("state").textContent, size: $("size").textContent, reason: $("reason").textContent,
  vocabulary: $("vocabulary").textContent,
  words: Array.from($("words").querySelectorAll(".line:has(.word)"),
    (line) => [line.firstChild.textContent, boxes(line.lastChild)]),
  specials: texts($("words"), ".line:not(:has(.word))"),
  pairs: Array.from($("pairs").rows, (row) => [row.className, ...texts(row, "td").slice(0, 2)]).slice(1),
  morePairs: $("more-pairs").textContent,
});
function type(entries) {
  for (const [id, value] of Object.entries(entries)) $(id).value = value;
  $("pattern").dispatchEvent(new Event("input"));
}
function collect() {
  const merges = trainByDefinition(wordsOf($("text").value, $("pattern").value, specials), 1000);
  const found = {
    text: $("text").value, pattern: $("pattern").value, special: specials, encode: $("encode").value,
    merges: merges.map(({ left, right, count }) => [hexOf(left), hexOf(right), count]), rounds: [displayed()],
  };
  while ($("next").ariaDisabled === "false" && found.rounds.length <= ROUNDS) {
    $("next").click();
    found.rounds.push(displayed());
  }
  found.list = Array.from($("merges").rows, (row) => texts(row, "td")).slice(1);
  found.colored = Array.from($("colored").children, (piece) => [piece.children[0].textContent, piece.lastChild.data]);
  found.shown = $("shown").textContent;
  found.size = $("encoded-size").textContent;
  found.encoded = Array.from($("choose").children, (_, i) => {
    $("choose").children[i].click();
    const steps = Array.from($("steps").children, (row) => [row.firstChild.data, boxes(row.lastChild)]);
    return { steps, result: $("result").firstChild.data, longest: $("result").lastChild.data };
  });
  $("back").click();
  $("guess").click();
  found.guess = [$("reason").textContent, texts($("pairs"), "button"), texts($("pairs"), "td")];
  if (found.guess[1].length) $("pairs").querySelector("button").click();
  found.answer = $("reason").textContent;
  $("guess").click();
  return found;
}
function collectAll(presets, cases) {
  const now = performance.now;
  performance.now = () => 0; // a busy machine may need more than 40 ms for a few rounds
  const collected = presets.map((name) => {
    show(filled(name));
    return collect();
  });
  for (const entries of cases) {
    type({ ids: "", mine: "", ...entries });
    collected.push(collect());
  }
  performance.now = now;
  return collected;
}
"""


class Browser:
    """Chromium with one tab, driven by the DevTools protocol: JSON through pipes, which are its files 3 and 4."""

    def __init__(self, folder: str) -> None:
        chromium = shutil.which("chromium")
        if not chromium:
            fail("chromium is not installed; run: apt-get install chromium fonts-noto-cjk")
        command = [chromium, *OPTIONS.split(), f"--user-data-dir={folder}/user"]
        shell = ["sh", "-c", 'exec "$@" 3<&0 4>&1 0</dev/null 1>&2', "sh"]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen([*shell, *command], **streams)
        self.numbers, self.unread = itertools.count(1), b""
        self.events: list[dict[str, Any]] = []
        self.session: dict[str, str] = {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        self.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its answer; events that arrive before it are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params} | self.session
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self.read()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            fail(f"{method}: {answer['error']}")
        return answer["result"]

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        while b"\0" not in self.unread:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                fail("Chromium ended")
            self.unread += data
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def js(self, code: str) -> Any:
        """Run JavaScript in the page, and return its value."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            fail(f"{answer['exceptionDetails']['exception'].get('description')}\n  in {code[:300]}")
        return answer["result"].get("value")

    def expect(self, what: str, code: str, expected: object) -> None:
        """Run JavaScript, and compare its value."""
        equal(what, self.js(code), expected)

    def type(self, **entries: str) -> None:
        """Fill in fields, and train again."""
        self.js(f"type({json.dumps(entries)})")

    def enter(self, field: str, text: str) -> None:
        """Fill in one field that starts no training."""
        self.js(f"$('{field}').value = {json.dumps(text)}; $('{field}').dispatchEvent(new Event('input'))")

    def open(self, fragment: str, scripts: bool = True) -> None:
        """Load the page anew with this address, and wait until it has trained."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{PAGE.as_uri()}#{fragment}")
        self.wait("document.readyState === 'complete' && typeof readAddress === 'function' && $('busy').hidden")
        if scripts:
            self.js(SCRIPT.replace("ROUNDS", str(ROUNDS)).replace("const ", "var "))

    def wait(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.js(condition):
            if time.monotonic() > end:
                fail(f"never true: {condition}")
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Press keys; "+Tab" is Tab with Shift."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39}
        for key in keys:
            name = key.removeprefix("+")
            press = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name], "modifiers": 8 * (key != name)}
            text = {"Enter": "\r", " ": " "}.get(name)
            self.call("Input.dispatchKeyEvent", type="keyDown", **press, **({"text": text} if text else {}))
            self.call("Input.dispatchKeyEvent", type="keyUp", **press)

    def resize(self, width: int, height: int = 900, media: str = "", **features: str) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        pairs = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=pairs)


def random_cases(seed: int) -> list[dict[str, str]]:
    """Return random texts with few distinct characters, so that there are ties, overlaps and divided characters."""
    rng, cases = random.Random(seed), []
    alphabets = ["ab", "aab b", "abc  '\n", "天气 天", "今天天气很好，", "é😀👍👩\u200d", "a1²Ⅷ-_ '.sll"]
    alphabets.append("a\ufeff\x85\xa0 \x1c\u3000b\t\n")
    for number in range(RANDOM_TEXTS):
        alphabet, pattern = rng.choice(alphabets), list(PATTERNS)[number % len(PATTERNS)]
        longest = 22 if pattern == "none" else 60  # the page draws at most 90 bytes of a word
        text, encode = ("".join(rng.choices(alphabet, k=rng.randint(1, most))) for most in (longest, 22))
        if max(len(word.encode()) for word in steps.find_words(text, PATTERNS[pattern])) > 90:
            text = text[:22]
        specials = rng.sample(["ab", "a b", "aba", "天天", "天", "😀"], rng.randint(1, 4)) if number % 2 else []
        cases.append({"text": text, "pattern": pattern, "special": "\n".join(specials), "encode": encode})
    return cases


def spell(token: bytes) -> str:
    return explain.in_line([token])


def in_sentence(token: bytes) -> str:
    shown = token[:60].hex(" ")  # no more bytes of a token are in the sentence
    rest = "…" if len(token) > 60 else ""
    return spell(token) if spell(token) == f"[{shown}]{rest}" else f"{shown}{rest} “{spell(token)}”"


def plus(pair: bpe.Pair) -> str:
    return " + ".join(explain.readable(pair, MARKS))


def times(count: int) -> str:
    return plural(count, "time")


def ratio(size: int, tokens: int) -> str:
    """Return bytes per token as JavaScript rounds them: 3.125 to 3.13."""
    return str(decimal.Decimal(size / tokens).quantize(decimal.Decimal("0.01"), decimal.ROUND_HALF_UP))


def boxes(word: bpe.Word, new: bytes = b"", ranks: dict[bpe.Pair, int] | None = None) -> dict[str, object]:
    """Return what a word must look like: its tokens with the cells of each, and the characters above them."""
    ends, tokens, above, start = [], [], [], 0
    for character in b"".join(word).decode("utf-8", "surrogateescape"):
        ends.append((start, start + len(character.encode("utf-8", "surrogateescape")), character))
        start = ends[-1][1]
    start = 0
    for token in word:
        end, cells = start + len(token), []
        for first, last, character in ends:
            if start <= first and last <= end and not "\udc80" <= character <= "\udcff":
                cells.append(spell(character.encode()))
            else:
                cells += [b"".join(word)[at : at + 1].hex() for at in range(max(first, start), min(last, end))]
            if first < end < last and first >= start:
                above.append(spell(character.encode()))
        tokens.append(["new" if token == new else "old" if len(token) > 1 else "byte", cells])
        start = end
    between = [] if ranks is None else [str(ranks.get(pair, "·")) for pair in zip(word, word[1:])]
    return {"tokens": tokens, "above": above, "ranks": between}


def reason(words: dict[bpe.Word, int]) -> str:
    """Return the sentence that must explain the next merge."""
    if not words:  # nothing, or special tokens alone
        return "Type some text first."
    counts = bpe.count_pairs(words)
    if not counts:
        return "No pair is left, because every word is a single token. Training ends."
    first, *others = sorted(counts, key=lambda pair: (counts[pair], pair), reverse=True)
    ties = [pair for pair in others if counts[pair] == counts[first]]
    same = 1 + sum(pair[0] == first[0] for pair in ties)
    sentence = f"Next: {plus(first)}, because "
    if not ties:
        sentence += f"it is the most frequent pair: {times(counts[first])}"
    else:
        sentence += f"{1 + len(ties)} pairs tie at {counts[first]:,}, and "
        side = 0 if same == 1 else 1
        if side == 0:
            sentence += "the greater left token wins"
        else:
            sentence += f"the greatest left token is in {same} of them, so the greater right token wins"
        sentence += f": {in_sentence(first[side])} > {in_sentence(ties[0][side])}"
    replaced = sum((len(word) - len(bpe.merge_pair(word, first))) * count for word, count in words.items())
    return sentence + f"; overlapping, so {replaced:,} are replaced" * (replaced < counts[first])


def longest_match(data: bytes, known: set[bytes]) -> list[bytes]:
    tokens = []
    while data:
        tokens.append(next(data[:n] for n in range(len(data), 0, -1) if n == 1 or data[:n] in known))
        data = data[len(tokens[-1]) :]
    return tokens


def fail(text: str) -> NoReturn:
    raise SystemExit(f"browser.py: {text}")


def equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        fail(f"{what} differs\n  page:   {found!r}\n  bpe.py: {expected!r}")


def in_hex(merges: list[bpe.Pair]) -> list[list[str]]:
    return [[left.hex(" "), right.hex(" ")] for left, right in merges]


def split(text: str, pattern: str, specials: list[str]) -> list[bpe.Word]:
    """Return the words between special tokens."""
    pieces = bpe.special_token_finder(tuple(specials)).split(text)[::2]
    words = (word for piece in pieces for word in steps.find_words(piece, PATTERNS[pattern]))
    return [bpe.single_bytes(word.encode()) for word in words]


def check_training(found: dict, name: str) -> list[bpe.Pair]:
    """Compare every displayed round; return the merges that were displayed."""
    specials = found["special"]
    words = dict(collections.Counter(split(found["text"], found["pattern"], specials)))
    merges = bpe.train_by_definition(words, 1000)
    equal(f"{name}: merges", [row[:2] for row in found["merges"]], in_hex(merges))
    shown = len(found["rounds"]) - 1
    equal(f"{name}: rounds that can be reached", shown, min(len(merges), ROUNDS))
    first_id = 256 + len(specials)
    finder = bpe.special_token_finder(tuple(specials))
    special_lines = [
        f"{finder.findall(found['text']).count(token)} ×{token}special token, id {256 + i}"
        for i, token in enumerate(specials)
    ]
    size, rows, state = sum(len(word) * count for word, count in words.items()), [], ": all bytes"
    for number, page in enumerate(found["rounds"]):
        where, new = f"{name}, round {number}", b"".join(merges[number - 1]) if number else b""
        equal(f"{where}: state", page["state"], f"Round {number} of {len(merges)}{state}")
        equal(f"{where}: reason", page["reason"], reason(words))
        equal(f"{where}: words", page["words"], [[f"{count} ×", boxes(word, new)] for word, count in words.items()])
        equal(f"{where}: special tokens", page["specials"], special_lines)
        parts = f"256 bytes + {plural(len(specials), 'special token')} + {plural(number, 'merge')}"
        equal(f"{where}: vocabulary", page["vocabulary"], f"Vocabulary: {first_id + number} = {parts}")
        tokens = sum(len(word) * count for word, count in words.items())
        expected = f"{plural(tokens, 'token')}, {ratio(size, tokens)} bytes per token" if size else ""
        equal(f"{where}: size", page["size"], expected)
        counts = bpe.count_pairs(words)
        order = sorted(counts, key=lambda pair: (counts[pair], pair), reverse=True)
        top = [pair for pair in order if counts[pair] == counts[order[0]]]
        table = [
            ["best" * (pair == order[0]), plus(pair), "tie " * (len(top) > 1 and pair in top) + f"{counts[pair]:,}"]
            for pair in order[:12]
        ]
        equal(f"{where}: pairs", page["pairs"], table)
        more = len(order) - len(table)
        equal(f"{where}: other pairs", page["morePairs"], f"and {more} other pair{'s' * (more > 1)}" if more else "")
        if number == shown:
            break
        best, count = order[0], counts[order[0]]
        equal(f"{where}: count of the merge", found["merges"][number][2], count)
        words = {bpe.merge_pair(word, best): n for word, n in words.items()}
        left = sum(len(word) * n for word, n in words.items())
        state = f": merged {plus(best)}, {times(count)}, into token {first_id + number}"
        state += f"; overlapping, so {tokens - left} are replaced" * (tokens - left < count)
        row = [number, first_id + number, plus(best), spell(b"".join(best)), f"{count:,}", ratio(size, left)]
        rows.append([str(value) for value in row])
    equal(f"{name}: list of merges", found["list"], rows[::-1])
    return merges[:shown]


def tokenizer_of(merges: list[bpe.Pair], specials: list[str], pattern: str) -> Tokenizer:
    tokens = [bytes([byte]) for byte in range(256)] + [token.encode() for token in specials]
    tokens += [left + right for left, right in merges]
    return Tokenizer(dict(enumerate(tokens)), merges, specials, PATTERNS[pattern])


def check_encoding(found: dict, name: str, merges: list[bpe.Pair]) -> int:
    """Compare the encoding of a text and the steps of each of its words; return the number of words."""
    tokenizer = tokenizer_of(merges, found["special"], found["pattern"])
    ids = tokenizer.encode(found["encode"])
    tokens = [tokenizer.vocab[token_id] for token_id in ids]
    equal(f"{name}: ids", found["colored"], [[str(token_id), spell(token)] for token_id, token in zip(ids, tokens)])
    equal(f"{name}: line of --show", found["shown"], "|".join(explain.readable(tokens, {"\n": "\\n\n"})))
    size = len(b"".join(tokens))
    expected = f"{plural(len(ids), 'token')}, {plural(size, 'byte')}, {ratio(size, max(1, len(ids)))} bytes per token"
    equal(f"{name}: size", found["size"], expected if ids else "")
    words = split(found["encode"], found["pattern"], found["special"])
    words, ranks = list(dict.fromkeys(words)), {pair: rank for rank, pair in enumerate(merges)}
    made = [left + right for left, right in merges]
    equal(f"{name}: words to encode", len(found["encoded"]), len(words))
    for word, page in zip(words, found["encoded"]):
        steps, now = [["bytes", boxes(word, ranks=ranks)]], word
        for rank, pair in enumerate(merges):
            before, now = now, bpe.merge_pair(now, pair)
            if now != before:
                steps.append([f"rank {rank}: {plus(pair)}", boxes(now, b"".join(pair), ranks)])
        equal(f"{name}: steps of {word}", page["steps"], steps)
        first_id = 256 + len(found["special"])
        ids = [token[0] if len(token) == 1 else first_id + made.index(token) for token in now]
        equal(f"{name}: ids of {word}", page["result"], "Ids: " + " ".join(map(str, ids)))
        longest = longest_match(b"".join(word), {b"".join(pair) for pair in merges})
        expected = f"Not BPE: the longest match from the left would give {' | '.join(map(spell, longest))}"
        equal(f"{name}: longest match of {word}", page["longest"], expected)
    return len(words)


def check_large_text(browser: Browser, _: int) -> None:
    """The page says that a text is too long, trains on its beginning, can be used meanwhile, and stops when asked."""
    text = (2 * CORPUS).encode()[:BIG].decode(errors="ignore")
    words = collections.Counter(split(text, "gpt2", []))
    expected = training.train_from_counts({b"".join(word): count for word, count in words.items()}, 1256)[1]
    browser.js("var turns = 0; setInterval(() => $('busy').hidden || turns++, 5); void 0")
    browser.type(text=2 * CORPUS, pattern="gpt2", special="", encode="")
    if browser.js("$('busy').hidden") or f"{BIG:,} bytes" not in browser.js("$('text-limit').textContent"):
        fail("large text: no bar, or no limit")
    browser.js("$('stop').click()")
    stopped = browser.js("merges.length")
    time.sleep(0.3)
    browser.expect("large text: merges after Stop", "[merges.length, $('busy').hidden]", [stopped, True])
    if stopped > 900:
        fail(f"large text: {stopped} merges were learned before Stop")
    browser.js("goTo(3)")
    browser.js("restart(); turns = 0")
    browser.js("$('last').click()")
    browser.wait("$('busy').hidden")
    turns = browser.js("turns")
    if turns < 2:  # without a pause there would be none; a fast machine trains in four
        fail(f"large text: the browser had only {turns} turns while the page trained")
    browser.expect("large text: merges", "merges.map((pair) => hex([pair.left, pair.right]))", in_hex(expected))
    state = ["Round 1000 of 1000:", 40, "The page stops after 1,000 merges; bpe.py continues."]
    code = "[$('state').textContent.slice(0, 19), $('words').children.length, $('reason').textContent]"
    browser.expect("large text: state", code, state)
    for wanted in (999, 512, 513, 0, 777):  # snapshots and the words that were drawn last
        browser.js(f"goTo({wanted})")
        tokens = sum(len(word) * n for word, n in zip(bpe.encode_words(words, expected[:wanted]), words.values()))
        code = "wordsAt(round).reduce((sum, { tokens, count }) => sum + tokens.length * count, 0)"
        browser.expect(f"large text: tokens in round {wanted}", code, tokens)
        code = "$('size').textContent.split(' tokens')[0]"
        browser.expect(f"large text: shown in round {wanted}", code, f"{tokens:,}")


def check_patterns(browser: Browser, seed: int) -> None:
    """Compare findWords with steps.find_words on random texts that are full of traps."""
    rng = random.Random(seed)
    traps = [
        "'s", "'S", "'ſ", "'ll", "'lL", "'Ve", "ab", "Ab", "aB", "中", "中A", "a\u0301", "\u0301", "ǅ", "ʰ", "ª", "1", "²", "Ⅷ",
        "1234", " ", "  ", "\t", "\n", "\r\n", "\r", "\n\n", "\u3000", "\xa0", "\x85", "\u2028", "\ufeff", "\x1c", "!", "/",
        "!\n/", "(", "-", "_", "😀", "👩\u200d🚀", "İ", "ß", "K", "١", "क्ष", "天气", "，", "\ud7ff", "\U0010ffff",
    ]  # fmt: skip
    texts = ["".join(rng.choices(traps, k=rng.randint(1, 14))) for _ in range(SPLIT_TEXTS)]
    names = json.dumps(list(PATTERNS))
    found = browser.js(f"{json.dumps(texts)}.map((text) => {names}.map((name) => findWords(text, name)))")
    for text, words in zip(texts, found):
        for name, page in zip(PATTERNS, words):
            equal(f"words of {text!r}, {name}", page, steps.find_words(text, PATTERNS[name]))


def check_decoding(browser: Browser, seed: int) -> None:
    """Compare the bytes and the text of random ids, and clicked ones, with decode."""
    rng = random.Random(seed)
    chinese = "{ ...filled('chinese'), special: '<|endoftext|>\\n天天', encode: '今天<|endoftext|>很蓝', round: 30 }"
    browser.js(f"show({chinese})")
    found = browser.js("merges.slice(0, 30).map((pair) => hex([pair.left, pair.right]))")
    merges = [(bytes.fromhex(left), bytes.fromhex(right)) for left, right in found]
    tokenizer = tokenizer_of(merges, ["<|endoftext|>", "天天"], "gpt2")
    browser.type(special="<|a|>\n<|a|><|a|>\n天天", encode="天天<|a|><|a|><|a|>b<|a|")
    ids = browser.js("texts($('colored'), '.id').join(' ')")
    equal("the longest special token", ids, "258 257 256 98 60 124 97 124")
    browser.js(f"show({chinese})")
    kinds = range(256), range(128, 256), range(256, len(tokenizer))
    random_ids = [[rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 12))] for _ in range(99)]
    for ids in [[239, 187, 191, 65], *random_ids]:
        text = tokenizer.decode(ids)
        if any(unicodedata.category(character) == "Cn" for character in text):
            continue  # a character that the browser's version of Unicode may have, such as U+FBC8
        browser.enter("ids", str(ids))
        data = tokenizer.decode_bytes(ids)
        tokens = tuple(tokenizer.vocab[token_id] for token_id in ids)
        expected = [boxes(tokens), f"Bytes: {data.hex(' ')}", f"Text: {text}"]
        browser.expect(f"decoding {ids}", "[boxes($('decoded').firstChild), ...texts($('decoded'), 'pre')]", expected)
    for wrong, bad, index in (("1 2 999", 999, 2), ("-1", -1, 0), ("7, x", "x", 1)):
        message = f"unknown token id {bad} at index {index}"
        browser.enter("ids", wrong)
        browser.expect(wrong, "[$('ids-error').textContent, $('decoded').textContent]", [message, ""])
    ids = tokenizer.encode("今天<|endoftext|>很蓝")
    shown = list(map(str, ids))
    browser.js("$('colored').children[1].click()")
    browser.expect("one clicked id", "$('ids').value", shown[1])
    browser.js("$('colored').children[3].click()")
    browser.expect("a run of clicked ids", "$('ids').value", " ".join(shown[1:4]))
    browser.expect("decoded run", "$('decoded').lastChild.textContent", f"Text: {tokenizer.decode(ids[1:4])}")
    browser.expect("pressed ids", "texts($('colored'), '[aria-pressed=true] .id')", shown[1:4])
    browser.js("$('colored').children[0].click()")
    browser.expect("a new run", "$('ids').value", shown[0])


def printable(merges: list[bpe.Pair]) -> list[tuple[str, str]]:
    return [(bpe.to_printable(left), bpe.to_printable(right)) for left, right in merges]


FORMS = {  # of merges, as a student has them on screen
    "lines": lambda merges: "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in printable(merges)),
    "lines alone": lambda merges: "\n".join(f"{left} {right}" for left, right in printable(merges)),
    "JSON": lambda merges: json.dumps(printable(merges), indent=1),
    "a list": repr,
    "tuples in lines": lambda merges: "\n".join(map(repr, merges)),
    "a list of strings": lambda merges: repr(printable(merges)),
}
CAUSES = {  # the beginning of what --compare says, and of what the page says
    "another rule for ties": "both pairs have the same count",
    "pairs that overlap themselves": "pairs that overlap themselves",
    "words without their spaces, as split() makes them": "your words have no spaces",
    "words counted once each": "you count each distinct word once",
    "counts of an earlier round": "your count is that of an earlier round",
}


PASTED = [  # a text, merges as "left,right & left,right", a special token, and what the page says
    ("hx.hx.hx.it.sit", "i,t", "", "Cause: you count each distinct word once"),
    ("x tx the tx ty", "t,x", "", "Cause: your words have no spaces"),
    ("the the the", "t,h & th,e & h,e", "", "Cause: your count is that of an earlier round"),
    ("ab ab ab aaa", "a,a", "", "Cause: pairs that overlap themselves"),
    ("aaa.aaa.ab.ab.ab", "a,b", "", "Cause: pairs that overlap themselves"),
    ("a\nb", "\r,\n", "", "Training ends here"),
    ("ab\nab", "\r,\n", "", "Cause: \\r in your file"),
    ("\n\n\n\na\n\n\n\na\n\n\n\na a a a a", " ,a", "", "Cause: \\r in your file"),
    ("the the the", "e, ", "", "Cause: your pair occurs only across the end of a word"),
    ("ab<|x|>ab<|x|>", "<,|", "<|x|>", "Cause: your pair occurs only in or across a special"),
    ("a<|x|>a", "a,<", "<|x|>", "The first 0 merges are the same.\nTraining ends here"),
    ("the the the", "q,z", "", "The first 0 merges are the same.\nround 1:"),
    ("ab", "a,b & q,z", "", "The first merge is the same."),
]
NOT_MERGES = [  # what is pasted, and what the page says
    ("a b c", "merge 1 must be two tokens, as in t h or (b't', b'h'): a b c"),
    ("a b\nab\n", "merge 2 must be two tokens, as in t h or (b't', b'h'): ab"),
    ("lo w</w>", "characters, with </w>"),
    ("[[1, 2]]", "merge 1 must be two tokens, as in t h or (b't', b'h'): [1, 2]"),
    ("[(b's', b't'), (b'e',), (b'e', b'st')]", "merge 2 must be two tokens, as in t h or (b't', b'h'): (b'e',),"),
    ("[(b's', b't'), (b'', b'st')]", "merge 2 must be"),
    ("(b's', b't'", "merge 1 must be"),
]


def check_comparison(browser: Browser, seed: int) -> None:
    """Paste merges with planted differences: the page finds the first, its counts, and its cause if certain."""

    def paste(text: str, merges: list[bpe.Pair], special: str = "", pattern: str = "gpt2", form: str = "lines") -> str:
        browser.type(text=text, pattern=pattern, special=special, mine=FORMS[form](merges), encode=text)
        browser.wait("$('busy').hidden")
        return browser.js("$('compared').textContent")

    text = CORPUS[:3000]
    words = bpe.words_of(text)
    merges = bpe.train_by_definition(words, 40)
    equal("one equal merge", paste(text, merges[:1]), "The only merge is the same.")
    for form in FORMS:
        equal(f"equal merges, {form}", paste(text, merges, form=form), "All 40 merges are the same.")
    ids = tokenizer_of(merges, [], "gpt2").encode(text)[:400]
    browser.enter("with", "mine")
    browser.expect("ids of pasted merges", "texts($('colored'), '.id')", [str(token_id) for token_id in ids])
    browser.js("$('with').value = 'ours'")
    rng = random.Random(seed)
    counts = bpe.count_pairs(words)
    earlier = sorted(counts, key=lambda pair: counts[pair], reverse=True)
    for _ in range(15):
        at = rng.randrange(len(merges))
        now = dict(zip(bpe.encode_words(words, merges[:at]), words.values()))
        counts = collections.Counter(bpe.count_pairs(now))
        order = sorted(counts, key=lambda pair: (counts[pair], pair), reverse=True)
        wrong = rng.choice([*order[1:30], *earlier[:30]])
        while wrong == order[0]:
            wrong = rng.choice(order)
        lines = paste(text, [*merges[:at], wrong, *merges[at:]], form=rng.choice(list(FORMS))).split("\n")
        first = "merge is" if at == 1 else f"{at} merges are"
        equal("same merges", lines[0], f"The first {first} the same.")
        top = ", ".join(f"{explain.in_line(pair)} ({times(counts[pair])})" for pair in order[:3])
        equal("most frequent pairs", lines[1], f"round {at + 1}: {top}")
        equal("why", lines[2].strip(), reason(now))
        equal("the pasted pair", lines[3].strip(), f"your merge {explain.in_line(wrong)} ({times(counts[wrong])})")
        cause = explain.usual_cause(merges[:at], now, counts, order[0], wrong)  # of --compare
        begins = f"Cause: {CAUSES.get(cause.partition(':')[0], 'your pair occurs only')}"
        if (not cause and lines[4:]) or not all(line.strip().startswith(begins) for line in lines[4:]):
            fail(f"{wrong} after {at} merges: {lines[4:]}, but --compare says {cause!r}")
    for text, lines, special, message in PASTED:
        found = paste(text, [tuple(token.encode() for token in line.split(",")) for line in lines.split(" & ")], special)
        if message not in found or ("q,z" in lines and "Cause" in found):
            fail(f"{message!r} is missing in {found!r}")
    found = paste("ab cd", [(b"a", b"b")], pattern="spaces")
    if "Cause: both pairs have the same count" not in found:
        fail(f"the cause is missing in {found!r}")
    for text, message in NOT_MERGES:
        browser.enter("mine", text)
        found = browser.js("$('compared').textContent")
        if message not in found:
            fail(f"{text!r}: {found!r}")
    browser.js("$('zh').click()")  # which has an error in Chinese
    if "第 1 条合并规则" not in browser.js("$('compared').textContent"):
        fail("an error in another language")
    browser.js("$('en').click()")
    for _ in range(20):  # any bytes, also brackets, quotes and backslashes, in each form
        pairs = [(rng.randbytes(rng.randint(1, 3)), rng.randbytes(1)) for _ in range(60)]
        pairs[1] = (b"'\"", b"\\")
        pairs[0] = rng.choice([(b"(", b"["), (b"[", b"a"), (b"'", b'"'), (b"\\", b"x")])
        for form, write in FORMS.items():
            read = browser.js(f"readMerges({json.dumps(write(pairs))}).map(({{ left, right }}) => hex([left, right]))")
            equal(f"{form}: {pairs}", read, in_hex(pairs))


STATE = """JSON.stringify(["text", "pattern", "special", "encode", "with", "ids", "mine"].map((id) => $(id).value)
  .concat(round, language, guessing, chosen, $("state").textContent, $("shown").textContent, $("words").textContent))"""


def check_links(browser: Browser, seed: int) -> None:
    """Each state is in the address, and its link opens exactly that, at the round."""
    rng = random.Random(seed)
    for number in range(8):
        language = ["en", "zh"][number % 2]
        entries = {
            "text": rng.choice(["今天天气很好，今天天气", "a&b=c #d%20+e\nlow low lower", "", "x" * 300]),
            "pattern": rng.choice(list(PATTERNS)),
            "special": rng.choice(["", "<|end|>\nlow", "#&"]),
            "encode": rng.choice(["", "lower&low#1 今天<|end|>"]),
            "ids": rng.choice(["", "229 164 169"]),
            "mine": rng.choice(["", "l o\nlo w"]),
            "with": rng.choice(["ours", "mine"]),
        }
        if number > 5:
            entries = {"encode": "low"}
            browser.js(f"show(filled('{rng.choice(PRESETS)}'))")
        browser.type(**entries)
        browser.js(f"$('{language}').click(); goTo({rng.randint(0, 6)}); $('choose').children[1]?.click()")
        if number % 3 == 0:
            browser.js("$('guess').click()")
        state = browser.js(STATE)
        browser.wait("decodeURIComponent(location.hash) === decodeURIComponent(address)")
        address = browser.js("location.hash.slice(1)")
        browser.js("$('copy').click()")
        browser.wait("$('copied').textContent !== ''")
        browser.expect("copied link", "navigator.clipboard.readText()", f"{PAGE.as_uri()}#{address}")
        browser.open(address)
        browser.expect(f"state of #{address}", STATE, state)
        top = browser.js("$('train').getBoundingClientRect().top")
        if not -1 < top < 10:
            fail(f"#{address} doesn't scroll to the round: {top}")
        if number % 3 == 0:
            browser.js("$('guess').click()")
    for preset, language in itertools.product(PRESETS, ["en", "zh"]):
        browser.js(f"location.hash = 'preset={preset}&round=2&lang={language}'")
        browser.wait(f"address.includes('preset={preset}&round=2&') && language === '{language}'")
        title = "$('presets').querySelector('[aria-pressed=true]').textContent"
        browser.expect(f"round of {preset}", "[round, language]", [2, language])
        shown = f"[$('text').value, $('look').textContent, {title}]"
        browser.expect(f"{preset}", shown, browser.js(f"[PRESETS['{preset}'].text, say.look['{preset}'], say.presets['{preset}']]"))
    browser.type(text="天" * 2000)
    browser.wait("location.hash === ''")
    said = browser.js("$('copied').textContent + $('copy').ariaDisabled")
    expected = r"内容太长，无法放进链接：共 18,\d\d\d 个字符，上限是 8,000 个。true"
    if not re.fullmatch(expected, said):
        fail(f"a text that is too long for a link: {said}")
    browser.call("Page.reload")
    browser.wait("typeof readAddress === 'function' && $('text').value.length === 2000")
    lessons = 0
    for path in [ROOT / "README.md", ROOT / "README.zh.md", *ROOT.glob("docs/*.md")]:
        text = path.read_text(encoding="utf-8")
        for link in sorted(set(re.findall(r"#(preset=[\w&=]+)", text))):
            wanted = dict(urllib.parse.parse_qsl(link))
            browser.js(f"location.hash = 'preset=aaaa&round=1'; location.hash = '{link}'")
            browser.wait(f"address.startsWith('#preset={wanted['preset']}&round={wanted['round']}&')")
            for expected in re.findall(rf"(?m)^\| \d+ \| \[[^|]*#{link}\) \|[^|]*\| `([^`]+)`", text):  # of a lesson
                where = f"{path.name}, {link}"
                browser.expect(f"the next pair in {where}", "$('busy').hidden && spellPair(merges[round], ' ')", expected)
                browser.expect(f"guess mode in {where}", "$('reason').textContent === say.ask", "guess=1" in link)
                lessons += 1
    equal("rows of a lesson", lessons, 2 * 8)


WIDER = """Array.from(document.querySelectorAll('body *'))
  .filter((one) => !one.parentElement.closest('.scroll') && one.getBoundingClientRect().right > innerWidth)
  .map((one) => one.id || one.tagName)"""


def check_widths(browser: Browser, _: int) -> None:
    """Nothing is wider than the window, for any text: 195 pixels are 390 at 200 %, and 640 are 1,280."""
    url = "https://example.org/" + "path-to-something/" * 60 + "?q=" + "%E5%A4%A9" * 100
    for name, entries in {
        "letters": {"text": "x" * 5000, "encode": "y" * 5000, "ids": "120 " * 300},
        "address": {"text": url, "encode": url, "special": "<|" + "long" * 200 + "|>"},
        "one word": {"text": "今天天气很好。" * 200, "encode": "今天天气很好。" * 200, "pattern": "none"},
        "run": {"text": "a" * 4096, "encode": "a" * 4096, "mine": "a a\n" + "a" * 500 + " " + "a" * 500, "ids": "97"},
        "spaces": {"text": " " * 3000 + "\t" * 3000 + "\u3000" * 500, "encode": " " * 3000, "pattern": "none"},
    }.items():
        browser.open("lang=en")
        browser.js("$('fold').open = true")
        browser.type(**{"pattern": "gpt2", "special": ""} | entries)
        browser.wait("$('busy').hidden")
        for language, round_number in (("en", 9), ("zh", 0)):
            browser.js(f"$('{language}').click(); goTo({round_number})")
            for width in (195, 390, 640, 768, 1024, 1920):
                browser.resize(width)
                found = browser.js("document.documentElement.scrollWidth")
                if found > width:
                    fail(f"{name} ({language}): {found} pixels in a window of {width}: {browser.js(WIDER)}")
    browser.resize(1280)


def check_keyboard(browser: Browser, _: int) -> None:
    """Everything can be reached and used with keys alone."""
    browser.open("lang=en")  # without a round, to which it would scroll: then some versions begin at what is in view
    here = """(() => {
      const one = document.activeElement;
      return one === document.body ? "" : one.id || one.parentElement.id || one.dataset.label;
    })()"""
    reached: list[str] = []
    for _ in range(60):
        browser.press("Tab")
        reached.append(browser.js(here))
        if not reached[-1] or reached[-1] == reached[0] != reached[-2:][0]:
            break
    expected = "en zh copy presets fold first back next last slider guess words encode with colored choose steps ids mine"
    missing = [name for name in expected.split() if name not in reached]
    if missing:
        fail(f"Tab doesn't reach {missing}, but {reached}")
    browser.js("$('fold').firstChild.focus()")
    browser.press("Enter")
    in_fold = []
    for _ in range(3):
        browser.press("Tab")
        in_fold.append(browser.js(here))
    equal("in the fold", in_fold, ["text", "pattern", "special"])
    browser.js("$('next').focus()")
    for keys, expected in ((["Enter", " ", "ArrowRight"], 3), (["ArrowLeft"], 2), (["End", "Home", "ArrowRight"], 1)):
        browser.press(*keys)
        browser.expect("rounds by keys", "round", expected)
    browser.js("$('colored').children[0].focus()")
    browser.press("ArrowRight", "Enter", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft", "Enter")
    ids = browser.js("texts($('colored'), '.id').slice(1, 4).join(' ')")
    browser.expect("ids by keys", "[$('ids').value, round]", [ids, 1])
    browser.js("$('choose').children[0].focus()")
    browser.press("ArrowRight", " ")
    word = browser.js("$('choose').children[1].textContent")
    browser.expect("word by keys", "[chosen, document.activeElement.textContent]", [1, word])
    browser.js("$('guess').focus()")
    browser.press("Enter")
    browser.js("$('pairs').querySelector('button').focus()")
    browser.press("Enter")
    browser.expect("focus after a guess", "document.activeElement.id", "next")
    browser.expect("answer to a guess", "/^(Right|No)/.test($('reason').textContent)", True)
    browser.js("$('presets').children[0].focus()")
    browser.press("ArrowRight", "ArrowRight", "Enter")
    expected = ["aaaa", "aaaa: overlap"]
    browser.expect("preset by keys", "[$('text').value, document.activeElement.textContent]", expected)


def check_first_look(browser: Browser, _: int) -> None:
    """What one comes for is in view: tokens and pairs; pairs beside words at 150 %; a hint at what is cut off."""
    bottom = "Math.max(...Array.from(document.querySelectorAll('{}'), (one) => one.getBoundingClientRect().bottom))"
    for language in ("en", "zh"):
        browser.resize(1280, 900)
        browser.open(f"lang={language}")
        for what in ("#words .line:nth-child(5) .word", "#pairs tr:nth-child(4)"):
            if browser.js(bottom.format(what)) > 900:
                fail(f"{what} isn't in view in a window of 1280 by 900 ({language})")
        browser.resize(853, 600)  # 1280 at 150 %
        below = "$('pairs').getBoundingClientRect().top > $('words').getBoundingClientRect().bottom"
        browser.expect(f"pairs below words at 150 % ({language})", below, False)
        browser.resize(390, 844)
        if browser.js("$('slider').getBoundingClientRect().height") < 36:
            fail("the slider is too low for a thumb")
    cut = "show(filled('emoji')); $('words').classList.contains('cut')"
    browser.expect("words that go on to the right fade out at once", cut, True)
    for scroll, expected in ((0, True), (9999, False)):
        browser.js(f"$('words').scrollLeft = {scroll}; new Promise(requestAnimationFrame)")
        browser.wait(f"$('words').classList.contains('cut') === {str(expected).lower()}", 5)
    browser.open("lang=en&text=own+text")
    browser.expect("a link with another text opens the fold", "$('fold').open", True)
    browser.resize(1280)


CONTRAST = """(() => {
  const parse = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (one) => {
    const color = parse(getComputedStyle(one).backgroundColor);
    return color.length === 3 || color[3] > 0 ? color : background(one.parentElement ?? document.body);
  };
  const found = [];
  for (const one of document.querySelectorAll("body *:not(script, style, option)")) {
    const style = getComputedStyle(one);
    const hasText = one.matches("textarea, select") ||
      Array.from(one.childNodes).some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !one.getClientRects().length) continue;
    const [a, b] = [light(parse(style.color)), light(background(one))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push([one.id || one.className || one.tagName, one.textContent.slice(0, 20), contrast]);
  }
  return found;
})()"""


def check_reading(browser: Browser, _: int) -> None:
    """Colors have contrast, tokens differ in more than color, controls have names, and paper has no controls."""
    for scheme, language in (("light", "en"), ("dark", "zh")):
        browser.resize(1280, prefers_color_scheme=scheme)
        browser.open(f"preset=special&round=4&lang={language}&ids=257")
        browser.js("$('fold').open = true")
        browser.js("$('colored').children[1].click()")
        browser.expect(f"contrast below 4.5 ({scheme})", CONTRAST, [])
        nodes = [node for node in browser.call("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
        roles = ("button", "textbox", "combobox", "slider", "region", "image", "toolbar", "group", "progressbar")
        unnamed = [node["role"]["value"] for node in nodes if not node.get("name", {}).get("value")]
        equal(f"without a name ({scheme})", [role for role in unnamed if role in roles], [])
    lines = (
        "Array.from(document.querySelectorAll('.token.byte, .token.old, .piece'), (one) => getComputedStyle(one))"
        ".filter((style) => style.boxShadow === 'none' && style.borderBottomWidth === '0px').length"
    )
    browser.expect("tokens without a line around them", lines, 0)
    browser.js("$('fold').open = false")
    browser.resize(1280, media="print")
    seen = "Array.from(document.querySelectorAll('{}')).filter((one) => one.getClientRects().length).map((one) => one.id)"
    browser.expect("controls on paper", seen.format("button:not(.piece), select, input, progress"), [])
    on_paper = ["text", "state", "reason", "words", "pairs", "merges", "shown", "steps"]
    browser.expect("on paper", seen.format(", ".join(f"#{name}" for name in on_paper)), on_paper)
    browser.resize(1280)


def check_guess(found: dict, name: str) -> None:
    """Before a click, no count and no reason is displayed; after it, the reason is."""
    before = found["rounds"][-2 if len(found["rounds"]) > 1 else -1]
    sentence, choices, cells = found["guess"]
    if before["pairs"]:
        equal(f"{name}: question", sentence, "Which pair is merged next? Count in the words, then click a pair.")
        equal(f"{name}: choices", sorted(choices), sorted(row[1] for row in before["pairs"]))
        equal(f"{name}: hidden counts", cells[1::2], ["?"] * len(choices))
        count = next(row[2].removeprefix("tie ") for row in before["pairs"] if row[1] == choices[0])
        right = choices[0] == before["pairs"][0][1]
        verdict = "Right. " if right else f"No: {choices[0]} occurs {times(int(count))}. "
        equal(f"{name}: answer", found["answer"], verdict + before["reason"])


def check_chinese_preset(found: dict) -> None:
    """Whole characters come by round 12, and words of two characters by round 30."""
    text, rows = found["text"], [row[3] for row in found["list"]]
    merges = bpe.train_by_definition(bpe.words_of(text), 30)
    tokens = [(left + right).decode(errors="replace") for left, right in merges]
    early = {"天", "好"} <= set(tokens[:12]) and {"今天", "天气", "明天"} <= set(tokens)
    if not early or not 200 <= len(text) <= 400:
        fail(f"the Chinese preset has {len(text)} characters and these tokens: {rows}")


CHECKS = [
    check_patterns, check_decoding, check_comparison, check_large_text, check_links, check_widths, check_first_look,
    check_keyboard, check_reading,
]  # fmt: skip


def main() -> None:
    source = PAGE.read_text(encoding="utf-8")
    lines = source.splitlines()
    if len(lines) > MOST_LINES or max(map(len, lines)) > MOST_COLUMNS:
        fail(f"docs/index.html has {len(lines)} lines, of at most {max(map(len, lines))} characters")
    languages = re.findall(r"^  (?:en|zh): \{\n(.*?)^  \},", source, re.DOTALL | re.MULTILINE)
    keys = [sorted(re.findall(r"(?:^|[{,] ) *(\w+): ", part, re.MULTILINE)) for part in languages]
    equal("names of sentences", keys[0], keys[1])
    seed = int(sys.argv[1]) if sys.argv[1:] else random.SystemRandom().randrange(10**6)
    print("seed", seed, flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(folder)
        try:
            browser.resize(1280)
            browser.open("lang=en")
            collected = browser.js(f"collectAll({json.dumps(PRESETS)}, {json.dumps(random_cases(seed))})")
            merges = words = 0
            for number, found in enumerate(collected):
                name = f"text {number} ({found['text']!r}, pattern {found['pattern']}, special tokens {found['special']})"
                learned = check_training(found, name)
                merges += len(learned)
                words += check_encoding(found, name, learned)
                check_guess(found, name)
            equal("number of texts", len(collected), len(PRESETS) + RANDOM_TEXTS)
            print(f"{len(collected)} texts, {merges} merges and {words} encoded words are as in bpe.py", flush=True)
            check_chinese_preset(collected[PRESETS.index("chinese")])
            for check in CHECKS:
                start = time.monotonic()
                check(browser, seed)
                print(f"{time.monotonic() - start:5.1f} s  {check.__name__[6:].replace('_', ' ')}", flush=True)
            requests = (event["params"] for event in browser.events if event.get("method") == "Network.requestWillBeSent")
            sent = {request["request"]["url"].partition("#")[0] for request in requests}
            equal("requests", sent - {PAGE.as_uri(), "data:,"}, set())
            errors = [event["params"] for event in browser.events if event.get("method") == "Runtime.exceptionThrown"]
            equal("errors", errors, [])
        finally:
            browser.process.terminate()
            browser.process.wait()
    print("patterns, decoding, comparison, 200 KB, links, widths, keys, contrast and paper are as they should be")


if __name__ == "__main__":
    main()
