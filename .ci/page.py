"""Open docs/index.html in headless Chromium, and compare what it computes and displays with bpe.py.

    python .ci/page.py [SEED]

A copy of the page gets one more script, which types texts, clicks buttons and writes down what is displayed. The texts
are the presets and 60 random ones; the seed is printed. Requires regex, and Debian's package chromium.
"""

from __future__ import annotations

import collections
import decimal
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES, MOST_COLUMNS = 650, 120
RANDOM_TEXTS, ROUNDS = 60, 25
MOST_CHARACTERS = 20_000  # of a text
PATTERNS = {"gpt2": "gpt2", "spaces": r"\S+|\s", "none": r"(?s:.+)"}
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
OPTIONS += " --disable-component-update --disable-sync --dump-dom"

# Control, Next and so on are used as a reader would use them. A change of the pattern starts the training again.
SCRIPT = """
<script>
performance.now = () => 0;  // training stops after 50 ms, which a busy machine may need for a few rounds
const hex = (tokens) => tokens.map(hexOf);
const texts = (parent, selector) => Array.from(parent.querySelectorAll(selector), (element) => element.textContent);
const boxes = (word) => ({
  tokens: Array.from(word.querySelectorAll(".token"), (box) => [box.classList[1], texts(box, ".cell")]),
  above: texts(word, ".above"), ranks: texts(word, ".rank"),
});
const displayed = () => ({
  state: $("state").textContent, size: $("size").textContent, reason: $("reason").textContent,
  words: Array.from($("words").children, (line) => [line.firstChild.textContent, boxes(line.lastChild)]),
  pairs: Array.from($("pairs").rows, (row) => [row.className, ...texts(row, "td").slice(0, 2)]).slice(1),
  morePairs: $("more-pairs").textContent,
});
function collect() {
  const merges = trainByDefinition(wordsOf($("text").value, $("pattern").value), 1000);
  const found = {
    text: $("text").value, pattern: $("pattern").value, encode: $("new-text").value,
    merges: merges.map(({ left, right, count }) => [hexOf(left), hexOf(right), count]), rounds: [displayed()],
  };
  while ($("next").getAttribute("aria-disabled") === "false" && found.rounds.length <= ROUNDS) {
    $("next").click();
    found.rounds.push(displayed());
  }
  found.list = Array.from($("merges").rows, (row) => texts(row, "td")).slice(1);
  found.colored = Array.from($("colored").children, (piece) => [piece.children[0].textContent, piece.lastChild.data]);
  found.encoded = Array.from($("choose").children, (_, i) => {
    $("choose").children[i].click();
    const steps = Array.from($("steps").children, (row) => [row.firstChild.data, boxes(row.lastChild)]);
    return { steps, result: $("result").textContent, longest: $("longest").textContent };
  });
  $("back").click();
  $("guess").click();
  found.guess = [$("reason").textContent, texts($("pairs"), "button"), texts($("pairs"), "td")];
  if (found.guess[1].length) $("pairs").querySelector("button").click();
  found.answer = $("reason").textContent;
  $("guess").click();
  return found;
}
const collected = [];
for (let i = 0; i < $("presets").children.length; i++) {
  $("presets").children[i].click();
  collected.push(collect());
}
for (const { text, pattern, encode } of CASES) {
  $("text").value = text;
  $("new-text").value = encode;
  $("pattern").value = pattern;
  $("pattern").dispatchEvent(new Event("change"));
  collected.push(collect());
}
$("text").value = LARGE;
$("pattern").value = "gpt2";
$("pattern").dispatchEvent(new Event("change"));
const large = trainByDefinition(wordsOf(textIn("text"), "gpt2"), 30);
collected.push({
  limit: $("text-limit").textContent, words: $("words").children.length,
  merges: large.map(({ left, right, count }) => [hexOf(left), hexOf(right), count]),
});
document.body.append(make("pre", { id: "collected" }, encodeURIComponent(JSON.stringify(collected))));
</script>
"""


def random_cases(seed: int) -> list[dict[str, str]]:
    """Return random texts with few distinct characters, so that there are ties, overlaps and divided characters."""
    rng, cases = random.Random(seed), []
    alphabets = ["ab", "aab b", "abc  '\n", "天气 天", "今天天气很好，", "é😀👍👩\u200d", "a\ufeff\x85\xa0 \x1c\u3000b\t\n", "a1²Ⅷ-_ '.sll"]
    for number in range(RANDOM_TEXTS):
        alphabet, pattern = rng.choice(alphabets), list(PATTERNS)[number % 3]
        longest = 22 if pattern == "none" else 60  # the page draws at most 90 bytes of a word
        text, encode = ("".join(rng.choices(alphabet, k=rng.randint(1, most))) for most in (longest, 22))
        if max(len(word.encode()) for word in bpe.find_words(text, PATTERNS[pattern])) > 90:
            text = text[:22]
        cases.append({"text": text, "pattern": pattern, "encode": encode})
    return cases


