"""How fast a custom pattern trains, next to a named one and to other tools: in turns, each texts of 4,000 characters.

    pip install ffbpe rustbpe tokenizers
    python benchmarks/custom.py corpus.txt 32000
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

CUSTOM = bpe.PATTERNS["cl100k"].replace("{1,3}", "{1,2}")  # numbers in groups of two digits


def train_ffbpe(texts: list[str], size: int) -> None:
    import ffbpe

    counter = ffbpe.PreTokenizer([], None, CUSTOM).word_counter()
    counter.add_source(iter(texts))
    trainer = ffbpe.BpeTrainer([], tie_break="largest_content")  # the tie rule of bpe.py
    trainer.add_word_counter(counter)
    trainer.train(size)


def train_rustbpe(texts: list[str], size: int) -> None:
    import rustbpe

    rustbpe.Tokenizer().train_from_iterator(iter(texts), size, pattern=CUSTOM)


def train_tokenizers(texts: list[str], size: int) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(CUSTOM), "isolated"), byte_level])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)


TOOLS: dict[str, Callable[[list[str], int], object]] = {
    "bpe.py, cl100k": lambda texts, size: bpe.train_bpe(None, size, texts=texts, pattern="cl100k", engine="c"),
    "bpe.py, custom": lambda texts, size: bpe.train_bpe(None, size, texts=texts, pattern=CUSTOM, engine="c"),
    "ffbpe, custom": train_ffbpe,
    "rustbpe, custom": train_rustbpe,
    "tokenizers, custom": train_tokenizers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("vocab_size", type=int)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    text = Path(args.corpus).read_text(encoding="utf-8")
    texts = [text[start : start + 4000] for start in range(0, len(text), 4000)]
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in TOOLS}
    for _ in range(args.repeat):
        for name, train in TOOLS.items():
            wall, cpu = time.perf_counter(), time.process_time()
            train(texts, args.vocab_size)
            seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    print("| tool and pattern | seconds | of CPU |\n|---|---:|---:|")
    for name, runs in seconds.items():
        wall, cpu = map(statistics.median, zip(*runs))
        print(f"| {name} | {wall:.2f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
