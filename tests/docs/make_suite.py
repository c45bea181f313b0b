"""Write fixtures/suite.json, small cases with the results that any trainer can be compared with.

    python tests/docs/make_suite.py              writes the file
    python tests/docs/make_suite.py --check      fails if the file is not what this script writes

docs/suite.md describes the format. Every expected value comes from the definition: train_by_definition and
encode_by_definition of bpe.py, Part I, on the words of the oracle in test_bpe.py. No engine takes part. All
sentences were written for this project.
"""

import itertools
import json
import sys
from collections import Counter
from pathlib import Path

import regex

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import bpe
from test_bpe import naive_split, naive_words

OUTPUT = Path(__file__).resolve().parents[2] / "fixtures" / "suite.json"
END = "<|endoftext|>"
ABOUT = """Cases for trainers and encoders of byte-level BPE. docs/suite.md says what the entries mean. Tokens are in \
hexadecimal: '6c6f 77' merges the tokens 'lo' and 'w'."""

UNTIED = 12  # rounds at the beginning of a case that short texts keep free of ties

# Each corpus is (name, what it tests, texts, special tokens, merges wanted, texts to encode).

FOR_EVERY_PATTERN = [
    ("ties", "many pairs have the same count: the greater (left bytes, right bytes) is merged first",
     ["tin pan tin pan sat set sit sat set sit\nmoss mist must mass moss mist must mass"],
     [], 24, ["tin mist", "sets", "massmoss sat"]),
    ("overlaps", "'aaa' has the pair a a twice, and becomes 'aa', 'a'; two new tokens can be neighbors",
     ["aaa " * 7 + "aaaaa " * 5 + "bb " * 18 + "xyzyzw " * 9 + "ababab " * 3 + "!!!!!!!\n" * 2],
     [], 16, ["aaaaaaaa", "aaa aaaa", "xyzyzyzw", "abababa", "!!!!!!!!!!"]),
    ("special tokens", "text is cut at special tokens first; the longest that matches at a place wins; none is learned",
     ["<|a|>" * 9 + "the cat<|a|>the cat" * 6 + " the  <|a|>x the" * 4 + "<|a|>x<|a|>xy<|a|>" * 3,
      "red (.*)(.*)red (.*) re(.*)d\u00e9!\u00e9! \u00e9 !red" + "<|a| >" * 2],
     ["<|a|>", "<|a|>x", "(.*)", "\u00e9!", "|>x "], 16,
     ["the cat<|a|>xred", "<|a|>x <|a|> x<|a", "(.*)(.)\u00e9!\u00e9", "<|<|a|>x|>x red", "  <|a|>  "]),
    ("whitespace", "runs of spaces, line ends of both kinds, tabs, and spaces beyond ASCII",
     ["to  be\n" * 9 + "to   be\n\n" * 6 + "\tto\t\tbe\r\n" * 5 + "to \n be \r\n\r\n" * 4
      + "to\u00a0be\u3000to\u2028be\u0085to\x0bbe\x1cto\u200bbe" * 2 + "    to\n        be    \n"],
     [], 18, ["to  be", "to\n\n\nbe", "  \n  to", "\r\n\r\nbe\t\tto ", "to\u00a0\u00a0be\u3000 to\u0085\x1c", "   "]),
    ("digits", "runs of one to ten digits, and numbers that are not ASCII",
     ["1 12 123 1234 12345 " * 5 + "gate 7, row 22 " * 3 + "2024-07-15 " * 3 + "1234567890 " * 2 + "3.14159x10\u00b2 \u0663\u0664\u0665 \u216b \u00bd"],
     [], 16, ["1234567", "12 345 6789", "gate12row345z", "\u0663\u0664\u0665\u0666 \u00b2\u00b3", "-1,234.50"]),
    ("contractions", "'s, 'll, 'RE and the like; apostrophes that are none; the long s, which (?i:'s) matches",
     ["it's " * 9 + "we'll " * 7 + "they're " * 5 + "don't DON'T IT'S I'M " * 3 + "'tis 'twas o'clock's it's's "
      + "'\u017f it'\u017f it\u2019s " * 2 + "rock 'n' roll ''s '' 'd've"],
     [], 20, ["it's", "IT'S we'LL", "'s's 's", "don't've", "it\u2019s '\u017f", "he'd 'em"]),
    ("characters", "one to four bytes: combining marks, CJK, emoji with joiners; tokens may end inside a character",
     ["\u00e9t\u00e9 " * 6 + "e\u0301te\u0301 " * 4 + "\u590f\u591c\u5929\u5929\u591a " * 5 + "\u5929\u6c14\u597d\u3002" * 2
      + "\U0001f600\U0001f601\U0001f680 " * 4 + "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 3 + "\U0001f1f5\U0001f1f9 "
      + "\U00020bb7\U00020bb7\u91ce\u5bb6 \U0001d49c\U0001d49d " * 2 + "\u0928\u092e\u0938\u094d\u0924\u0947 \ud55c\uad6d\uc5b4"],
     [], 28, ["\u00e9t\u00e9 e\u0301", "\u5929\u6c14", "\U0001f600\U0001f602", "\U00020bb7\U0001d49c", "\u0928\u092e\u0924\u0947 \ud55c"]),
    ("end of a file", "each text is by itself: no word crosses its end, and spaces there are one word",
     ["one two ", " one two", "one  ", "", "  ", "\n", "one\n", "\none  \n\n", "two'", "s one", "t", "wo", "12", "34 two"] * 2 + ["on"],
     [], 14, ["one two ", "one  ", "two'", "s one\n\n", " "]),
    ("case and punctuation", "capitals inside words, slashes, line ends after punctuation",
     ["HttpServer " * 6 + "HTTPServer.getURL() " * 4 + "iPhone's McDonald'S " * 3 + "a/b//c/\n" * 4
      + "end.\nEnd!\n\n...\n/\n" * 3 + "\u4e2dAB \u4e2dAb \u01c5a x=>y; --flag=#1 $_ @me\n" * 2],
     [], 20, ["HTTPSServer", "getURLs()\n", "a//b/\n/", "\u4e2dABc", "IPHONE's...!\n\n"]),
    ("prose", "sentences, documents and code as they come",
     ["The ferry was late again, so we waited under the old crane. \"It's always late on Fridays,\" said the woman with "
      "the two bicycles, \"and they'll never tell you why.\" By ten o'clock, 38 of us were waiting.\n\nNobody minded much. "
      "The sea was calm, the bakery was open, and the bread was still warm.<|endoftext|>"
      "\u4eca\u5929\u7684\u6e21\u8f6e\u53c8\u665a\u4e86\uff0c\u6211\u4eec\u5728\u65e7\u540a\u8f66\u4e0b\u9762\u7b49\u4e86\u5f88\u4e45\u3002"
      "\u9762\u5305\u5e97\u5f00\u7740\uff0c\u9762\u5305\u8fd8\u662f\u70ed\u7684\u3002<|endoftext|>"
      "def late(ferries):\n    \"\"\"Return the names of ferries that are late.\"\"\"\n    return [f.name for f in ferries "
      "if f.minutes > 0]\n"],
     [END], 60, ["The woman waited<|endoftext|>for the bread.", "\u6e21\u8f6e\u8fd8\u665a", "    return late(f)\n"]),
]  # fmt: skip

