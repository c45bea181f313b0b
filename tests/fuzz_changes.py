"""Extend random models, and compare with a slow oracle: `python tests/fuzz_changes.py 10000 [SEED]`; `60s` is a bound in seconds.

A model may be trained, or have merges in any order, with all splits, words that stay whole, a normal form, tokens that
no merge makes, special tokens with the bytes of a pair, ids in any order. Of each:

    merges      those of the oracle, which knows only the definition, in both engines, with their counts
    ids         old ones stay; new ones follow the greatest
    encode()    for all texts of training, the end of learning; for others, the new merges replayed on the old encoding

For a part of them, the package tokenizers loads the folder and must give the same ids, if it is installed.
"""

import collections
import importlib.util
import itertools
import random
import sys
import tempfile
import time
import unicodedata
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(HERE))

import bpe  # noqa: E402
from bounds import bounded, choose_seed  # noqa: E402
from bpe_more import choices, training  # noqa: E402
from bpe_more.corpus import counting  # noqa: E402
from bpe_more.patterns import steps  # noqa: E402
from bpe_more.tokenizer import Tokenizer, changes  # noqa: E402
from test_bpe import naive_merge  # noqa: E402

LETTERS = ["ab", "abc", "aé字", "ab\u0301e", "ﬁa①b", "the low"]
SPECIALS = [[], ["<|end|>"], ["ab", "<a>"], ["abab", "ba"], ["字a"]]
PATTERNS = ["gpt2", "llama3", r"\S+|\s+", ("NFC", "gpt2"), ("NFKC", "gpt2"), (r"\p{N}", "gpt2")]


# --- the oracle: the definition, and nothing else --------------------------------------------------------------------