def visible(character: str) -> str:
    hidden = unicodedata.category(character)[0] in "CZ"
    return {" ": "␣", "\n": "↵", "\t": "⇥"}.get(character) or (f"U+{ord(character):04X}" if hidden else character)


def spell(token: bytes) -> str:
    try:
        return "".join(map(visible, token.decode()))
    except UnicodeDecodeError:
        return token.hex(" ")


def in_sentence(token: bytes) -> str:
    return token.hex(" ") if spell(token) == token.hex(" ") else f"{token.hex(' ')} ({spell(token)})"


def plus(pair: bpe.Pair) -> str:
    return f"{spell(pair[0])} + {spell(pair[1])}"


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def ratio(size: int, tokens: int) -> str:
    """Return bytes per token as JavaScript rounds them: 3.125 to 3.13."""
    return str(decimal.Decimal(size / tokens).quantize(decimal.Decimal("0.01"), decimal.ROUND_HALF_UP))


def boxes(word: bpe.Word, new: bytes = b"", ranks: dict[bpe.Pair, int] | None = None) -> dict[str, object]:
    """Return what a word must look like: its tokens with the cells of each, and the characters above them."""
    ends, tokens, above, start = [], [], [], 0
    for character in b"".join(word).decode():
        ends.append((start, start + len(character.encode()), character))
        start = ends[-1][1]
    start = 0
    for token in word:
        end, cells = start + len(token), []
        for first, last, character in ends:
            if start <= first and last <= end:
                cells.append(visible(character))
            else:
                cells += [b"".join(word)[at : at + 1].hex() for at in range(max(first, start), min(last, end))]
            if first < end < last and first >= start:
                above.append(visible(character))
        tokens.append(["new" if token == new else "old" if len(token) > 1 else "byte", cells])
        start = end
    between = [] if ranks is None else [str(ranks.get(pair, "·")) for pair in zip(word, word[1:])]
    return {"tokens": tokens, "above": above, "ranks": between}


def reason(words: dict[bpe.Word, int]) -> str:
    """Return the sentence that must explain the next merge."""
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
        elif same == 1 + len(ties):
            sentence += "the left tokens are equal, and the greater right token wins"
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


def equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise SystemExit(f"page.py: {what} differs\n  page:   {found!r}\n  bpe.py: {expected!r}")


def split(text: str, pattern: str) -> list[bpe.Word]:
    return [tuple(bytes([byte]) for byte in word.encode()) for word in bpe.find_words(text, PATTERNS[pattern])]


def check_training(found: dict, name: str) -> list[bpe.Pair]:
    """Compare every displayed round; return the merges that were displayed."""
    words = dict(collections.Counter(split(found["text"], found["pattern"])))
    if found["pattern"] == "gpt2":
        equal(f"{name}: words", words, bpe.words_of(found["text"]))
    merges = bpe.train_by_definition(words, 1000)
    equal(f"{name}: merges", [row[:2] for row in found["merges"]], [[left.hex(" "), right.hex(" ")] for left, right in merges])
    shown = len(found["rounds"]) - 1
    equal(f"{name}: rounds that can be reached", shown, min(len(merges), ROUNDS))
    size, rows, state = sum(len(word) * count for word, count in words.items()), [], ": all bytes"
    for number, page in enumerate(found["rounds"]):
        where, new = f"{name}, round {number}", b"".join(merges[number - 1]) if number else b""
        equal(f"{where}: state", page["state"], f"Round {number} of {len(merges)}{state}")
        equal(f"{where}: reason", page["reason"], reason(words))
        equal(f"{where}: words", page["words"], [[f"{count} ×", boxes(word, new)] for word, count in words.items()])
        tokens = sum(len(word) * count for word, count in words.items())
        equal(f"{where}: size", page["size"], f"{tokens:,} tokens, {ratio(size, tokens)} bytes per token")
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
        state = f": merged {plus(best)}, {times(count)}, into token {256 + number}"
        state += f", overlapping, so {tokens - left} were replaced" * (tokens - left < count)
        row = [number, 256 + number, plus(best), spell(b"".join(best)), f"{count:,}", ratio(size, left)]
        rows.append([str(value) for value in row])
    equal(f"{name}: list of merges", found["list"], rows[::-1])
    return merges[:shown]


