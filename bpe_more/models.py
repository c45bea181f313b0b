"""The Tokenizer for models of other programs, its encoder in Python, and batches and arrays on all cores."""

from __future__ import annotations

import codecs
import contextlib
import errno
import functools
import itertools
import operator
import os
import types
import warnings
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import bpe
from bpe_more import changes, choices, corpora, encoders, formats, slicing, steps, training, workers
from bpe_more.checks import is_integer, plural, require, warn
from bpe_more.formats import MergeIds, WordsFirst
from bpe_more.steps import SpecialTokens, steps_of


class Tokenizer:
    """Encode text with a trained vocabulary, and decode token ids.

    vocab           {token id: token}; a byte without an id can't be encoded
    merges          [(left, right), ...] in the order of their ranks
    special_tokens  the longest match wins; tokens that vocab lacks get ids after the greatest one
    pattern         the pattern that the vocabulary was trained with

    >>> vocab = {0: b"a", 1: b"b", 2: b"ab", 3: b"abab"}
    >>> tokenizer = Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"ab")], ["<end>"])
    >>> tokenizer.encode("ababab<end>"), tokenizer.decode([3, 2, 4])
    ([3, 2, 4], 'ababab<end>')

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Tokenizer.train(texts=["low lower lowest"], vocab_size=258).save(folder)
    ...     Tokenizer.load(folder).encode("lowest")
    [257, 101, 115, 116]

    encode() merges by rank (see check_merges), so merges may be in an order that no training gives, but
    none may come twice. Raises ValueError if vocabulary and merges contradict each other.

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

    unreachable     {id: name} of tokens of the file with the bytes of another token, whose names have
                    characters that stand for no byte, so that no program finds them in text

    shared          {id: special token}: special tokens that are another token, too. Other programs know a
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
        self._kept, self._normalized = steps.check_special_tokens(kept), steps.check_special_tokens(normalized)
        self._lstrip, self._rstrip = steps.check_special_tokens(lstrip), steps.check_special_tokens(rstrip)
        self._rest = dict(rest or {})
        self._shared = dict(shared or {})
        self._ignore_merges = ignore_merges or isinstance(merges, WordsFirst)
        specials = steps.check_special_tokens(special_tokens)
        others = set(self._shared.values())
        own = [special for special in specials if special not in others] if others else specials
        vocab, second_ids = without_second_ids(vocab, own, self._unreachable)
        known: Any = merges.ids_for(vocab) if isinstance(merges, WordsFirst) else ()
        first = [special for special in own if special not in second_ids] if second_ids else own
        self._ids: dict[bytes, int]
        self._vocab: dict[int, bytes]
        self._special_ids: dict[str, int]
        self._options: choices.Options
        self.set_vocabulary(vocab, known or merges, first, pattern)
        if second_ids or others:
            self._special_ids |= second_ids | {special: token_id for token_id, special in self._shared.items()}
            self._special_ids = {special: self._special_ids[special] for special in specials}
            self._vocab |= {token_id: special.encode("utf-8") for special, token_id in second_ids.items()}
        self._vocab |= {token_id: name.encode("utf-8") for token_id, name in self._unreachable.items()}
        with_kinds = SpecialTokens(specials)
        with_kinds.normalized, with_kinds.lstrip, with_kinds.rstrip = self._normalized, self._lstrip, self._rstrip
        self._options = self._options._replace(special_tokens=with_kinds)
        self.whole_words: dict[bytes, int] = {}  # words that stay whole, and their ids
        if self._ignore_merges:
            self.whole_words = self._ids.copy()
            self.whole_words.pop(b"", None)  # the empty token, which Whisper has, isn't a word
            for token_id in set(self._special_ids.values()).difference(self._shared):
                if self._ids.get(self._vocab[token_id]) == token_id:
                    del self.whole_words[self._vocab[token_id]]
        elif not isinstance(merges, (tuple, MergeIds)):
            self._warn_of_unreachable_tokens()

    def set_vocabulary(self, vocab: Mapping[int, bytes], merges: Iterable[bpe.Pair], special_tokens: bpe.Strings,
                       pattern: Any) -> None:
        """Number special tokens, find the ids of merges, and check that all of them fit together."""
        self._options = choices.Options(special_tokens, pattern).checked()
        ids = ids_of(vocab)
        free_ids = itertools.count(max(ids.values(), default=-1) + 1)
        self._special_ids = {}
        for special in self.special_tokens:
            token = special.encode("utf-8")
            if token not in ids:
                ids[token] = next(free_ids)
                require(ids[token] <= bpe.MAX_ID, "no id is left for {!r}: the greatest id is {}", special, bpe.MAX_ID)
            self._special_ids[special] = ids[token]
        self._ids = ids
        self._vocab = {token_id: token for token, token_id in ids.items()}
        self.merge_ids = self.find_merge_ids(merges)
        made = set(self._special_ids.values()).intersection(new_id for _, _, new_id in self.merge_ids)
        wrong = [special for special, token_id in self._special_ids.items() if token_id in made]
        way = "leave them out of the vocabulary (or the .tiktoken file), and pass them as special tokens only"
        require(not wrong, f"merges make {plural(len(wrong), 'special token')}, too: {wrong!s:.99}; {way}")
        # These are made when they are needed. (cached_property would do it, but has a lock until Python 3.12,
        # which stops a process that was forked while another thread had it.)
        self._made_encoder: Any = None
        self._made_ordinary: Tokenizer | None = None

    def find_merge_ids(self, merges: Any) -> Collection[tuple[int, int, int]]:
        """Return the ids of each merge, which a file may already have given: left, right, new."""
        return merges if isinstance(merges, MergeIds) else self.ids_of_pairs(merges)

    def ids_of_pairs(self, merges: Iterable[bpe.Pair]) -> Collection[tuple[int, int, int]]:
        """Return the ids of each merge: left, right, new. Raises ValueError for unknown tokens and repeated merges."""
        ids, pairs = self._ids, [(left, right) for left, right in merges]
        try:
            merge_ids = [(ids[left], ids[right], ids[left + right]) for left, right in pairs]
        except KeyError as error:
            raise ValueError(f"a merge uses or creates {error}, which is not in the vocabulary") from None
        if len(set(merge_ids)) < len(merge_ids):
            seen: set[bpe.Pair] = set()
            for number, pair in enumerate(pairs):
                require(pair not in seen, "merge {} (from 0), {}, repeats an earlier one", number, pair)
                seen.add(pair)
        return merge_ids

    # The parts of a tokenizer are read-only.

    @property
    def vocab(self) -> Mapping[int, bytes]:
        """The vocabulary: {token id: token}."""
        return types.MappingProxyType(self._vocab)

    @property
    def ids(self) -> Mapping[bytes, int]:
        """The vocabulary the other way round: {token: token id}."""
        return types.MappingProxyType(self._ids)

    @property
    def special_ids(self) -> dict[str, int]:
        """The ids of the special tokens, in a new dict."""
        return self._special_ids.copy()

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The special tokens, in the order given."""
        return tuple(self._options.special_tokens)

    @property
    def pattern(self) -> str:
        """The name of the pattern, or its expression."""
        return self._options.pattern

    def __len__(self) -> int:
        return len(self._vocab)

    def __repr__(self) -> str:
        specials = plural(len(self.special_tokens), "special token")
        return f"{type(self).__name__}({len(self):,} tokens, pattern {self.pattern!r}, {specials})"

    def _warn_of_unreachable_tokens(self) -> None:
        """Warn if tokens of several bytes are neither made by a merge nor special."""
        reachable = {new_id for _, _, new_id in self.merge_ids} | set(self._special_ids.values())
        others = [token for token, token_id in self._ids.items() if len(token) > 1 and token_id not in reachable]
        if others:
            tokens = plural(len(others), "token")
            text = f"encode() can't give {tokens} that no merge makes, such as {others[0]!r:.60}"
            ways = "special tokens are passed as special_tokens, ranks of tiktoken through read_tiktoken"
            warn(f"{text}; {ways}")

    @property
    def merges(self) -> list[bpe.Pair]:
        """A new list of the merges, in the order of their ranks."""
        return (WordsFirst if self._ignore_merges else list)(
            (self._vocab[left], self._vocab[right]) for left, right, _ in self.merge_ids
        )

    @property
    def _known_merges(self) -> Any:
        """The merges as ids, for a copy of this tokenizer and for its files."""
        ids = self.merge_ids
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
        specials = *self.special_tokens, *steps.check_special_tokens(special_tokens)
        return type(self)(self._vocab, self._known_merges, specials, self.pattern, **self._settings())

    @classmethod
    def train(cls, input_path: bpe.Paths = None, vocab_size: int | None = None, special_tokens: bpe.Strings = None, *,
              texts: bpe.Strings = None, pattern: str = "gpt2", errors: choices.Errors = "strict",
              min_word_count: int = 1, min_frequency: int = 1, workers: int | None = None,
              engine: bpe.EngineName = "auto", progress: bool = False, column: str | None = "text") -> Tokenizer:
        """Train a tokenizer. The docstring of training.train_bpe explains all arguments, and errors."""
        specials = steps.check_special_tokens(special_tokens)
        formats.check_special_names(specials)  # save() will be able to write them
        vocab, merges = training.train_bpe(
            input_path, vocab_size, specials, texts=texts, pattern=pattern, errors=errors,
            min_word_count=min_word_count, min_frequency=min_frequency, workers=workers, engine=engine,
            progress=progress, column=column,
        )  # fmt: skip
        return cls(vocab, merges, specials, pattern)

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
        specials = steps.check_special_tokens(special_tokens)
        with open(vocab_filepath, "rb") as file, formats.error_prefix(vocab_filepath), formats.paused_collector():
            names, vocab = formats.read_vocab(file.read(), specials)
            ids_of(without_second_ids(vocab, specials, ())[0])  # called for its errors, which should name this file
        with open(merges_filepath, encoding="utf-8-sig") as file, formats.error_prefix(merges_filepath):
            merges = formats.merges_of_file(file.read(), names, vocab)
            tokenizer = cls(vocab, merges, specials, pattern)
        if isinstance(merges, MergeIds) and not tokenizer._ignore_merges:
            tokenizer._warn_of_unreachable_tokens()
        return tokenizer

    def save(self, folder: bpe.FilePath, *, bos_token: str | None = None,
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

    @property
    def _encoder(self) -> Any:
        if self._made_encoder is None:
            self._made_encoder = self._new_encoder()
        return self._made_encoder

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode untrusted text, in which special tokens are plain text."""
        return self.ordinary.encode(text)

    @property
    def ordinary(self) -> Tokenizer:
        """The same tokenizer without special tokens."""
        if self._made_ordinary is None:
            self._made_ordinary = self._without_special_tokens()
        return self._made_ordinary

    def _new_encoder(self) -> Any:
        """Return an encoder of the C engine, or one in Python if C can't be used for this model."""
        engine = corpora.scanning_engine(self._options)  # None: not wanted, not built, or without the pattern
        encoder = engine.encoder(self) if engine and not self._is_prepared else None  # None: too many tokens for C
        return encoder or self._python_encoder(self._options.engine)

    @property
    def _is_prepared(self) -> bool:
        return bool(steps_of(self.pattern)[0] or self._lstrip or self._rstrip)

    def _python_encoder(self, engine: bpe.EngineName = "python") -> encoders.Encoder:
        """Return an encoder in Python; `engine` is for what comes after a encoders.PreparingEncoder."""
        return encoders.PreparingEncoder(self, engine) if self._is_prepared else encoders.Encoder(self)

    @property
    def _id_bytes(self) -> int:
        """The size of an id in an array: 2 bytes if that is enough for the whole vocabulary, else 4."""
        return 2 if max(self._vocab, default=0) < 1 << 16 else 4

    def encode(self, text: str) -> list[int]:
        """Encode text. C encodes the parts of a long one on all cores.

        Raises ValueError for a lone surrogate, or a byte without a token.
        """
        if not isinstance(text, str):
            slicing.to_utf8(text)  # raises the error
        if len(text) >= corpora.LONG_TEXT and self._encoder.most_threads > 1 and workers.count_cores() > 1:
            with contextlib.suppress(ValueError):  # encode() below raises it, with its place in the text
                return self._encode_parts(text)
        return self._encoder.encode_utf8(text.encode("utf-8"))  # type: ignore[no-any-return]

    def _encode_parts(self, text: str) -> list[int]:
        """Encode a long text in parts, in threads."""
        encoder = self._encoder

        def encode_part(part: tuple[int, int]) -> bytes:
            start, end = part
            ids, _ = encoder.encode_texts([text[start:end].encode("utf-8")], "u4")
            return ids  # type: ignore[no-any-return]

        parts: Any = corpora.parts_of_text(text, self.pattern, self._options.special_tokens)
        task: Any = encode_part
        results: Any = workers.run_tasks(task, parts, True, workers.MOST_WORKERS)
        with contextlib.closing(results):
            return encoder.list_of(((end, ids) for (_, end), ids in results), len(text))  # type: ignore[no-any-return]

    def encode_batch(self, texts: Iterable[str], workers: int | None = None,
                     errors: choices.Errors = "strict") -> list[list[int]]:
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
            slice_bytes, n_threads = corpora.BATCH_BYTES, self._encoder.most_threads
            results = corpus.run(self._encode_texts(errors), True, "", slice_bytes, n_threads)
            with contextlib.closing(results):
                return list(itertools.chain.from_iterable(lists for _, lists in results))
        finally:
            del pause

    def encode_arrays(self, texts: Iterable[str], workers: int | None = None,
                      errors: choices.Errors = "strict") -> tuple[memoryview, memoryview]:
        """Encode several texts as one array; return (ids, offsets).

        Text i has ids[offsets[i] : offsets[i + 1]]. ids is a memoryview of uint16 if the whole
        vocabulary fits, else uint32; offsets is one of uint64, with len(texts) + 1 numbers.
        numpy.asarray(ids), or torch.frombuffer(ids, dtype=torch.uint16), makes no copy.
        """
        id_bytes = self._id_bytes
        encode_texts = functools.partial(self._encode_texts(errors), kind=f"u{id_bytes}")
        ids, offsets = bytearray(), array("Q", [0])
        corpus = self._corpus(None, texts, workers=workers, errors=errors)
        results = corpus.run(encode_texts, True, "", slicing.SLICE_BYTES, self._encoder.most_threads)
        with contextlib.closing(results):
            for _, (more_ids, ends) in results:
                ids += more_ids
                offsets.extend(map(offsets[-1].__add__, ends))
        return memoryview(ids).cast("H" if id_bytes == 2 else "I"), memoryview(offsets)

    def _encode_texts(self, errors: choices.Errors) -> Any:
        """Return the function of the encoder that encodes texts, and leaves bytes without a token out if asked."""
        encode_texts = self._encoder.encode_texts
        return functools.partial(encode_texts, left_out=[]) if errors == "replace" else encode_texts

    def encode_iterable(self, iterable: Iterable[str], errors: choices.Errors = "strict") -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, the first after about 1 KB of text.

        It keeps some 64 KB of text in memory, or more if there is no place to cut (see bpe.WORD_END).
        """
        options = self._options._replace(errors=errors).checked()
        strings = slicing.join_surrogates(iterable) if errors == "replace" else iterable
        # "strict": join_surrogates has replaced all surrogates, or they are an error
        blocks = (b"".join(part.texts) for part in corpora.slices_of_texts(strings, 1 << 10, "strict"))
        pieces = slicing.cut_stream(blocks, options.pattern, options.special_tokens, 1 << 10, slicing.WINDOW_BYTES)
        encoder: Any = encoders.LeavingOut(self._encoder, []) if errors == "replace" else self._encoder
        return itertools.chain.from_iterable(map(encoder.encode_utf8, pieces))

    def rename_special_tokens(self, names: Mapping[str, str]) -> Tokenizer:
        """Return a tokenizer in which special tokens have other names: {old name: new name}; ids stay."""
        return changes.rename_special_tokens(self, names)  # type: ignore[no-any-return]

    def extend(self, input_path: bpe.Paths = None, n_tokens: int | None = None, *, texts: bpe.Strings = None,
               words: bpe.Counts | Iterable[tuple[bytes, int]] | None = None, **options: Any) -> Tokenizer:
        """Return a tokenizer that has learned n_tokens more from new text; old ids stay.

        Text is split and encoded as by this tokenizer, and its tokens are merged further, by the rule of
        training; a pair with the bytes of an old token is never merged. Instead of text, `words` has
        counts, as train_from_counts takes them; then n_tokens may be None: learn until each word is one
        token. Other options are those of train_bpe: min_word_count, min_frequency, errors, workers, engine,
        progress.
        """
        return changes.extend(self, input_path, n_tokens, texts=texts, words=words, **options)  # type: ignore[no-any-return]

    def prune(self, vocab_size: int | None = None, input_path: bpe.Paths = None, *, texts: bpe.Strings = None,
              errors: choices.Errors = "strict") -> Tokenizer:
        """Return a tokenizer with fewer tokens and new ids, without tokens that a text uses least.

        Without a text, the tokens with the greatest ids go first; without a size, those go that the text
        never uses. Single bytes, special tokens and tokens that merges use stay, so words without the others
        keep their tokens.
        """
        return changes.prune(self, vocab_size, input_path, texts=texts, errors=errors)  # type: ignore[no-any-return]

    def sources(self, old: Tokenizer) -> dict[int, list[int]]:
        """Return, for each id, the ids of a tokenizer that became this one: embeddings to copy or average."""
        return changes.sources(self, old)

    def encode_files(self, paths: bpe.Paths = None, output: bpe.FilePath = "", *, texts: bpe.Strings = None,
                     errors: choices.Errors = "strict", workers: int | None = None, engine: bpe.EngineName = "auto",
                     progress: bool = False, begin: str | None = None, end: str | None = None,
                     column: str | None = "text") -> int:
        """Encode files, or texts, as one array of token ids in the file `output`; return how many there are.

        numpy.load reads a .npy file: uint16 if the whole vocabulary fits, else uint32. A .bin file is the
        array alone, always of uint16, as nanoGPT reads it. With end="<|endoftext|>", or another special
        token, its id follows each file or text, in which special tokens are plain text; that of begin= comes
        before each one. By default no id is added. The folder of the output must exist. The docstring of
        training.train_bpe explains the options, and errors.
        """
        corpus = self._corpus(paths, texts, begin, end, errors=errors, workers=workers, engine=engine,
                              progress=progress, column=column)
        n_ids = corpora.encode_corpus(self, corpus, output)
        if not corpus.n_documents:
            warn("no text: the input has no rows")
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

    def decode(self, ids: Iterable[int], skip_special_tokens: bool = False) -> str:
        """Decode token ids to text; bytes that are not UTF-8 become U+FFFD."""
        data = b"".join(self._tokens(ids, True)) if skip_special_tokens else self.decode_bytes(ids)
        return data.decode("utf-8", "replace")

    def decode_iterable(self, ids: Iterable[int], skip_special_tokens: bool = False) -> Iterator[str]:
        """Decode ids as they come: a token with half of an "é" waits for the other half.

        Joined, the texts are decode(ids).
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for token in self._tokens(ids, skip_special_tokens):
            if text := decoder.decode(token):
                yield text
        if text := decoder.decode(b"", final=True):
            yield text

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Decode token ids to bytes. Raises ValueError for an id that is not in the vocabulary."""
        if isinstance(ids, Sequence) and set(map(type, ids)) <= {int}:  # faster; _tokens() raises the error
            with contextlib.suppress(KeyError, TypeError):
                return b"".join(map(self._vocab.__getitem__, ids))
        return b"".join(self._tokens(ids))

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
            if token is None or not is_integer(token_id):
                import numbers

                # a number in a tensor isn't equal to an integer, nor is a row of an array
                is_array = hasattr(token_id, "tolist") and not isinstance(token_id, numbers.Integral)
                way = "; pass integers, as ids.tolist() gives them" if is_array else ""
                raise ValueError(f"unknown token id {token_id!r:.60} at index {number}{way}")
            yield b"" if token_id in skipped else token


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


def plain_ids_of(vocab: Mapping[int, bytes]) -> dict[bytes, int]:
    """Return {token: id}. Each token has one id, from 0 to MAX_ID."""
    ids: dict[bytes, int] = {}
    for token_id, token in vocab.items():
        if not isinstance(token, bytes) or not is_integer(token_id) or not 0 <= token_id <= bpe.MAX_ID:
            hint = "" if isinstance(token, bytes) else "; for files, use from_files"
            entry = f"{token_id!r:.40} to {token!r:.40}"
            raise ValueError(f"vocab maps ids from 0 to {bpe.MAX_ID} to bytes, not {entry}{hint}")
        if token in ids:
            raise ValueError(f"the token {token!r:.40} has two ids, {ids[token]} and {token_id}")
        ids[token] = operator.index(token_id)
    return ids