def encode_by_rank(word, merges):
    """Merge the pair of lowest rank, the leftmost of equal ones, until no pair is a merge."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    tokens = [bytes([byte]) for byte in word]
    while True:
        found = [(ranks[pair], place) for place, pair in enumerate(itertools.pairwise(tokens)) if pair in ranks]
        if not found:
            return tokens
        place = min(found)[1]
        tokens[place : place + 2] = [tokens[place] + tokens[place + 1]]


def extend_by_definition(tokens, merges, stays_whole, words, n, least=1):
    """Return [(left, right, count, replaced), ...], and the words at the end."""
    state = {word: [word] if stays_whole(word) else encode_by_rank(word, merges) for word in words}
    learned = []
    while len(learned) < n:
        counts = collections.Counter()
        for word, parts in state.items():
            for pair in itertools.pairwise(parts):
                if pair[0] + pair[1] not in tokens:
                    counts[pair] += words[word]
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        if counts[best] < least:
            break
        replaced = 0
        for word, parts in state.items():
            state[word] = list(naive_merge(parts, best))
            replaced += (len(parts) - len(state[word])) * words[word]
        learned.append((*best, counts[best], replaced))
    return learned, state


# --- random models ---------------------------------------------------------------------------------------------------


def random_text(rng, letters, n):
    return "".join(rng.choices(letters + " ", k=n))


def random_model(rng):
    """A tokenizer, and the letters of its texts."""
    letters, specials, pattern = rng.choice(LETTERS), rng.choice(SPECIALS), rng.choice(PATTERNS)
    kind = rng.choice(["trained", "shuffled", "random", "all splits", "no merges"])
    merges = []
    if kind in ("trained", "shuffled", "all splits"):
        text = random_text(rng, letters, rng.randint(20, 400))
        words = training.count_words(texts=[text], pattern=rng.choice(["gpt2", r"[\s\S]+"]), engine="python")
        merges = training.train_from_counts(words, 256 + rng.randint(0, 40), engine="python")[1]
    elif kind == "random":
        tokens = sorted({bytes([byte]) for byte in letters.encode()})
        for _ in range(rng.randint(1, 25)):
            pair = rng.choice(tokens), rng.choice(tokens)
            if pair not in merges:
                merges.append(pair)
                tokens.append(b"".join(pair))
    tokens = {*bpe.BYTES, *map(b"".join, merges)}
    for _ in range(rng.choice([0, 0, 1, 5])):  # that no merge makes, or some may
        data = random_text(rng, letters, 9).encode()
        start = rng.randrange(len(data))
        tokens.add(data[start : start + rng.randint(2, 6)])
    tokens.discard(b"")
    if rng.random() < 0.3:  # some merges go, and their tokens stay
        merges = [pair for pair in merges if rng.random() < 0.8]
    if kind == "all splits":
        merges = [(t[:i], t[i:]) for t in rng.sample(sorted(tokens), len(tokens)) for i in range(1, len(t)) if {t[:i], t[i:]} <= tokens]
    elif kind != "trained" or rng.random() < 0.2:
        rng.shuffle(merges)
    made = set(map(b"".join, merges))
    specials = [special for special in specials if special.encode() not in made]
    normalized, form = [], pattern[0] if isinstance(pattern, tuple) else ""
    if form in steps.NORMAL_FORMS and specials and rng.random() < 0.3:
        normalized = specials[:1]
    numbers = rng.sample(range(3 * len(tokens)), len(tokens)) if rng.random() < 0.5 else range(len(tokens))
    ordered = sorted(tokens, key=lambda token: (len(token), token)) if rng.random() < 0.5 else rng.sample(sorted(tokens), len(tokens))
    settings = {"kept": specials[-1:], "normalized": normalized, "ignore_merges": rng.random() < 0.3}
    vocab = dict(zip(numbers, ordered))
    return Tokenizer(vocab, tuple(merges), specials, pattern, **settings), letters


# --- comparing -------------------------------------------------------------------------------------------------------


def words_of(tokenizer, text):
    """The words of a text between special tokens, as (word, whether it is a special token)."""
    for number, piece in enumerate(bpe.special_token_finder(tokenizer.special_tokens).split(text)):
        if number % 2:
            yield piece.encode(), True
        else:
            for word in steps.find_words(piece, tokenizer.pattern):
                yield word.encode(), False


def check_extension(rng, engines=("python", "c")):
    """Extend a random model, and compare; return the old one, the new one, and what had happened without the rule."""
    old, letters = random_model(rng)
    texts = [random_text(rng, letters, rng.randint(1, 150)) for _ in range(rng.randint(1, 3))]
    texts.append("".join(rng.choices([*old.special_tokens, "ab ", letters], k=4)))
    words = collections.Counter(word for text in texts for word, is_special in words_of(old, text) if not is_special)
    n, least = rng.choice([1, 5, 40]), rng.choice([1, 1, 1, 3])
    tokens = set(old.ids)

    def stays_whole(word):
        return old.ignore_merges and word in old.ids and old.ids[word] not in old.special_ids.values()

    expected, state = extend_by_definition(tokens, old.merges, stays_whole, words, n, least)
    news = []
    for engine in engines:
        options = old.options._replace(engine=engine, min_frequency=least)
        encoded = changes.encode_words(old, counting.WordTable(words), options)
        assert list(changes.learn_more(encoded, n, options)) == expected, f"{engine}: other merges, or counts"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            engine = "auto" if engine == "c" else engine  # C does not normalize
            news.append(old.extend(texts=texts, n_tokens=n, min_frequency=least, engine=engine))
    new = news[0]
    assert all(other.vocab == new.vocab and other.merges == new.merges for other in news)
    added = [(left, right) for left, right, _, _ in expected]
    assert new.merges == [*old.merges, *added] and type(new.merges) is type(old.merges)
    following = itertools.count(max(old.vocab) + 1)
    assert new.vocab == {**old.vocab, **{next(following): left + right for left, right in added}}
    assert new.special_ids == old.special_ids and new.settings() == old.settings() and new.pattern == old.pattern

    for word, parts in state.items():
        if not stays_whole(word):
            assert encode_by_rank(word, new.merges) == parts, "encoding is not the end of learning"
    for text in [*texts, *(random_text(rng, letters, 40) for _ in range(20))]:
        both = text + unicodedata.normalize(old.pattern[0], text) if old.normalized else ""
        if any(token in both for token in old.normalized):
            continue  # searched for in normalized text only
        expected_ids = []
        for word, is_special in words_of(old, text):
            if is_special:
                expected_ids.append(old.special_ids[word.decode()])
                continue
            parts = [word] if stays_whole(word) else encode_by_rank(word, old.merges)
            for pair in added:
                parts = naive_merge(parts, pair)
            expected_ids += [new.ids[part] for part in parts]
        assert new.encode(text) == expected_ids, f"other ids for {text!r}"
    return old, new, without_the_rule(old, stays_whole, words, n, least) if expected else ""


def without_the_rule(old, stays_whole, words, n, least):
    """What happens if a pair with the bytes of an old token may be merged: "", "same ids", "other ids" or "refused"."""
    learned, state = extend_by_definition(set(), old.merges, stays_whole, words, n, least)
    if not any(left + right in old.ids for left, right, _, _ in learned):
        return ""
    merges = [*old.merges, *((left, right) for left, right, _, _ in learned)]
    following = itertools.count(max(old.vocab) + 1)
    new = {left + right: next(following) for left, right, _, _ in learned if left + right not in old.ids}
    try:
        Tokenizer({**old.vocab, **{i: token for token, i in new.items()}}, tuple(merges), old.special_tokens)
    except ValueError:
        return "refused"
    same = all(stays_whole(word) or encode_by_rank(word, merges) == parts for word, parts in state.items())
    return "same ids" if same else "other ids"


def compare_with_tokenizers(rng, new):
    """Count texts with other ids in the package tokenizers."""
    import tokenizers

    with tempfile.TemporaryDirectory() as folder:
        try:
            new.save(folder)
        except ValueError:  # special tokens that look like bytes
            return None
        theirs = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
        again = Tokenizer.load(folder)
    texts = [random_text(rng, "abcé字 e\u0301ﬁthlow", 40) for _ in range(10)]
    assert again.encode_batch(texts) == new.encode_batch(texts)
    return sum(theirs.encode(text, add_special_tokens=False).ids != new.encode(text) for text in texts)


def main():
    warnings.simplefilter("ignore")  # few words give few merges
    seed = choose_seed(sys.argv[2:])
    engines = ["python", "c"] if choices.find_engine()[0] else ["python"]
    start, cases, n, n_loaded = time.monotonic(), collections.Counter(), 0, 0
    for number in bounded(sys.argv[1]):
        n += 1
        rng = random.Random(seed + number)
        try:
            _, new, case = check_extension(rng, engines)
            cases[case] += 1
            if number % 3 == 0 and importlib.util.find_spec("tokenizers"):
                wrong = compare_with_tokenizers(rng, new)
                assert not wrong, f"{wrong} texts have other ids in tokenizers"
                n_loaded += wrong is not None
        except BaseException:
            print(f"seed {seed + number}")
            raise
    print(f"{n:,} models from seed {seed}, {n_loaded:,} of them in tokenizers, too: no difference; {time.monotonic() - start:.0f} s")
    del cases[""]
    print(f"if a pair with the bytes of an old token could be merged, it would be in {cases.total():,} of them: {dict(cases)}")


if __name__ == "__main__":
    main()