# Nothing here depends on the pattern.
FOR_GPT2 = [
    ("ties: left", "of c d and a b, c d: the left token decides", ["ab", "cd", "ab", "cd"], [], 2, ["abcd"]),
    ("ties: right", "of a c and a b, a c: the left tokens are equal", ["ab", "ac"], [], 2, ["abac"]),
    ("ties: prefix", "of st y and s z, st y, since 'st' is greater than 's', although 'sty' is less than 'sz'",
     ["st"] * 3 + ["sty"] * 2 + ["sz"] * 2, [], 3, ["styszst"]),
    ("ties: pairs, not what they make", "of ab a and a bz, ab a, although 'aba' is less than 'abz'",
     ["bz"] * 9 + ["ab"] * 5 + ["abz"] * 2 + ["aba"] * 2, [], 4, ["abzaba"]),
    ("ties: bytes, not characters for them", "a space is less than a letter, and a newline too", [" x", "ax", "\n", "\nx"], [], 2, [" xax"]),
    ("ties: bytes have no sign", "the first byte of \u00e9 is greater than any letter", ["zz", "\u00e9"], [], 2, ["zz\u00e9"]),
    ("ties: neither age nor words", "ids, first places and numbers of words decide nothing",
     ["pqpqpq", "mn", "mn", "mn", "xyz", "xyz", "xyz"], [], 5, ["pqmnxyz"]),
    ("counts, not words", "a pair in one frequent word outweighs a pair in many rare words", ["qu"] * 5 + ["ab", "abc", "abd", "abe"], [], 3, ["quab"]),
    ("counts fall", "after a merge, the counts of its neighbors are lower", ["abcd"] * 5 + ["bc"] * 4 + ["ab"] * 3 + ["cd"] * 2, [], 4, ["abcd bcd abc"]),
    ("pairs run out", "fewer merges than requested: every word is a single token; a count of 1 is enough", ["hello", " hello you"], [], 100, ["hello you", "helloyou"]),
    ("no merges wanted", "256 bytes and two special tokens fill the vocabulary", ["hello hello<x>"], ["<x>", "<y>"], 0, ["hello<y><x>"]),
    ("no words", "an empty text and one of special tokens", ["", "<x><x>"], ["<x>"], 5, ["", "a<x>"]),
    ("words of one byte", "nothing to merge", ["a", "b", "\n", "."], [], 5, ["ab.\n"]),
    ("a long word", "300 times the same letter, and a word of 90 letters", ["x" * 300, "abcdefghi" * 10], [], 14, ["x" * 77, "ghiabc"]),
    ("replaying", "merges apply in the order of training: not the longest token first, nor the first pair of the text",
     ["bc"] * 9 + ["ab"] * 6 + ["bcd"] * 5 + ["cde"] * 2, [], 4, ["abcd", "abab", "abcde", "cdeabc"]),
]  # fmt: skip


