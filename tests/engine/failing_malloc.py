"""Let every allocation of some calls fail: `python tests/engine/failing_malloc.py FOLDER`, for the bpe.py in FOLDER.

Each call runs again and again: first without its first allocation, then without its second one, and so on, in Python and
in C, until a run needs no more of them. Then ten in a row fail, which also meets the code that cleans up. Each time, the
call must raise MemoryError or give the right result, and the next call of the same objects must give it. This needs
failing_malloc.c as a library in LD_PRELOAD, and PYTHONMALLOC=malloc: tests/engine/sanitize does that, with a sanitized
C engine. What Python prints about destructors ("Exception ignored") is no failure.
"""

import ctypes
import faulthandler
import os
import sys
import tempfile
import threading
import time
from array import array
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[1] if len(sys.argv) > 1 else str(Path(__file__).resolve().parents[2]))
from bpe_more import choices, training
from bpe_more.corpus import reading, slicing
from bpe_more.tokenizer import Tokenizer, encoders

HERE = Path(__file__).resolve().parents[2]
TEXT = (HERE / "fixtures/corpus.txt").read_text(encoding="utf-8")
END = "<|endoftext|>"
# What Python itself raises instead of MemoryError: for a file; for any path that is not a str; the last two for the
# handler of a signal.
PYTHONS = ["can't allocate", "os.PathLike", "error return without exception set", "NULL without setting an exception"]
C = ctypes.PyDLL(None)
C.fail_from.argtypes, C.fail_from.restype = (ctypes.c_long, ctypes.c_long), None
C.pause_failures.argtypes = C.continue_failures.argtypes = ()
C.pause_failures.restype = C.continue_failures.restype = None
C.fail_no_more.argtypes, C.fail_no_more.restype = (), ctypes.c_long


def during(n: int, most: int, left: list[int], call: Any, *arguments: Any) -> Any:
    """Return call(*arguments), in which the n-th allocation of this thread fails, and those that follow it, `most` in all.

    How many of them were still to come after the call is appended to `left`.
    """
    try:
        C.fail_from(n, most)
        return call(*arguments)
    finally:
        number = None
        while number is None:
            try:
                number = C.fail_no_more()
            except MemoryError:
                continue
        left.append(number)


def fail_each(name: str, call: Any, expected: Any, most: int, in_threads: bool) -> None:
    for _ in range(2):  # what is imported, or kept for the next call, exists from now on
        assert call() == expected, f"{name}: another result"
    n = errors = 0
    left = [0]
    apply_to_slice, engine = reading.apply_to_slice, choices.find_engine()[0]

    def run_failing_task(*arguments: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread(), f"{name}: no threads"
        engine.lib.bpe_cache_free(engine.ffi.NULL)  # glibc aborts if it has no memory for variables of a thread
        C.fail_no_more()
        return during(n, most, left, apply_to_slice, *arguments)

    while min(left, default=most) < most:
        faulthandler.dump_traceback_later(60, exit=True)  # if the call hangs
        n += 1 + most // 2
        left.clear()
        place = f"{name}, allocation {n}"
        try:
            if in_threads:
                reading.apply_to_slice = run_failing_task
                result = call()
            else:
                result = during(n, most, left, call)
            assert result == expected, f"{place}: another result"
        except MemoryError:
            errors += 1
        except (RuntimeError, TypeError, SystemError) as error:
            assert any(text in str(error) for text in PYTHONS), f"{place}: {error!r}"
            errors += 1
        finally:
            reading.apply_to_slice = apply_to_slice
        assert call() == expected, f"{place}: another result in the next call"
    print(f"{name}: {n} allocations, {most} at a time, {errors} errors")


def main() -> None:
    faulthandler.enable()
    if sys.version_info >= (3, 12):  # f = lambda a: dict((x, x) for x in a), called without memory, then once more
        print("failing_malloc.py: not run, since Python 3.12.1 and 3.13.0 crash if there is no memory for a generator")
        return

    assert choices.find_engine()[0], choices.find_engine()[1]
    start = time.monotonic()
    # threads for a small text
    os.sched_getaffinity = lambda process: {0, 1}  # type: ignore
    reading.SLICE_BYTES_IN_C, reading.BATCH_BYTES, slicing.WINDOW_BYTES = 150, 1000, 100
    corpus = TEXT[:1500]
    with tempfile.TemporaryDirectory() as folder:
        path, output = os.path.join(folder, "corpus.txt"), os.path.join(folder, "ids.npy")
        Path(path).write_text(corpus, encoding="utf-8")
        specials = [END, "fer"]
        model = training.train_bpe(path, 270, specials, engine="python")
        tokenizer = Tokenizer(*model, specials)
        assert not isinstance(tokenizer.encoder, encoders.Encoder)
        old, words = tokenizer.prune(262), {b" harbour": 3, b" ferries": 2, b"timetable": 1}
        extended = old.extend(words=words, n_tokens=3, engine="python").merges[-3:]
        texts = [TEXT[:200], END, *TEXT[:3000].split("\n"), TEXT[:5000]]
        in_python = encoders.Encoder(tokenizer)
        ids = [in_python.encode_utf8(text.encode()) for text in texts]
        flat = [token_id for part in ids for token_id in part]

        def make() -> Any:
            new = Tokenizer(*model, specials)
            return [new.encode(text) for text in (texts[-1], texts[0])]

        def encode_all() -> Any:
            return [tokenizer.encode(text) for text in (texts[0], texts[-1], texts[0])]

        def encode_files() -> Any:
            C.pause_failures()
            for path in Path(folder).glob("*.tmp"):  # open() made it, and then had no memory for its buffer
                path.unlink()
            C.continue_failures()
            n = tokenizer.encode_files(None, output, texts=texts)
            with open(output, "rb") as file:
                return n, file.read()[128:]

        calls = {
            "Tokenizer": (make, [ids[-1], ids[0]]),
            "encode": (encode_all, [ids[0], ids[-1], ids[0]]),
            "encode_batch": (lambda: tokenizer.encode_batch(texts), ids),
            "encode_files": (encode_files, (len(flat), array("H", flat).tobytes())),
            "train_bpe": (lambda: training.train_bpe(path, 270, specials), model),
            "extend": (lambda: old.extend(words=words, n_tokens=3).merges[-3:], extended),
        }
        for most in (1, 10):
            for name in ("Tokenizer", "encode", "extend")[: 2 + most // 10]:  # it allocates much
                fail_each(name, *calls[name], most, in_threads=False)
            for name in ("encode_batch", "encode_files", "train_bpe"):
                fail_each(name, *calls[name], most, in_threads=False)
                fail_each(f"threads of {name}", *calls[name], most, in_threads=True)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
