"""Which vocabulary size? Bytes per token at every size, from one training for each corpus.

    python benchmarks/curve.py OUT.png NAME=CORPUS [NAME=CORPUS ...] [--vocab-size 50000]

CORPUS is a text, or a file of counts from --save-counts (.counts or .gz). Every merge saves a known number of tokens,
so the trainer's report says after each of them how many tokens the corpus has. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import bpe

END = "<|endoftext|>"


def curve(corpus: str, vocab_size: int) -> tuple[list[int], list[float]]:
    """(vocabulary sizes, bytes per token at each)"""
    report = bpe.Report()
    if corpus.endswith((".counts", ".gz")):
        words = bpe.counts_from_files([corpus], "gpt2", report, bpe.use_c("auto"))
    else:
        words = bpe.count_corpus(corpus, None, bpe.Rules("gpt2", (END,)), None, False, report, bpe.use_c("auto"))
    learn = bpe.learn_merges_in_c if bpe.use_c("auto") else bpe.learn_merges
    vocab = bpe.initial_vocab([END])
    sizes, ratios = [], []
    for made, _ in enumerate(learn(words, vocab, vocab_size, report=report)):
        sizes.append(len(vocab) + made)  # the merge that was just chosen is not in the report yet
        ratios.append(report.bytes_in_words / report.tokens)
    return [*sizes, len(vocab) + len(sizes)], [*ratios, report.bytes_in_words / max(report.tokens, 1)]


def main() -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output")
    parser.add_argument("corpora", nargs="+", metavar="NAME=CORPUS")
    parser.add_argument("--vocab-size", type=int, default=50_000)
    args = parser.parse_args()
    figure, axes = plt.subplots(figsize=(8, 4.8), layout="constrained")
    for number, item in enumerate(args.corpora):
        name, corpus = item.split("=", 1)
        sizes, ratios = curve(corpus, args.vocab_size)
        axes.plot(sizes, ratios, label=name, color=f"C{number}", linewidth=2)
        axes.annotate(f"{ratios[-1]:.2f}", (sizes[-1], ratios[-1]), textcoords="offset points", xytext=(4, -3), color=f"C{number}")
        for size in (1_000, 10_000, 32_000):
            if size in sizes:
                print(f"{name}: {ratios[sizes.index(size)]:.2f} bytes per token at {size:,}")
    axes.set(xscale="log", xlabel="vocabulary size (tokens)", ylabel="bytes per token on the training corpus", title="How much a larger vocabulary compresses")
    axes.set_xlim(right=args.vocab_size * 1.35)
    axes.set_xticks([256, 1_000, 3_000, 10_000, 30_000], ["256", "1,000", "3,000", "10,000", "30,000"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(title="corpus")
    figure.savefig(args.output, dpi=110)


if __name__ == "__main__":
    main()
