"""The Tokenizer for models of other programs, its encoder in Python, and batches and arrays on all cores."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import re
import warnings
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import corpora, formats
from bpe_more.formats import MergeIds, WordsFirst
from bpe_more.steps import WHITESPACE, SpecialTokens, normalize_text, steps_of


class Tokenizer(bpe.Tokenizer):  # noqa: D101  # an f-string is a docstring only by assignment
    __doc__ = f"""{bpe.Tokenizer.__doc__}
    Models of other programs have more:

    pattern         may be a tuple of steps, the first of which may be "NFC" or "NFKC"
    kept            special tokens that decode() never skips: "special": false in tokenizer.json
    normalized      special tokens that are found only after a pattern such as ("NFC", "qwen2") has
                    normalized the text
    lstrip, rstrip  special tokens that remove the whitespace before them, and after them
    rest            what save() writes back into tokenizer.json: templates ("post_processor"),
                    "truncation" and "padding". encode() never adds tokens, as with
                    add_special_tokens=False elsewhere
    ignore_merges   a word that is a token stays whole; it has this name in tokenizer.json. Merges that
                    read_tiktoken returns (WordsFirst) set it, since tiktoken does so

    unreachable     {{id: name}} of tokens of the file with the bytes of another token, whose names have
                    characters that stand for no byte, so that no program finds them in text

    shared          {{id: special token}}: special tokens that are another token, too. Other programs know a
                    token by its name in tokenizer.json, so "é" is also the byte E9, and a token that was
                    added as "ferry" is also the one that merges make

    Two ids may have the same bytes if the second one is a special token's, or unreachable: if both 5 and 9
    are b"<s>", 9 is the special token.

    A token that encode() can never give is a warning, unless the merges are a tuple, as those of load()
    and of copies are: a model of another program has such tokens there, too.
    """

    def __init__(self, vocab: Mapping[int, bytes], merges: Iterable[bpe.Pair], special_tokens: bpe.Strings = None,
                 pattern: Any = "gpt2", kept: Iterable[str] = (), normalized: Iterable[str] = (),
                 rest: Mapping[str, Any] | None = None, ignore_merges: bool = False,
                 unreachable: Mapping[int, str] | None = None, lstrip: Iterable[str] = (),
                 rstrip: Iterable[str] = (), shared: Mapping[int, str] | None = None) -> None:
        self._unreachable = {token_id: name for token_id, name in (unreachable or {}).items() if token_id in vocab}
        self._kept, self._normalized = bpe.check_special_tokens(kept), bpe.check_special_tokens(normalized)
        self._lstrip, self._rstrip = bpe.check_special_tokens(lstrip), bpe.check_special_tokens(rstrip)
        self._rest = dict(rest or {})
        self._shared = dict(shared or {})
        self._ignore_merges = ignore_merges or isinstance(merges, WordsFirst)
        specials = bpe.check_special_tokens(special_tokens)
        others = set(self._shared.values())
        own = [special for special in specials if special not in others] if others else specials
        vocab, second_ids = without_second_ids(vocab, own, self._unreachable)
        known: Any = merges.ids_for(vocab) if isinstance(merges, WordsFirst) else ()
        first = [special for special in own if special not in second_ids] if second_ids else own
        super().__init__(vocab, known or merges, first, pattern)
        if second_ids or others:
            self._special_ids |= second_ids | {special: token_id for token_id, special in self._shared.items()}
            self._special_ids = {special: self._special_ids[special] for special in specials}
            self._vocab |= {token_id: special.encode("utf-8") for special, token_id in second_ids.items()}
        self._vocab |= {token_id: name.encode("utf-8") for token_id, name in self._unreachable.items()}
        with_kinds = SpecialTokens(specials)
        with_kinds.normalized, with_kinds.lstrip, with_kinds.rstrip = self._normalized, self._lstrip, self._rstrip
        self._options = self._options._replace(special_tokens=with_kinds)
        self._whole_words: dict[bytes, int] = {}  # words that stay whole, and their ids
        if self._ignore_merges:
            self._whole_words = self._ids.copy()
            self._whole_words.pop(b"", None)  # the empty token, which Whisper has, isn't a word
            for token_id in set(self._special_ids.values()).difference(self._shared):
                if self._ids.get(self._vocab[token_id]) == token_id:
                    del self._whole_words[self._vocab[token_id]]
        elif not isinstance(merges, (tuple, MergeIds)):
            self._warn_of_unreachable_tokens()

    def _find_merge_ids(self, merges: Any) -> Collection[tuple[int, int, int]]:
        return merges if isinstance(merges, MergeIds) else super()._find_merge_ids(merges)

    def _warn_of_unreachable_tokens(self) -> None:
        """Warn if tokens of several bytes are neither made by a merge nor special."""
        reachable = {new_id for _, _, new_id in self._merge_ids} | set(self._special_ids.values())
        others = [token for token, token_id in self._ids.items() if len(token) > 1 and token_id not in reachable]
        if others:
            tokens = bpe.plural(len(others), "token")
            text = f"encode() can't give {tokens} that no merge makes, such as {others[0]!r:.60}"
            ways = "special tokens are passed as special_tokens, ranks of tiktoken through read_tiktoken"
            bpe.warn(f"{text}; {ways}")

    @property
    def merges(self) -> list[bpe.Pair]:
        """A new list of the merges, in the order of their ranks."""
        return (WordsFirst if self._ignore_merges else list)(super().merges)

    @property
    def _known_merges(self) -> Any:
        """The merges as ids, for a copy of this tokenizer and for its files."""
        ids = self._merge_ids
        return ids if isinstance(ids, MergeIds) else MergeIds(array("I", itertools.chain.from_iterable(ids)))

    @property
    def ignore_merges(self) -> bool:
        """Whether a word that is a token stays whole."""
        return self._ignore_merges

    def __reduce__(self) -> tuple[object, ...]:
        kind = functools.partial(type(self), **self._settings())
        return kind, (self._vocab, tuple(self.merges), self.special_tokens, self.pattern)

    def _settings(self) -> dict[str, Any]:
        """Return the arguments for models of other programs that this model needs."""
        values = {
            "kept": self._kept, "normalized": self._normalized, "rest": self._rest,
            "ignore_merges": self._ignore_merges, "unreachable": self._unreachable,
            "lstrip": self._lstrip, "rstrip": self._rstrip, "shared": self._shared,
        }  # fmt: skip
        return {name: value for name, value in values.items() if value}

    def _with_only(self, special_tokens: Sequence[str], pattern: Any = None) -> Tokenizer:
        """Return the same tokenizer with only some of its special tokens, and perhaps with other steps."""
        if pattern is None:  # (), after a normal form alone, means no steps
            pattern = self.pattern
        shown = set(special_tokens)  # in a tuple, 10,000 of them would be looked up for a second
        hidden = {token_id for text, token_id in self._special_ids.items() if text not in shown}
        hidden.update(self._unreachable)
        hidden.difference_update(self._shared)
        merges = self._known_merges
        if not hidden.isdisjoint(merges.numbers):  # no text has the tokens of such merges side by side
            applied = (ids for ids in merges if hidden.isdisjoint(ids))
            merges = MergeIds(array("I", itertools.chain.from_iterable(applied)))
        vocab = {token_id: token for token_id, token in self._vocab.items() if token_id not in hidden}
        shared = {token_id: special for token_id, special in self._shared.items() if special in shown}
        return Tokenizer(vocab, merges, special_tokens, pattern, ignore_merges=self._ignore_merges, shared=shared)

    def _without_special_tokens(self) -> Tokenizer:
        return self._with_only(())

    def with_special_tokens(self, special_tokens: Iterable[str]) -> Tokenizer:
        """Return a tokenizer with more special tokens, which get the next ids; all else stays."""
        specials = *self.special_tokens, *bpe.check_special_tokens(special_tokens)
        return type(self)(self._vocab, self._known_merges, specials, self.pattern, **self._settings())

    @classmethod
    def load(cls, path: bpe.FilePath) -> Tokenizer:
        """Load a tokenizer.json, or the one in a folder; a tekken.json; or a .model of minbpe.

        Raises ValueError if it isn't supported.

        encode() gives the same ids as the program that wrote it, without the tokens that a template adds
        around text.
        """
        path = model_path(path)
        with open(path, "rb") as file, formats.error_prefix(path), formats.paused_collector():
            model, settings = formats.read_tokenizer_json(file.read())
            return cls(*model, **settings)

    @classmethod
    def from_files(cls, vocab_filepath: bpe.FilePath, merges_filepath: bpe.FilePath,
                   special_tokens: bpe.Strings = None, pattern: Any = "gpt2") -> Tokenizer:
        """Load a vocab.json and a merges.txt as GPT-2 or save() write them.

        A special token is looked up as text, then as to_printable() writes it. If it isn't there, it
        gets a new id. It may have the bytes of another token, as "  " beside "ĠĠ".
        """
        specials = bpe.check_special_tokens(special_tokens)
        with open(vocab_filepath, "rb") as file, formats.error_prefix(vocab_filepath), formats.paused_collector():
            names, vocab = formats.read_vocab(file.read(), specials)
            ids_of(without_second_ids(vocab, specials, ())[0])  # called for its errors, which should name this file
        with open(merges_filepath, encoding="utf-8-sig") as file, formats.error_prefix(merges_filepath):
            merges = formats.merges_of_file(file.read(), names, vocab)
            tokenizer = cls(vocab, merges, specials, pattern)
        if isinstance(merges, MergeIds) and not tokenizer._ignore_merges:
            tokenizer._warn_of_unreachable_tokens()
        return tokenizer

    def save(self, folder: bpe.FilePath, *, bos_token: str | None = None,  # type: ignore[override]
             eos_token: str | None = None, pad_token: str | None = None, chat_template: str | None = None) -> None:
        """Save the model in a folder: tokenizer.json, and files for other programs.

        Files with these names are replaced, even a merges.txt that was the corpus. load() finds the old
        model or the new one, even after Ctrl-C, a full disk, or a power cut. If a power cut or `kill -9`
        comes while files are replaced, vocab.json and merges.txt may both be old ones, or one or both
        missing. bos_token, eos_token, pad_token (each one of the special tokens) and the chat template
        are for transformers. Those that the folder has already, and the call does not name, stay, except
        for roles and added tokens that aren't special tokens of this model, which are a warning.
        """
        roles = {"bos_token": bos_token, "eos_token": eos_token, "pad_token": pad_token, "chat_template": chat_template}
        model = self._vocab, self._known_merges, self._special_ids, self.pattern
        if note := formats.save_model(*model, folder, self._settings(), roles):
            warnings.warn(f"{os.fspath(folder)}: {note}", stacklevel=2)

    def _new_encoder(self) -> Any:
        """Return an encoder of the C engine, or one in Python if C can't be used for this model."""
        engine = corpora.scanning_engine(self._options)  # None: not wanted, not built, or without the pattern
        encoder = engine.encoder(self) if engine and not self._is_prepared else None  # None: too many tokens for C
        return encoder or self._python_encoder(self._options.engine)

    @property
    def _is_prepared(self) -> bool:
        return bool(steps_of(self.pattern)[0] or self._lstrip or self._rstrip)

    def _python_encoder(self, engine: bpe.EngineName = "python") -> Encoder:
        """Return an encoder in Python; `engine` is for what comes after a PreparingEncoder."""
        return PreparingEncoder(self, engine) if self._is_prepared else Encoder(self)

    @property
    def _id_bytes(self) -> int:
        """The size of an id in an array: 2 bytes if that is enough for the whole vocabulary, else 4."""
        return 2 if max(self._vocab, default=0) < 1 << 16 else 4

    def encode(self, text: str) -> list[int]:
        """Encode text. C encodes the parts of a long one on all cores.

        Raises ValueError for a lone surrogate, or a byte without a token.
        """
        if not isinstance(text, str):
            bpe.to_utf8(text)  # raises the error
        if len(text) >= corpora.LONG_TEXT and most_threads(self._encoder) > 1 and corpora.count_cores() > 1:
            with contextlib.suppress(ValueError):  # encode() below raises it, with its place in the text
                return self._encode_parts(text)
        return self._encoder.encode(text.encode("utf-8"))  # type: ignore[no-any-return]

    def _encode_parts(self, text: str) -> list[int]:
        """Encode a long text in parts, in threads."""
        encoder = self._encoder

        def encode_part(part: tuple[int, int]) -> bytes:
            start, end = part
            ids, _ = encoder.encode_texts([text[start:end].encode("utf-8")], "u4")
            return ids  # type: ignore[no-any-return]

        parts: Any = corpora.parts_of_text(text, self.pattern, self._options.special_tokens)
        task: Any = encode_part
        results: Any = corpora.run_tasks(task, parts, True, bpe.MOST_WORKERS)
        with contextlib.closing(results):
            in_c = getattr(encoder, "inner", encoder)  # after a normal form
            return in_c.list_of(((end, ids) for (_, end), ids in results), len(text))  # type: ignore[no-any-return]

    def encode_batch(self, texts: Iterable[str], workers: int | None = None,
                     errors: bpe.Errors = "strict") -> list[list[int]]:
        """Encode several texts, with C on all cores. An error names the text.

        errors="replace": lone surrogates become U+FFFD, and bytes without a token are left out.
        """
        if isinstance(texts, list) and len(texts) == 1 and workers is None and errors == "strict":
            with contextlib.suppress(ValueError, TypeError):  # raised below, with the number of the text
                return [self.encode(texts[0])]
        corpus = self._corpus(None, texts, workers=workers, errors=errors)
        # The garbage collector would look through all lists again and again, which takes half of the
        # time. It stays off until `pause` is freed.
        pause = self._encoder.pause_collector()
        try:
            slice_bytes, n_threads = corpora.BATCH_BYTES, most_threads(self._encoder)
            results = corpus.run(self._encode_texts(errors), True, "", slice_bytes, n_threads)
            with contextlib.closing(results):
                return list(itertools.chain.from_iterable(lists for _, lists in results))
        finally:
            del pause

    def encode_arrays(self, texts: Iterable[str], workers: int | None = None,
                      errors: bpe.Errors = "strict") -> tuple[memoryview, memoryview]:
        """Encode several texts as one array; return (ids, offsets).

        Text i has ids[offsets[i] : offsets[i + 1]]. ids is a memoryview of uint16 if the whole
        vocabulary fits, else uint32; offsets is one of uint64, with len(texts) + 1 numbers.
        numpy.asarray(ids), or torch.frombuffer(ids, dtype=torch.uint16), makes no copy.
        """
        id_bytes = self._id_bytes
        encode_texts = functools.partial(self._encode_texts(errors), kind=f"u{id_bytes}")
        ids, offsets = bytearray(), array("Q", [0])
        corpus = self._corpus(None, texts, workers=workers, errors=errors)
        results = corpus.run(encode_texts, True, "", bpe.SLICE_BYTES, most_threads(self._encoder))
        with contextlib.closing(results):
            for _, (more_ids, ends) in results:
                ids += more_ids
                offsets.extend(map(offsets[-1].__add__, ends))
        return memoryview(ids).cast("H" if id_bytes == 2 else "I"), memoryview(offsets)

    def _encode_texts(self, errors: bpe.Errors) -> Any:
        """Return the function of the encoder that encodes texts, and leaves bytes without a token out if asked."""
        encode_texts = self._encoder.encode_texts
        return functools.partial(encode_texts, left_out=[]) if errors == "replace" else encode_texts

    def encode_iterable(self, iterable: Iterable[str], errors: bpe.Errors = "strict") -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, the first after about 1 KB of text.

        It keeps some 64 KB of text in memory, or more if there is no place to cut (see bpe.WORD_END).
        """
        if errors != "replace":
            return super().encode_iterable(iterable, errors)
        other = same_object(self)
        other._made_encoder = LeavingOut(self._encoder, [])
        return super(Tokenizer, other).encode_iterable(iterable, errors)

    def encode_files(self, paths: bpe.Paths = None, output: bpe.FilePath = "", *, texts: bpe.Strings = None,
                     errors: bpe.Errors = "strict", workers: int | None = None, engine: bpe.EngineName = "auto",
                     progress: bool = False, begin: str | None = None, end: str | None = None,
                     column: str | None = "text") -> int:
        """Encode files, or texts, as one array of token ids in the file `output`; return how many there are.

        numpy.load reads a .npy file: uint16 if the whole vocabulary fits, else uint32. A .bin file is the
        array alone, always of uint16, as nanoGPT reads it. With end="<|endoftext|>", or another special
        token, its id follows each file or text, in which special tokens are plain text; that of begin= comes
        before each one. By default no id is added. The folder of the output must exist. The docstring of
        bpe.train_bpe explains the options, and errors.
        """
        corpus = self._corpus(paths, texts, begin, end, errors=errors, workers=workers, engine=engine,
                              progress=progress, column=column)
        n_ids = corpora.encode_corpus(self, corpus, output)
        if not corpus.n_documents:
            bpe.warn("no text: the input has no rows")
        return n_ids

    def _corpus(self, paths: bpe.Paths, texts: bpe.Strings, begin: str | None = None, end: str | None = None,
                **given: Any) -> corpora.Corpus:
        """Return a corpus that is split into words the way this tokenizer does it."""
        options = self._options
        if any(corpora.border_ids(self, begin, end)):
            as_text = SpecialTokens(options.special_tokens)
            as_text.are_text = True
            options = options._replace(special_tokens=as_text)
        # encode_batch(["a short text"]) would take much longer if its options were checked again
        if any(getattr(options, name) != value for name, value in given.items()):
            options = options._replace(**given).checked()
        return corpora.Corpus(paths, texts, options, begin, end)

    def _tokens(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[bytes]:
        """Yield the token of each id, and b"" for special tokens that are skipped."""
        specials = set(self._special_ids).difference(self._kept) if skip_special_tokens else ()
        skipped = set(map(self._special_ids.__getitem__, specials))
        if not isinstance(ids, Iterable):
            raise TypeError(f"ids must be an iterable of token ids, not {ids!r:.60}")
        for number, token_id in enumerate(ids):
            try:
                token = self._vocab[token_id]
            except (KeyError, TypeError):
                token = None
            if token is None or not bpe.is_integer(token_id):
                import numbers

                # a number in a tensor isn't equal to an integer, nor is a row of an array
                is_array = hasattr(token_id, "tolist") and not isinstance(token_id, numbers.Integral)
                way = "; pass integers, as ids.tolist() gives them" if is_array else ""
                raise ValueError(f"unknown token id {token_id!r:.60} at index {number}{way}")
            yield b"" if token_id in skipped else token


plain_ids_of = bpe.ids_of


def ids_of(vocab: Mapping[int, bytes]) -> dict[bytes, int]:
    """Return {token: id}. The plain form, which looks at one token after another, has the errors."""
    has_types = set(map(type, vocab)) == {int} and set(map(type, vocab.values())) == {bytes}
    if has_types and min(vocab) >= 0 and max(vocab) <= bpe.MAX_ID:
        ids = dict(zip(vocab.values(), vocab))
        if len(ids) == len(vocab):
            return ids
    return plain_ids_of(vocab)


class Steps(tuple[str, ...]):
    """A pattern in several steps, in pickles of version 0.7."""


def without_second_ids(vocab: Mapping[int, bytes], special_tokens: Sequence[str],
                       unreachable: Iterable[int]) -> tuple[Mapping[int, bytes], dict[str, int]]:
    """Take the special tokens that have the bytes of an earlier token out of a vocabulary; return it, and their ids.

    Unreachable tokens go, too. If two ids have the same bytes, special tokens without an id get theirs, after the
    greatest one.
    """
    unreachable = set(unreachable)
    if not unreachable and (not special_tokens or len(set(vocab.values())) == len(vocab)):
        return vocab, {}
    texts = {special.encode("utf-8"): special for special in special_tokens}
    first: set[bytes] = set()
    second_ids: dict[str, int] = {}
    for token_id, token in vocab.items():
        if token_id in unreachable:
            continue
        if token in first and token in texts:
            second_ids.setdefault(texts[token], token_id)  # ids_of() refuses a third one
        first.add(token)
    free_ids = itertools.count(max(vocab) + 1)  # here, because the ids that are taken out may be the greatest
    more = {next(free_ids): token for token in texts if token not in first}
    hidden = unreachable.union(second_ids.values())
    return {token_id: token for token_id, token in vocab.items() if token_id not in hidden} | more, second_ids


class Encoder(bpe.PythonEncoder):
    """Encode in Python, with the methods of the encoder in C. Words that are tokens may stay whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.whole_words = tokenizer._whole_words

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Encode one word. Raises ValueError if one of its bytes has no token."""
        whole = self.whole_words.get(word.encode("utf-8")) if self.whole_words else None
        try:
            return super().encode_word(word) if whole is None else (whole,)
        except ValueError as error:
            raise ValueError(f"{error}; errors='replace' leaves it out") from None

    def encode_texts(self, texts: Sequence[bytes], kind: str = "", left_out: list[int] | None = None) -> Any:
        """Encode texts as lists, or with kind="u2" (16 bits per id) or "u4" (32) as an array.

        An array is returned as (its bytes, [the number of ids up to the end of each text]). A byte without a
        token is an error, or with left_out, to which the number of such bytes is added, it is left out. A
        ValueError has the number of its text.
        """
        lists = (self if left_out is None else self.leaving_out(left_out)).lists_of(texts)
        if not kind:
            return lists
        ids = array("H" if kind == "u2" else "I", itertools.chain.from_iterable(lists))
        return ids.tobytes(), array("Q", itertools.accumulate(map(len, lists)))

    def lists_of(self, texts: Sequence[bytes]) -> list[list[int]]:
        """Encode texts as lists."""
        return super().encode_texts(texts)

    def leaving_out(self, left_out: list[int]) -> Encoder:
        """Return an encoder that leaves bytes without a token out, and adds their number to left_out."""
        return EncoderLeavingOut(self, left_out)

    def pause_collector(self) -> Any:
        """Do nothing. The encoder in C pauses the garbage collector until the result is freed."""


class EncoderLeavingOut(Encoder):
    """Encode in Python without the bytes that have no token."""

    def __init__(self, encoder: Encoder, left_out: list[int]) -> None:
        self.__dict__.update(encoder.__dict__)
        self.left_out = left_out
        self.cached: Any = self.encode_word  # each time, since each byte is counted

    def encode_word(self, word: str) -> tuple[int, ...]:
        """Encode one word; other bytes are side by side where one was left out."""
        utf8 = word.encode("utf-8")
        if utf8 in self.whole_words:
            return (self.whole_words[utf8],)
        ids = [self.id_of_byte[byte] for byte in utf8 if byte in self.id_of_byte]
        self.left_out.append(len(utf8) - len(ids))
        return tuple(bpe.merge_by_rank(ids, self.ranks, self.new_ids))


def same_object(original: Any) -> Any:
    """Return a copy with the same attributes; copy.copy() makes a tokenizer or an encoder anew, as pickle does."""
    other = object.__new__(type(original))
    other.__dict__.update(original.__dict__)
    return other


class LeavingOut:
    """An encoder of either engine with left_out."""

    def __init__(self, encoder: Any, left_out: list[int]) -> None:
        self.encode_texts = functools.partial(encoder.encode_texts, left_out=left_out)

    def encode(self, utf8: bytes) -> list[int]:
        """Encode text in UTF-8. Raises UnicodeDecodeError if it is invalid."""
        return self.encode_texts([utf8])[0]  # type: ignore[no-any-return]


class PreparingEncoder(Encoder):
    """Prepare text: normalize it, and remove whitespace beside special tokens. `inner` encodes the result."""

    def __init__(self, tokenizer: Tokenizer, engine: bpe.EngineName) -> None:
        self.tokenizer = tokenizer
        self.engine = engine
        self.form, self.steps = steps_of(tokenizer.pattern)
        # found before text is normalized, and after it
        normalized = set(tokenizer._normalized)
        specials = tuple(text for text in tokenizer.special_tokens if text not in normalized)
        of_pieces = tuple(text for text in tokenizer.special_tokens if text in normalized)
        self.finders = [bpe.special_token_finder(tokens) for tokens in (specials, of_pieces, tokenizer.special_tokens)]
        self.overlap = any(formats.overlapping(of_pieces, specials))
        self.lstrip, self.rstrip = set(tokenizer._lstrip), set(tokenizer._rstrip)
        stripping = [re.escape(token.encode("utf-8")) for token in self.lstrip | self.rstrip]
        # an expression, since there may be 100 of them; None if there is none, so that no text is searched
        self.stripping = re.compile(b"|".join(stripping)) if stripping else None
        self.inner = self.encoder_with(tokenizer.special_tokens)
        self.ordinary: Any = None  # the same encoder without special tokens; rarely needed

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.tokenizer, self.engine)  # for worker processes, without the cache of `inner`

    def encoder_with(self, special_tokens: Sequence[str]) -> Any:
        """Return an encoder of prepared text that knows these special tokens."""
        whole: Any = self.tokenizer
        tokenizer = whole._with_only(special_tokens, self.steps)
        tokenizer._options = tokenizer._options._replace(engine=self.engine)
        return tokenizer._encoder

    def pieces_of(self, text: str, normal: str | None = None) -> list[str]:
        """Return prepared text, a special token, prepared text, and so on; `normal` is all text, normalized."""
        first, second, _ = self.finders
        pieces = self.split(text, first)
        if normal is not None and len(pieces) == 1:
            return self.split(normal, second)
        parts = [self.split(normalize_text(self.form, piece), second) for piece in pieces[::2]]
        for number, token in enumerate(pieces[1::2]):
            parts[number].append(token)
        return list(itertools.chain.from_iterable(parts))

    def split(self, text: str, finder: re.Pattern[str]) -> list[str]:
        """Split text at special tokens, and remove the whitespace that they remove."""
        pieces = finder.split(text)
        for number in range(1, len(pieces), 2):
            if pieces[number] in self.lstrip:
                pieces[number - 1] = pieces[number - 1].rstrip(WHITESPACE)
            if pieces[number] in self.rstrip:
                pieces[number + 1] = pieces[number + 1].lstrip(WHITESPACE)
        return pieces

    def prepared(self, utf8: bytes) -> bytes | None:
        """Prepare text; return None if `inner` would find other special tokens in the result.

        Most text is prepared already: in the normal form, in which each part of it is then, too.
        """
        special = self.overlap or bool(self.stripping and self.stripping.search(utf8))
        if not special and utf8.isascii():
            return utf8
        text = utf8.decode("utf-8")
        normal = None if special else normalize_text(self.form, text)
        if normal == text:
            return utf8
        pieces = self.pieces_of(text, normal)
        result = "".join(pieces)
        # NFKC makes the token <end> of "＜end＞", and of "<end>™" a token <end>TM, if there is one
        return result.encode("utf-8") if self.finders[2].split(result) == pieces else None

    def encode(self, utf8: bytes) -> list[int]:
        """Encode text in UTF-8. Raises UnicodeDecodeError if it is invalid."""
        text = self.prepared(utf8)
        if text is not None:
            return self.inner.encode(text)  # type: ignore[no-any-return]
        self.ordinary = self.ordinary or self.encoder_with(())
        ids: list[int] = []
        for number, piece in enumerate(self.pieces_of(utf8.decode("utf-8"))):
            ids += [self.tokenizer._special_ids[piece]] if number % 2 else self.ordinary.encode(piece.encode("utf-8"))
        return ids

    def encode_texts(self, texts: Sequence[bytes], kind: str = "", left_out: list[int] | None = None) -> Any:
        """Do the same as the method of Encoder, in one call of `inner` if possible."""
        with contextlib.suppress(UnicodeDecodeError):  # the method of Encoder raises it, with the number of its text
            prepared = list(map(self.prepared, texts))
            if None not in prepared:
                return self.inner.encode_texts(prepared, kind, left_out)
        return super().encode_texts(texts, kind, left_out)

    def leaving_out(self, left_out: list[int]) -> Encoder:
        """Return an encoder of prepared text that leaves bytes without a token out."""
        encoder: PreparingEncoder = same_object(self)
        self.ordinary = self.ordinary or self.encoder_with(())
        encoder.inner, encoder.ordinary = (LeavingOut(each, left_out) for each in (self.inner, self.ordinary))
        return encoder

    def pause_collector(self) -> Any:
        """Pause the garbage collector if `inner` does."""
        return self.inner.pause_collector()


def most_threads(encoder: object) -> int:
    """Return 1 for an encoder in Python, whose threads would only fight for Python's lock."""
    in_python = isinstance(getattr(encoder, "inner", encoder), bpe.PythonEncoder)
    return 1 if in_python else bpe.MOST_WORKERS


