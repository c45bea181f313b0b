"""The class Tokenizer: text to token ids and back, for models of every program.

vocabulary    its tokens, merges, special tokens and settings, the words that ignore_merges keeps whole, and decoding;
              Tokenizer extends that class
encoders      encoding in Python, with ignore_merges, too; preparing text for the encoder in C
changes       more tokens from new text, other names for special tokens, fewer tokens

Gives: Tokenizer, which is public.
Uses: choices, corpus.arrays, corpus.reading, corpus.slicing, errors, formats.gpt2, formats.huggingface,
formats.kinds, formats.saving, patterns.steps, changes, encoders, vocabulary, training.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import bpe
from bpe_more import choices, training
from bpe_more.corpus import arrays, reading, slicing
from bpe_more.errors import warn
from bpe_more.formats import gpt2, huggingface, kinds, saving
from bpe_more.formats.gpt2 import MergeIds
from bpe_more.patterns import steps
from bpe_more.patterns.steps import SpecialTokens
from bpe_more.tokenizer import changes, encoders
from bpe_more.tokenizer.vocabulary import Vocabulary, ids_of, without_second_ids


class Tokenizer(Vocabulary):
    """Encode text with a trained vocabulary, and decode token ids.

    vocab           {token id: token}; a byte without an id can't be encoded
    merges          [(left, right), ...] in the order of their ranks
    special_tokens  texts that become one token each; the longest match wins. Those that vocab lacks get the
                    ids after its greatest one
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

    encode() merges by rank (see bpe.check_merges), so merges may be in any order, but none may come twice.
    Raises ValueError if vocabulary and merges contradict each other.

    Models of other programs have more:

    pattern         may be a tuple of steps, the first of which may be "NFC" or "NFKC"
    kept            special tokens that decode() never skips: "special": false in tokenizer.json
    normalized      special tokens that are searched for in normalized text; the others are searched for
                    before the normal form is applied
    lstrip, rstrip  special tokens that remove the whitespace before them, and after them
    rest            {name: value} of entries of tokenizer.json that encode() ignores and save() writes back:
                    "post_processor" (templates), "truncation", "padding". encode() never adds the tokens of
                    a template, as with add_special_tokens=False in other programs
    ignore_merges   a word that is a token stays whole; it has this name in tokenizer.json. Merges that
                    read_tiktoken returns (IgnoredMerges) set it, since tiktoken does so

    unreachable     {id: name} of tokens that no program ever finds in text: their names in tokenizer.json
                    have a character that stands for no byte, such as a space ("a b" should be "aĠb"), and
                    no merge uses them. They decode as their names, which another token may have as bytes

    shared          {id: special token} of special tokens that are ordinary tokens, too. Other programs know
                    a token by its name in tokenizer.json, so a special token "é" is also the byte E9, and
                    a special token "ferry" is also the token "ferry" that merges make

    Two ids may have the same bytes if the one later in vocab is a special token's, or unreachable: in
    {5: b"<s>", 9: b"<s>"}, 9 is the special token.

    Warns of tokens that encode() can never give, unless the merges are a tuple (as in copies, and in models
    from load()): models of other programs may have such tokens, which these programs never give, either.
    """

    def with_only(self, special_tokens: Sequence[str], pattern: Any = None) -> Tokenizer:
        """Return a tokenizer with some of the special tokens, without lstrip and the like, and perhaps other steps."""
        if pattern is None:  # not `if not pattern`: () means no steps, as after ("NFC",)
            pattern = self.pattern
        shown = set(special_tokens)  # looking up 10,000 of them in a tuple would take a second
        hidden = {token_id for text, token_id in self._special_ids.items() if text not in shown}
        hidden.update(self.unreachable)
        hidden.difference_update(self.shared)
        merges = self.merge_ids
        if not hidden.isdisjoint(merges.numbers):  # no merge makes a hidden token, so merges that use it do nothing
            applied = (ids for ids in merges if hidden.isdisjoint(ids))
            merges = MergeIds(itertools.chain.from_iterable(applied))
        vocab = {token_id: token for token_id, token in self._vocab.items() if token_id not in hidden}
        shared = {token_id: special for token_id, special in self.shared.items() if special in shown}
        return Tokenizer(vocab, merges, special_tokens, pattern, ignore_merges=self._ignore_merges, shared=shared)

    def with_special_tokens(self, special_tokens: Iterable[str]) -> Tokenizer:
        """Return a tokenizer with more special tokens, which get the next ids; all else stays."""
        specials = *self.special_tokens, *steps.check_special_tokens(special_tokens)
        return type(self)(self._vocab, self.merge_ids, specials, self.pattern, **self.settings())

    @classmethod
    def train(cls, input_path: bpe.Paths = None, vocab_size: int | None = None, special_tokens: bpe.Strings = None, *,
              texts: bpe.Strings = None, pattern: str = "gpt2", errors: choices.Errors = "strict",
              min_word_count: int = 1, min_frequency: int = 1, workers: int | None = None,
              engine: bpe.EngineName = "auto", progress: bool = False, column: str | None = "text") -> Tokenizer:
        """Train a tokenizer. The docstring of training.train_bpe explains all arguments, and errors."""
        specials = steps.check_special_tokens(special_tokens)
        saving.check_special_names(specials, steps.check_pattern(pattern))  # save() will be able to write them
        vocab, merges = training.train_bpe(
            input_path, vocab_size, specials, texts=texts, pattern=pattern, errors=errors,
            min_word_count=min_word_count, min_frequency=min_frequency, workers=workers, engine=engine,
            progress=progress, column=column,
        )  # fmt: skip
        return cls(vocab, merges, specials, pattern)

    @classmethod
    def load(cls, path: bpe.FilePath) -> Tokenizer:
        """Load a tokenizer.json, or the one in a folder; a tekken.json; or a .model of minbpe.

        encode() gives the same ids as the program that wrote the file, without the tokens that a template
        adds around text. Raises ValueError if a file isn't supported.
        """
        path = kinds.model_path(path)
        with open(path, "rb") as file, kinds.error_prefix(path), gpt2.paused_collector():
            model, settings = huggingface.read_model(file.read())
            return cls(*model, **settings)

    @classmethod
    def from_files(cls, vocab_filepath: bpe.FilePath, merges_filepath: bpe.FilePath,
                   special_tokens: bpe.Strings = None, pattern: Any = "gpt2") -> Tokenizer:
        """Load a vocab.json and a merges.txt as GPT-2 or save() write them.

        A special token is looked up in vocab.json by its text, then by the name that bpe.to_printable()
        gives it; if neither is there, it gets a new id. vocab.json may have both, such as "  " and "ĠĠ",
        which have the same bytes.
        """
        specials = steps.check_special_tokens(special_tokens)
        with open(vocab_filepath, "rb") as file, kinds.error_prefix(vocab_filepath), gpt2.paused_collector():
            names, vocab = gpt2.read_vocab(file.read(), specials)
            ids_of(without_second_ids(vocab, specials, ())[0])  # called for its errors, which should name this file
        with open(merges_filepath, encoding="utf-8-sig") as file, kinds.error_prefix(merges_filepath):
            merges = gpt2.merges_of_file(file.read(), names, vocab)
            tokenizer = cls(vocab, merges, specials, pattern)
        # as __init__ does for merges that are pairs; a subclass may have set ignore_merges
        if isinstance(merges, MergeIds) and not tokenizer.ignore_merges:
            tokenizer.warn_of_unmade()
        return tokenizer

    def save(self, folder: bpe.FilePath, *, bos_token: str | None = None,
             eos_token: str | None = None, pad_token: str | None = None, chat_template: str | None = None) -> None:
        """Save the model in a folder: tokenizer.json, and files for other programs.

        Files with these names are replaced, even a merges.txt that was the corpus. load() finds the old
        model or the new one, even after Ctrl-C, a full disk, or a power cut. If a power cut or `kill -9`
        comes while files are replaced, vocab.json and merges.txt may both be old ones, or one or both
        missing. bos_token, eos_token, pad_token (each one of the special tokens) and the chat template
        are for transformers. Those already in the folder stay unless you pass new ones. Roles and added
        tokens in the folder that aren't special tokens of this model are left out, with a warning.
        """
        roles = {"bos_token": bos_token, "eos_token": eos_token, "pad_token": pad_token, "chat_template": chat_template}
        model = self._vocab, self.merge_ids, self._special_ids, self.pattern
        with gpt2.paused_collector():
            note = saving.save_model(*model, folder, self.settings(), roles)
        if note:
            warn(f"{os.fspath(folder)}: {note}")

    @property
    def encoder(self) -> Any:
        """The encoder of this model: in C, or in Python if C can't be used for it."""
        if self._made_encoder is None:
            self._made_encoder = encoders.new_encoder(self, "auto")
        return self._made_encoder

    def encoder_for(self, engine_name: bpe.EngineName) -> Any:
        """Return `encoder`, or for the name "python" a new one in Python."""
        return encoders.new_encoder(self, "python") if engine_name == "python" else self.encoder

    def encode_ordinary(self, text: str) -> list[int]:
        """Encode untrusted text, in which special tokens are plain text."""
        return self.ordinary.encode(text)

    @property
    def ordinary(self) -> Tokenizer:
        """The same tokenizer without special tokens."""
        if self._made_ordinary is None:
            self._made_ordinary = self.with_only(())
        return self._made_ordinary  # type: ignore[no-any-return]

    def encode(self, text: str) -> list[int]:
        """Encode text. A long one is encoded in parts, on all cores, if C is built.

        Raises ValueError for a lone surrogate, or a byte without a token.
        """
        if not isinstance(text, str):
            raise TypeError(f"text must be a str, not {type(text).__name__}")
        return self.encoder.encode(text)  # type: ignore[no-any-return]

    def encode_batch(self, texts: Iterable[str], workers: int | None = None,
                     errors: choices.Errors = "strict") -> list[list[int]]:
        """Encode several texts, on all cores if C is built. An error has the number of its text.

        errors="replace": lone surrogates become U+FFFD, and bytes without a token are left out.
        """
        if isinstance(texts, list) and len(texts) == 1 and workers is None and errors == "strict":
            with contextlib.suppress(ValueError, TypeError):  # raised below, with the number of the text
                return [self.encode(texts[0])]
        # The garbage collector would look through all lists again and again, which takes half of the
        # time. It stays off until `pause` is freed.
        pause = self.encoder.pause_collector()
        try:
            with contextlib.closing(self._encode_slices(texts, workers, errors, reading.BATCH_BYTES)) as results:
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
        ids, offsets, kind = bytearray(), array("Q", [0]), f"u{self.id_bytes}"
        with contextlib.closing(self._encode_slices(texts, workers, errors, slicing.SLICE_BYTES, kind)) as results:
            for _, (more_ids, ends) in results:
                ids += more_ids
                offsets.extend(map(offsets[-1].__add__, ends))
        return memoryview(ids).cast("H" if self.id_bytes == 2 else "I"), memoryview(offsets)

    def _encode_slices(self, texts: Iterable[str], workers: int | None, errors: choices.Errors, slice_bytes: int,
                       kind: str = "") -> Any:
        """Return an iterator of (slice, its texts as encode_texts() encodes them), which the caller closes."""
        corpus = self.corpus_of(None, texts, workers=workers, errors=errors)
        left_out = [0] if errors == "replace" else None  # a place for the count of bytes left out, which isn't used
        encode_texts = functools.partial(self.encoder.encode_texts, kind=kind, left_out=left_out)
        most_workers = self.encoder.most_threads
        return corpus.results(encode_texts, in_threads=True, slice_bytes=slice_bytes, most_workers=most_workers)

    def encode_iterable(self, iterable: Iterable[str], errors: choices.Errors = "strict") -> Iterator[int]:
        """Yield the ids of encode("".join(iterable)) one by one, the first after about 1 KB of text.

        It keeps some 64 KB of text in memory, or more if there is no place to cut (see bpe.WORD_END).
        """
        options = self.options._replace(errors=errors).checked()
        strings = slicing.join_surrogates(iterable) if errors == "replace" else iterable
        # "strict" in both cases: with "replace", join_surrogates() has replaced lone surrogates already
        blocks = (b"".join(part.texts) for part in reading.slices_of_texts(strings, 1 << 10, "strict"))
        pieces = slicing.cut_stream(blocks, options.pattern, options.special_tokens, 1 << 10, slicing.WINDOW_BYTES)
        left_out = [0] if errors == "replace" else None
        return itertools.chain.from_iterable(self.encoder.encode_utf8(piece, left_out) for piece in pieces)

    # These are functions of changes.py, whose first argument is the tokenizer.
    rename_special_tokens = changes.rename_special_tokens
    extend = changes.extend
    prune = changes.prune
    sources = changes.sources

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
        corpus = self.corpus_of(paths, texts, begin, end, errors=errors, workers=workers, engine=engine,
                              progress=progress, column=column)
        n_ids = arrays.encode_corpus(self, corpus, output)
        if not corpus.n_documents:
            warn("no text: the input has no rows")
        return n_ids

    def corpus_of(self, paths: bpe.Paths, texts: bpe.Strings, begin: str | None = None, end: str | None = None,
                **given: Any) -> reading.Corpus:
        """Return a corpus of files or texts with this tokenizer's options; `given` are options that replace them."""
        options = self.options
        if begin is not None or end is not None:  # special tokens in documents are plain text (see SpecialTokens)
            as_text = SpecialTokens(options.special_tokens)
            as_text.are_text = True
            options = options._replace(special_tokens=as_text)
        # a batch of two short texts would take a third longer if the options were checked again
        if any(getattr(options, name) != value for name, value in given.items()):
            options = options._replace(**given).checked()
        return reading.Corpus(paths, texts, options, begin, end)
