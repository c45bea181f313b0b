"""Models as other programs write them, for several files of tests."""

import functools
import json

import bpe
from shared import trained
from test_bpe import naive_files

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 12345\n"


# The models that people have, rebuilt small. `pattern` is an expression, or a list of steps; the rest are entries.
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
OWN_PATTERN = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
EACH_DIGIT = {"type": "Digits", "individual_digits": True}
THREE_DIGITS, KANA = r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"


def split_at(expression, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": behavior, "invert": behavior == "Removed"}


def template(token):
    single = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    specials = {token: {"id": token, "ids": [2000], "tokens": [token]}}
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    processor = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": specials}
    return {"post_processor": {"type": "Sequence", "processors": [BYTE_LEVEL, processor]}}


def with_spaces(*, normalized):
    return [("<|padding|>", {}), *((" " * n, {"normalized": normalized, "special": False}) for n in range(2, 6))]


LLAMA = {"steps": [split_at(bpe.PATTERNS["llama3"]), BYTE_LEVEL], "all_splits": True, "ignore_merges": True}
QWEN = {"steps": [split_at(bpe.PATTERNS["qwen2"]), BYTE_LEVEL], "normalizer": {"type": "NFC"}}
KINDS = {
    "Llama 3": LLAMA,
    "Llama 3.1": {**LLAMA, **template("<|begin|>")},
    "Llama 3.2": {**LLAMA, **template("<|begin|>"), "truncation": {
        "direction": "Right", "max_length": 10**6, "strategy": "LongestFirst", "stride": 0}},
    "gpt-oss": {**LLAMA, "steps": [split_at(bpe.PATTERNS["o200k"]), BYTE_LEVEL]},
    "GPT-3.5": {"steps": [split_at(bpe.PATTERNS["llama3"], "Removed"), BYTE_LEVEL]},
    "GPT-4o": {"steps": [split_at(bpe.PATTERNS["o200k"], "Removed"), BYTE_LEVEL], "all_splits": True},
    "Qwen 2.5": QWEN,
    "Qwen 3": {**QWEN, "added": [("<|im_end|>", {}), ("<think>", {"special": False}), ("\u00e9\u0301<", {})]},
    "Claude": {"steps": OWN_PATTERN, "normalizer": {"type": "NFKC"}, "added": [("<EOT>", {}), ("<META>", {})]},
    "GPT-NeoX": {"steps": OWN_PATTERN, "normalizer": {"type": "NFC"}, "added": with_spaces(normalized=True)},
    "RoBERTa": {"steps": OWN_PATTERN, "added": [("<s>", {}), ("</s>", {}), ("<mask>", {"lstrip": True})], "lossy": True},
    "ModernBERT": {"steps": OWN_PATTERN, "normalizer": {"type": "NFC"},
                   "added": [*with_spaces(normalized=True), ("[SEP]", {}), ("[MASK]", {"lstrip": True})]},
    "StarCoder": {"steps": [EACH_DIGIT, OWN_PATTERN]},
    "SmolLM": {"steps": [{"type": "Digits", "individual_digits": False}, OWN_PATTERN], "decoder": None},
    "DeepSeek": {"steps": [split_at(THREE_DIGITS), split_at(KANA), split_at(DEEPSEEK), BYTE_LEVEL],
                 "normalizer": {"type": "Sequence", "normalizers": []}},
    "BLOOM": {"steps": [split_at(r" ?[^(\s|[.,!?…。，、।۔،])]+"), BYTE_LEVEL]},
    "Falcon": {"steps": [{"type": "Punctuation", "behavior": "Contiguous"}, OWN_PATTERN,
                         {"type": "Digits", "individual_digits": False}, split_at("[0-9][0-9][0-9]")]},
    "Falcon with each digit": {"steps": [{"type": "Punctuation", "behavior": "Isolated"}, OWN_PATTERN, EACH_DIGIT]},
    "one word": {"steps": BYTE_LEVEL},
    "matches only": {"steps": [split_at(r"[a-z ]+|\d", "Removed"), BYTE_LEVEL], "lossy": True},
}  # fmt: skip


@functools.cache
def foreign(kind):
    """The contents of a tokenizer.json, written by hand: 256 bytes and merges, words that no merge makes, and added tokens."""
    options = {"added": [("<|begin|>", {}), ("<|end|>", {})], "all_splits": False, "steps": None, **KINDS[kind]}
    _, merges = trained(2000)
    tokens = [bytes([byte]) for byte in range(256)] + [b"".join(pair) for pair in merges]
    tokens = list(dict.fromkeys(tokens))[:1995] + [b" ferrys", b"zzz", "字字".encode(), "\u00e9t\u00e9s".encode(), b"1234567"]
    ids = {token: number for number, token in enumerate(tokens)}
    merges = [pair for pair in merges if b"".join(pair) in ids]
    if options["all_splits"]:
        splits = [(ids[token], ids[token[:n]], ids[token[n:]]) for token in tokens for n in range(1, len(token))
                  if token[:n] in ids and token[n:] in ids]  # fmt: skip
        merges = [(tokens[left], tokens[right]) for _, left, right in sorted(splits)]
    shown, lines = naive_files(dict(enumerate(tokens)), merges)
    added = [
        {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True, **flags} for number, (text, flags) in enumerate(options["added"], len(tokens))
    ]  # fmt: skip
    steps = options["steps"]
    model = {"type": "BPE", "vocab": shown, "merges": lines.splitlines()[1:], "ignore_merges": options.get("ignore_merges", False)}
    content = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps} if isinstance(steps, list) else steps,
        "post_processor": None, "decoder": BYTE_LEVEL, "model": model,
    }  # fmt: skip
    entries = {name: options[name] for name in ("normalizer", "post_processor", "truncation", "decoder") if name in options}
    return json.dumps({**content, **entries}, ensure_ascii=False)
