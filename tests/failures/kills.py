"""Kill saves and encodings at random moments: `python tests/failures/kills.py 500 [SEED]`; `30s` is a bound in seconds.

A child saves one of two models in the same folder, encodes a text onto the same array, or trains, with either engine
and two workers. After a random time it gets SIGKILL, SIGTERM or SIGINT. Then the folder must have the old model or the
new one, whole, for load() and for programs that read vocab.json and merges.txt; the array must be a whole one; inputs
must be as they were; workers must have ended; and what stays of SIGKILL must be recognizable: NAME.N.bpe.tmp.
"""

import ctypes
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE / "tests"))
sys.path.insert(0, str(HERE))
from bounds import bounded, choose_seed  # noqa: E402
from bpe_more import choices, command, training  # noqa: E402
from bpe_more.corpus import reading, slicing  # noqa: E402
from bpe_more.errors import sigterm_as_ctrl_c  # noqa: E402
from bpe_more.formats.saving import model_files  # noqa: E402
from bpe_more.tokenizer import Tokenizer  # noqa: E402

END = "<|endoftext|>"
PR_SET_CHILD_SUBREAPER = 36  # orphans become children of this process, so that it can wait for them
SIGNALS = [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]


def children_ended() -> None:
    """Wait for all children and orphans; one that stays for 30 seconds is a failure."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.002)
        except ChildProcessError:
            return
    raise AssertionError("a worker is still there")


def start(job: Callable[[], object]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[-2:])  # outside of `try`, a child would remove the folder of all
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[-2:])
        return pid
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with sigterm_as_ctrl_c():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[-2:])
            job()
        status = 0
    finally:
        os._exit(status)


def main(bound: str, seed: int, folder: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    text = folder / "text.txt"
    text.write_bytes((HERE / "fixtures/corpus.txt").read_bytes() * 10)
    before = text.read_bytes()
    trained = [training.train_bpe(text, size, [END], pattern=name) for size, name in ((3000, "gpt2"), (4000, "o200k"))]
    tokenizers = [Tokenizer(*trained[0], [END]), Tokenizer(*trained[1], [END], "o200k")]
    arrays, pairs = [], []
    for number, tokenizer in enumerate(tokenizers):
        alone = folder / f"alone{number}"
        tokenizer.save(alone)
        pairs.append([(alone / name).read_bytes() for name in ("vocab.json", "merges.txt")])
        tokenizer.encode_files(text, alone / "ids.npy", workers=1)
        arrays.append((alone / "ids.npy").read_bytes())
    shared, output = folder / "model", folder / "ids.npy"
    tokenizers[0].save(shared)
    output.write_bytes(arrays[0])
    slicing.SLICE_BYTES = reading.SLICE_BYTES_IN_C = 50_000
    engines = ["python", "c"] if choices.find_engine()[0] else ["python"]

    def job(kind: str, tokenizer: Tokenizer, engine: str) -> Callable[[], object]:
        if kind == "save":
            return lambda: tokenizer.save(shared)
        if kind == "train":
            size = str(len(tokenizer))
            options = ["--pattern", str(tokenizer.pattern), "--model", str(shared), "--workers", "2"]
            return lambda: command.main([str(text), size, "--quiet", *options])
        return lambda: tokenizer.encode_files(text, output, engine=engine, workers=2)  # type: ignore[arg-type]

    longest: dict[tuple[str, str], float] = {}
    seen: Counter[str] = Counter()
    rng, n = random.Random(seed), 0
    begun = time.monotonic()
    for number in bounded(bound):
        n += 1
        kind, engine = rng.choice(["save", "save", "encode", "train"]), rng.choice(engines)
        new = rng.randrange(2)
        if (kind, engine) not in longest:
            start_time = time.monotonic()
            os.waitpid(start(job(kind, tokenizers[new], engine)), 0)
            longest[kind, engine] = time.monotonic() - start_time
        child = start(job(kind, tokenizers[new], engine))
        time.sleep(rng.uniform(0, longest[kind, engine]))
        how = rng.choice(SIGNALS)
        os.kill(child, how)
        children_ended()

        loaded = Tokenizer.load(shared)
        which = [model == (loaded.vocab, loaded.merges) for model in trained]
        assert any(which), f"{number}: a mixed model"
        pair = [(shared / name).read_bytes() for name in ("vocab.json", "merges.txt") if (shared / name).exists()]
        assert len(pair) < 2 or pair in pairs, f"{number}: vocab.json and merges.txt of two models"
        assert output.read_bytes() in arrays, f"{number}: not a whole array"
        assert text.read_bytes() == before, f"{number}: an input is lost"
        names = {path.name for path in [*shared.iterdir(), *folder.iterdir()]}
        left = [name for name in names if re.fullmatch(r".+\.\d+\.bpe\.tmp", name)]
        known = {Path(path).name for path in model_files(shared)} | {"ids.npy", "text.txt", "model", "alone0", "alone1"}
        assert names - set(left) <= known, f"{number}: {names - set(left) - known}"
        assert how == signal.SIGKILL or not left, f"{number}: {left} after {how.name}"
        for path in [*shared.glob("*.bpe.tmp"), *folder.glob("*.bpe.tmp")]:
            path.unlink()
        seen[f"{kind}, {how.name}"] += 1
        seen["temporary files left by SIGKILL"] += len(left)
        seen["vocab.json or merges.txt missing"] += len(pair) < 2
        seen["old pair beside the new tokenizer.json"] += len(pair) == 2 and pair != pairs[which.index(True)]
    print(f"{n} kills in {time.monotonic() - begun:.0f} s: {dict(sorted(seen.items()))}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        main(sys.argv[1], choose_seed(sys.argv[2:]), Path(name))
