"""fixtures/suite.json is what the definition gives, both engines pass it, and common mistakes fail it.

    pytest -q tests/docs/test_suite.py
"""

import json

import make_suite
import pytest
from test_exercises import train

import bpe
import bpe_more
from test_bpe import HERE

SUITE = HERE / "fixtures" / "suite.json"
CASES = json.loads(SUITE.read_text("utf-8"))["cases"]
C = bpe.find_engine()[0]


def merges_of(case):
    return [tuple(map(bytes.fromhex, merge.split(" "))) for merge in case["merges"]]


def test_the_suite_is_what_the_definition_gives_and_at_most_100_kb():
    assert SUITE.read_text("utf-8") == make_suite.suite(), "python tests/docs/make_suite.py writes it again"
    assert SUITE.stat().st_size <= 100_000


def test_the_expressions_of_the_suite_are_those_of_the_named_patterns():
    assert json.loads(SUITE.read_text("utf-8"))["patterns"] == bpe.PATTERNS
    assert {case["pattern"] for case in CASES} == set(bpe.PATTERNS)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """{name of a case: the files with its texts}"""
    folder, found = tmp_path_factory.mktemp("suite"), {}
    for case in CASES:
        found[case["name"]] = [folder / f"{len(found)}-{number}.txt" for number in range(len(case["texts"]))]
        for path, text in zip(found[case["name"]], case["texts"]):
            path.write_bytes(text.encode())
    return found


@pytest.mark.parametrize("module", [bpe, bpe_more], ids=["bpe", "bpe_more"])
@pytest.mark.parametrize("engine", ["python", *["c"] * (C is not None)])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_both_engines_pass_the_suite(files, monkeypatch, case, engine, module):
    specials, pattern, paths = case["special_tokens"], case["pattern"], files[case["name"]]
    merges = merges_of(case)
    for source in ({"texts": case["texts"]}, {"paths": paths}):
        counts = module.count_words(special_tokens=specials, pattern=pattern, engine=engine, workers=1, **source)
        assert {word.decode(): count for word, count in counts.items()} == case["words"]

    with pytest.warns(UserWarning) if 256 + len(specials) + len(merges) < case["vocab_size"] else monkeypatch.context():
        vocab, learned = module.train_bpe(paths, case["vocab_size"], specials, pattern=pattern, engine=engine, workers=1)
    assert learned == merges
    tokens = [bytes([byte]) for byte in range(256)] + [special.encode() for special in specials]
    assert vocab == dict(enumerate([*tokens, *(left + right for left, right in merges)]))

    if engine == "python":  # of bpe_more, the class for C is tested here
        monkeypatch.setattr(bpe, "find_engine", lambda: (None, "not in this test"))
    tokenizer = module.Tokenizer(vocab, merges, specials, pattern)
    assert module is bpe_more or (tokenizer.encoder is None) == (engine == "python")
    texts, ids = zip(*case["encode"])
    assert tokenizer.encode_batch(texts) == list(ids) == [tokenizer.encode(text) for text in texts]
    assert [tokenizer.decode(one) for one in ids] == list(texts)


MISTAKES = {  # of the student in test_exercises.py, and a case that has to notice each
    "ties by the joined bytes": "gpt2: ties: pairs, not what they make",
    "ties by the smaller pair": "gpt2: ties: left",
    "ties by the order of a dict": "gpt2: ties: right",
    "ties by printable characters": "gpt2: ties: bytes, not characters for them",
    "ties by signed bytes": "gpt2: ties: bytes have no sign",
    "overlaps not counted": "gpt2: overlaps",
    "words counted once": "gpt2: counts, not words",
    "one replacement a word": "gpt2: a long word",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_trainer_with_a_mistake_fails_the_case_that_is_about_it(mistake):
    case = next(case for case in CASES if case["name"] == MISTAKES[mistake])
    words = {word.encode(): count for word, count in case["words"].items()}
    wanted, n = case["vocab_size"] - 256 - len(case["special_tokens"]), case["without_ties"]
    merges, wrong = merges_of(case), train(words, wanted, mistake)
    assert train(words, wanted) == merges != wrong
    assert (wrong[:n] == merges[:n]) == mistake.startswith("ties")  # the others are noticed before the first tie
