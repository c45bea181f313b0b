"""What each option refuses, and that each one arrives."""

import functools
import inspect

import pytest
import regex

import bpe
import bpe_more
from bpe_more import choices, training
from bpe_more.tokenizer import Tokenizer
from shared import only_python, trained
from test_bpe import CORPUS, END, FIXTURES

pytestmark = only_python


def test_train_bpe_describes_each_option(words_txt):
    described = set(regex.findall(r"(?m)^ *(\w+)   ", training.train_bpe.__doc__))
    assert described == set(inspect.signature(training.train_bpe).parameters)
    assert described - {"input_path", "texts"} == set(choices.Options._fields)
    for call in (training.count_words, training.train_from_counts, Tokenizer.train, Tokenizer.encode_files):
        assert regex.search(r"\btrain_bpe\b|Its docstring", call.__doc__), call


NOT_A_LIST = "^special_tokens must be a list"
BAD_ARGUMENTS = [  # of train_bpe; what the error says, or what it says in bpe and in bpe_more
    ({"vocab_size": 100, "special_tokens": []}, ("at least 256, for bytes and special tokens, not 100$", r"is 256 \(256 bytes \+ 0 spe")),
    ({"vocab_size": 256}, ("at least 257, for bytes and special tokens, not 256$", r"is 257 \(256 bytes \+ 1 special token\)")),
    *[({"vocab_size": wrong}, ("vocab_size must be an integer of at least 257, for bytes and special tokens, not " + repr(wrong),
                               f"vocab_size must be a positive integer, not {wrong!r}"))
      for wrong in (0, -5, "500", 500.0, None, True)],
    *[({"special_tokens": wrong}, NOT_A_LIST) for wrong in ("<a>", b"<a>", {"<a>"}, frozenset(["<a>"]), {"<a>": 1})],
    ({"special_tokens": ["<a>", ""]}, r"special token 2 \(''\) must be"),
    ({"special_tokens": ["<a>", "<b>", "<a>"]}, "duplicate special token among .*'<a>'"),
    *[({"special_tokens": [wrong]}, r"special token 1 \(" + regex.escape(repr(wrong)) + r"\)")
      for wrong in ("a", b"<a>", ["<a>"], 5, "a\ufffd")],
    *[({"special_tokens": [wrong]}, ("special token 1 .*surrogates", "surrogates not allowed")) for wrong in ("\ud800x", "\ud83d\ude00")],
    ({"pattern": "(["}, r"pattern '\(\[' is not a valid regular expression: unterminated"),
    ({"pattern": "gtp2"}, r"unknown pattern 'gtp2'; the names are gpt2, cl100k, o200k, llama3, qwen2"),
    ({"pattern": ""}, "gpt2, cl100k, o200k"), ({"pattern": None}, "pattern"), ({"pattern": ["gpt2"]}, "pattern"),
    ({"pattern": "(?r)a"}, "searches backward"), ({"pattern": "a{1,99999999999999999999}"}, "pattern"),
    *[({"workers": wrong}, f"workers must be a positive integer, not {wrong!r}") for wrong in (0, 1.5, True)],
    *[({name: wrong}, f"{name} must be a positive integer, not {wrong!r}")
      for name in ("min_frequency", "min_word_count") for wrong in (0, 1.0, 1.5, True)],
    ({"color": 1}, r"^train_bpe\(\) got an unexpected keyword argument 'color'"),
    ({"errors": "ignore"}, "errors must be .*'strict'.*'replace'.*'ignore'"),
    ({"engine": "rust"}, "engine must be .*'rust'"),
    ({"input_path": None, "texts": ["a\ud800"]}, "position 1: surrogates not allowed"),
    ({"input_path": None, "texts": ["a", "\ud83d"]}, (r"texts\[1\]: .*surrogates not allowed$", "not allowed; errors='replace' makes")),
    *[({"input_path": None, "texts": ["a", wrong, "b"]}, f"must be a str, not {type(wrong).__name__}")
      for wrong in (b"b", None, 5)],
    *[({"input_path": None, "texts": wrong}, "texts must be an iterable of strings") for wrong in ("hello", b"abc", {"train": ["abc"]})],
    ({"texts": ["a"]}, "pass either the path of a file or texts=..., and not both"), ({"input_path": None}, "pass either the path"),
    ({"input_path": []}, "no file: the list of paths is empty"),
    ({"input_path": FIXTURES}, ("is a folder; name its files, such as ", r"is a folder; name its files: glob\.glob\('.*fixtures.*\*\.\w+'\)$")),
]  # fmt: skip
ONLY_MORE = {"min_frequency", "min_word_count", "errors"}