def check_encoding(found: dict, name: str, merges: list[bpe.Pair]) -> int:
    """Compare the encoding of a text and the steps of each of its words; return the number of words."""
    ids = {bytes([byte]): byte for byte in range(256)} | {b"".join(pair): 256 + i for i, pair in enumerate(merges)}
    words = split(found["encode"], found["pattern"])
    tokens = [token for word in words for token in bpe.encode_by_definition(word, merges)]
    equal(f"{name}: encoding", found["colored"], [[str(ids[token]), spell(token)] for token in tokens])
    words, ranks = list(dict.fromkeys(words)), {pair: rank for rank, pair in enumerate(merges)}
    equal(f"{name}: words to encode", len(found["encoded"]), len(words))
    for word, page in zip(words, found["encoded"]):
        steps, now = [["bytes", boxes(word, ranks=ranks)]], word
        for rank, pair in enumerate(merges):
            before, now = now, bpe.merge_pair(now, pair)
            if now != before:
                steps.append([f"rank {rank}: {plus(pair)}", boxes(now, b"".join(pair), ranks)])
        equal(f"{name}: steps of {word}", page["steps"], steps)
        equal(f"{name}: ids of {word}", page["result"], "Ids: " + " ".join(str(ids[token]) for token in now))
        longest = longest_match(b"".join(word), {b"".join(pair) for pair in merges})
        other = f"other tokens: {' | '.join(map(spell, longest))}" if longest != list(now) else "the same tokens."
        equal(f"{name}: longest match of {word}", page["longest"], f"The longest match from the left would give {other}")
    return len(words)


def check_large_text(found: dict) -> None:
    """Of a text that is too long, the page says so, trains on the beginning, and draws some words."""
    words = bpe.words_of(large_text()[:MOST_CHARACTERS])
    merges = []
    for _ in range(30):
        counts = bpe.count_pairs(words)
        best = max(counts, key=lambda pair: (counts[pair], pair))
        words = {bpe.merge_pair(word, best): n for word, n in words.items()}
        merges.append([best[0].hex(" "), best[1].hex(" "), counts[best]])
    equal("large text: merges", found["merges"], merges)
    if f"{MOST_CHARACTERS:,}" not in found["limit"] or not 0 < found["words"] < 100:
        raise SystemExit(f"page.py: large text: {found['limit']!r}, {found['words']} lines of words")


def large_text() -> str:
    """Return more text than the page takes."""
    text = (ROOT / "fixtures" / "corpus.txt").read_text(encoding="utf-8")
    return text[: MOST_CHARACTERS + 5000]


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


def main() -> None:
    chromium = shutil.which("chromium")
    if not chromium:
        raise SystemExit("page.py: chromium is not installed; run: apt-get install chromium")
    source = (ROOT / "docs" / "index.html").read_text(encoding="utf-8")
    lines = source.splitlines()
    if len(lines) > MOST_LINES or max(map(len, lines)) > MOST_COLUMNS:
        raise SystemExit(f"page.py: docs/index.html has {len(lines)} lines, of at most {max(map(len, lines))} characters")
    seed = int(sys.argv[1]) if sys.argv[1:] else random.SystemRandom().randrange(10**6)
    print("seed", seed, flush=True)
    script = SCRIPT.replace("ROUNDS", str(ROUNDS)).replace("CASES", json.dumps(random_cases(seed)))
    script = script.replace("LARGE", json.dumps(large_text()).replace("</", "<\\/"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        page = Path(folder, "page.html")
        page.write_text(source.replace("</body>", script + "</body>"), encoding="utf-8")
        command = [chromium, *OPTIONS.split(), f"--user-data-dir={folder}/user", page.as_uri() + "#lang=en"]
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120)
    match = re.search(r'<pre id="collected">([^<]*)</pre>', result.stdout)
    if not match:
        raise SystemExit(f"page.py: the page did not finish\n{result.stderr[-2000:]}")
    collected = json.loads(urllib.parse.unquote(match[1]))
    check_large_text(collected.pop())
    equal("number of texts", len(collected), 5 + RANDOM_TEXTS)
    merges = words = 0
    for number, found in enumerate(collected):
        name = f"text {number} ({found['text']!r}, pattern {found['pattern']})"
        learned = check_training(found, name)
        merges += len(learned)
        words += check_encoding(found, name, learned)
        check_guess(found, name)
    print(f"{len(collected)} texts, {merges} merges and {words} encoded words are as in bpe.py")


if __name__ == "__main__":
    main()