RANKS = "{name} has ranks of tiktoken: vocab, merges = read_tiktoken(path)"
PACKED = "{name} is compressed: decompress it first"
TWO_FILES = 'Tokenizer.from_files("{other}", "{name}").save(folder) makes it from these two'
WAYS = {  # {the end of a file's name: what opens it}
    "merges.txt": TWO_FILES, "vocab.bpe": TWO_FILES, ".tiktoken": RANKS, "tokenizer.model": RANKS,
    ".json.gz": PACKED, ".json.zst": PACKED, ".gguf": "docs/compatibility.md has the lines that read {name}",
}  # fmt: skip


def way_to_load(folder: bpe.FilePath) -> str:
    """Say what a folder without tokenizer.json has, and how to load it; "" if that is nothing that is known."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".model") and (what := formats.looks_like(os.path.join(folder, name))):
            return f"; {name}: {what}"
        for end, way in WAYS.items():
            if name.endswith(end):
                return "; " + way.format(name=name, other="encoder.json" if end == "vocab.bpe" else "vocab.json")
    return ""


def model_path(path: bpe.FilePath) -> bpe.FilePath:
    """Return the path of a tokenizer.json, or of a tekken.json: in a folder, or path. Raises FileNotFoundError."""
    is_folder = os.path.isdir(path)
    for file in [os.path.join(path, name) for name in ("tokenizer.json", "tekken.json")] if is_folder else [path]:
        if os.path.exists(file):
            return file
    reason = "No such file or folder (from a hub, download tokenizer.json first)"
    if is_folder:
        reason = "No tokenizer.json in this folder" + way_to_load(path)
    raise FileNotFoundError(errno.ENOENT, reason, os.fspath(path))