@pytest.mark.parametrize("module", [bpe, bpe_more])
@pytest.mark.parametrize("arguments, text", BAD_ARGUMENTS)
def test_bad_arguments_are_errors_that_show_them_before_the_work(monkeypatch, module, arguments, text):
    plain, more = text if isinstance(text, tuple) else (text, text)
    if ONLY_MORE & arguments.keys():
        plain = "unexpected keyword argument"
    monkeypatch.setattr(bpe, "learn_merges", None)
    kinds = TypeError if text == NOT_A_LIST else (ValueError, TypeError)
    with pytest.raises(kinds, match=plain if module is bpe else more):
        module.train_bpe(**{"input_path": CORPUS, "vocab_size": 300, "special_tokens": [END], **arguments})


TRAINING = {"vocab_size": 300, "min_word_count": 2, "min_frequency": 3}
RUNNING = {"engine": "python", "progress": True}
READING = {"errors": "replace", "workers": 2}
FILES = {"column": None}
SPECIAL = {"special_tokens": ("<x>",)}
BORDERS = {"begin": "<t>", "end": "<t>"}
PASSED_ON = {  # call -> what it works on; its options, with values that aren't the defaults
    "train_bpe": ({"input_path": "words.txt"}, {**TRAINING, **RUNNING, **READING, **SPECIAL, **FILES, "pattern": "o200k"}),
    "Tokenizer.train": ({"input_path": "words.txt"}, {**TRAINING, **RUNNING, **READING, **SPECIAL, **FILES, "pattern": "o200k"}),
    "count_words": ({"paths": "words.txt"}, {**RUNNING, **READING, **SPECIAL, **FILES, "pattern": "o200k"}),
    "train_from_counts": ({"words": {b"ab": 9}}, {**TRAINING, **RUNNING, **SPECIAL}),
    "tokenizer.encode_files": ({"paths": "words.txt", "output": "ids.npy"}, {**RUNNING, **READING, **FILES, **BORDERS}),
    "tokenizer.encode_batch": ({"texts": ["a"]}, READING),
    "tokenizer.encode_arrays": ({"texts": ["a"]}, READING),
    "tokenizer.encode_iterable": ({"iterable": ["a"]}, {"errors": "replace"}),
}


@pytest.mark.parametrize("name", PASSED_ON)
def test_each_option_of_each_call_arrives(words_txt, monkeypatch, name):
    """A call that forgets to pass an option on would work, with its default."""
    tokenizer = Tokenizer(*trained(300), ["<t>"], "llama3")
    call = getattr(tokenizer if "tokenizer" in name else functools.reduce(getattr, name.split(".")[:-1], bpe_more), name.split(".")[-1])
    works_on, options = PASSED_ON[name]
    parameters = inspect.signature(call).parameters
    assert options.keys() == parameters.keys() - works_on.keys() - {"texts"}
    for option, value in options.items():
        assert parameters[option].default != value, option
    expected = choices.Options()._asdict() | {option: value for option, value in options.items() if option not in BORDERS}
    if name.startswith("tokenizer."):
        expected |= {"special_tokens": ("<t>",), "pattern": "llama3"}

    arrived = []
    monkeypatch.setattr(choices.Options, "checked", lambda self, check=choices.Options.checked: (arrived.append(check(self)), arrived[-1])[1])
    call(**works_on, **options)
    assert arrived[0]._asdict() == expected
    assert arrived[0].special_tokens.are_text == ("end" in options)  # with `end`, they are plain text
    if name == "Tokenizer.train":
        assert (arrived[-1].pattern, arrived[-1].special_tokens) == ("o200k", ("<x>",))  # of the new tokenizer
