"""Compare the C engine with the Python engine on random texts for some seconds: `python .ci/fuzz.py 60`.

It does so for three builds, since the scanner differs between them: for this machine, for no processor in particular,
and for AVX2 where there is one.
"""

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
PARTS = ["a", "b", "e", "s", "t", "Z", "'", "'ll", "'ve", "'s", " ", " ", "  ", "\t", "\n", "\r\n", "1", "23", "."]
PARTS += ["é", "ß", "字", "漢字", "一" * 9, "\u3000", "\u00a0", "\u2028", "\u0301", "😀", "\U0001f468\u200d", "\ufeff"]
PARTS += ["\0", "\x1c", "²", "<", "<|", "word" * 5, "x" * 70, " " * 66, "。" * 30, "9" * 40, "\n" * 20]
SPECIALS = [[], ["<|endoftext|>"], ["<|", "<|<|"], ["字", " 's"], ["aa", "a "], ["\n\n", "\u3000"]]


def compare(seconds: float) -> None:
    import bpe

    assert bpe.C is not None
    seed, rounds, end = time.time_ns(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        rng = random.Random(seed + rounds)
        rounds += 1
        specials = rng.choice(SPECIALS)
        parts = rng.sample(PARTS, rng.randint(1, len(PARTS))) + specials
        text = "".join(rng.choices(parts, k=rng.randint(0, 2000)))
        rules = bpe.Rules("gpt2", tuple(specials))
        place = f"seed {seed + rounds - 1}"
        words, data = bpe.CWords(specials), text.encode()
        words.count_slice(bpe.Slice("text", 0, None, data), rules)
        expected = bpe.count_text([text], rules)[0]
        assert words.counts() == expected, f"{place}: other words"
        vocab, limit = bpe.initial_vocab(specials), rng.choice([None, None, 6])
        options = {"min_frequency": rng.choice([1, 1, 3]), "max_token_length": limit}
        size = len(vocab) + rng.choice([5, 100, 1000])
        in_c = list(bpe.learn_merges_in_c(words, vocab, size, **options))
        assert in_c == list(bpe.learn_merges(expected, vocab, size, **options)), f"{place}: other merges"
    print(f"{rounds} random texts, from seed {seed}: both engines agree")


def main() -> None:
    if len(sys.argv) == 3:
        sys.path.insert(0, sys.argv[2])
        compare(float(sys.argv[1]))
        return
    seconds = float(sys.argv[1])
    builds = [[], ["--flags=-O2"]]
    cpu = Path("/proc/cpuinfo")
    if cpu.exists() and " avx2 " in cpu.read_text():
        builds.append(["--flags=-O3 -march=haswell"])
    for flags in builds:
        with tempfile.TemporaryDirectory() as folder:
            for name in ("bpe.py", "bpe_fast.c", "build_ffi.py"):
                shutil.copy(HERE / name, folder)
            subprocess.run([sys.executable, f"{folder}/build_ffi.py", *flags], check=True)
            subprocess.run([sys.executable, __file__, str(seconds / len(builds)), folder], check=True)


if __name__ == "__main__":
    main()
