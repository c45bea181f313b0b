"""Encode texts with llama.cpp, and compare the ids with those of Tokenizer.

    pip install llama-cpp-python gguf regex     (compiles llama.cpp: 10 to 30 minutes)
    python tests/programs/llama.py

A model with each named pattern is written as a GGUF file that has a vocabulary only. llama.cpp chooses how it splits
text by a name in that file, tokenizer.ggml.pre, and its converter chooses the name by the ids of one text, so that a
new model has to be given its name. The table shows how many texts get other ids with each name that is tried.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parent)]
import clients  # noqa: E402 (the texts)

import bpe  # noqa: E402
from bpe_more.tokenizer import Tokenizer  # noqa: E402

NAMES = {"gpt2": ["gpt-2"], "cl100k": ["llama-bpe", "dbrx"], "o200k": ["gpt-4o"], "llama3": ["llama-bpe"], "qwen2": ["qwen2"]}


def write_gguf(tokenizer: Tokenizer, name: str, path: Path) -> None:
    """Write a vocabulary, with special tokens as control tokens."""
    import gguf

    texts = {token_id: bpe.to_printable(token) for token_id, token in tokenizer.vocab.items()}
    texts |= {token_id: text for text, token_id in tokenizer.special_ids.items()}
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    specials = set(tokenizer.special_ids.values())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(name)
    writer.add_token_list([texts[token_id] for token_id in range(len(texts))])
    writer.add_token_types([control if token_id in specials else normal for token_id in range(len(texts))])
    writer.add_token_merges([" ".join(map(bpe.to_printable, pair)) for pair in tokenizer.merges])
    writer.add_add_bos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    import llama_cpp

    print("| pattern | tokenizer.ggml.pre | texts | other ids | of them without letters of Unicode 15.1 and later |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        texts, all_ids = clients.prepare(Path(folder))
        for pattern, name in ((pattern, name) for pattern, names in NAMES.items() for name in names):
            path = Path(folder, "vocab.gguf")
            write_gguf(Tokenizer.load(Path(folder, pattern)), name, path)
            model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
            found = [model.tokenize(text.encode(), add_bos=False, special=True) if text else [] for text in texts]
            wrong = [text for text, theirs, ours in zip(texts, found, all_ids[pattern]) if theirs != ours]
            older = [text for text in wrong if not set(text) & set(clients.NEWEST)]
            print(f"| {pattern} | {name} | {len(texts)} | {len(wrong)} | {len(older)} |")
            for text in older[:4]:
                print(f"    {text[:60]!a}", file=sys.stderr)


if __name__ == "__main__":
    main()