def rounds_without_ties(words, merges):
    """Return how many merges come before the first round in which several pairs have the greatest count."""
    for number, best in enumerate(merges):
        counts = bpe.count_pairs(words)
        if sum(count == counts[best] for count in counts.values()) > 1:
            return number
        words = {bpe.merge_pair(word, best): count for word, count in words.items()}
    return len(merges)


def count(texts, special_tokens, pattern):
    """Return {word: how often it occurs}."""
    counts = sum((naive_words(text, special_tokens, bpe.PATTERNS[pattern]) for text in texts), Counter())
    return {b"".join(word).decode(): n for word, n in counts.items()}


def train(counts, merges_wanted):
    """Return the merges, and how many of them come before the first tie."""
    words = {bpe.single_bytes(word.encode()): n for word, n in counts.items()}
    merges = bpe.train_by_definition(words, merges_wanted)
    return merges, rounds_without_ties(words, merges)


def without_ties(texts, special_tokens, merges_wanted, pattern):
    """Add short texts, so that no pairs tie in the first rounds: a trainer with another tie rule makes the same merges there.

    If s t and e s tie, the text "st" makes s t more frequent. A pair that is no text by itself, such as two of the three
    bytes of a character, stays.
    """
    texts = list(texts)
    while True:
        merges, untied = train(count(texts, special_tokens, pattern), min(UNTIED, merges_wanted))
        if untied == len(merges):
            return texts
        try:
            text = b"".join(merges[untied]).decode()
        except UnicodeDecodeError:
            return texts
        word = bpe.encode_by_definition(bpe.single_bytes(text.encode()), merges[:untied])
        if word != merges[untied] or list(count([text], special_tokens, pattern)) != [text]:
            return texts
        texts.append(text)


def case_of(pattern, name, tests, texts, special_tokens, merges_wanted, probes):
    """Return a case, with what the definition says."""
    if not name.startswith("ties"):
        texts = without_ties(texts, special_tokens, merges_wanted, pattern)
    counts = count(texts, special_tokens, pattern)
    merges, untied = train(counts, merges_wanted)
    vocab = [bytes([byte]) for byte in range(256)] + [token.encode() for token in special_tokens]
    vocab += [left + right for left, right in merges]
    ids = {token: token_id for token_id, token in enumerate(vocab)}
    longest_first = "|".join(map(regex.escape, sorted(special_tokens, key=len, reverse=True))) or "(?!)"

    def encode(text):
        encoded = []
        for number, piece in enumerate(regex.split(f"({longest_first})", text)):
            words = [] if number % 2 else naive_split(piece, bpe.PATTERNS[pattern])
            tokens = [bpe.encode_by_definition(bpe.single_bytes(word.encode()), merges) for word in words]
            encoded += [ids[token] for token in ([piece.encode()] if number % 2 else itertools.chain(*tokens))]
        return encoded

    return {
        "name": f"{pattern}: {name}",
        "tests": tests,
        "pattern": pattern,
        "special_tokens": special_tokens,
        "vocab_size": 256 + len(special_tokens) + merges_wanted,
        "texts": texts,
        "words": counts,
        "merges": [f"{left.hex()} {right.hex()}" for left, right in merges],
        "without_ties": untied,
        "encode": [[text, encode(text)] for text in probes],
    }


def suite():
    """Return the text of the file: a line for each entry of a case."""
    cases = [case_of(pattern, *corpus) for corpus in FOR_EVERY_PATTERN for pattern in bpe.PATTERNS]
    cases += [case_of("gpt2", *corpus) for corpus in FOR_GPT2]
    to_json = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    lines = [",\n".join(f"{to_json(name)}:{to_json(value)}" for name, value in case.items()) for case in cases]
    head = f'"about":{to_json(ABOUT)},\n"version":1,\n"patterns":{to_json(bpe.PATTERNS)},\n"cases":[\n'
    return "{" + head + ",\n".join(f"{{{text}}}" for text in lines) + "\n]}\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if OUTPUT.read_text("utf-8") == suite() else f"{OUTPUT} is not what this script writes")
    OUTPUT.write_text(suite(), encoding="utf-8", newline="\n")
    print(f"{OUTPUT}: {OUTPUT.stat().st_size:,} bytes, {len(json.loads(suite())['cases'])} cases")
