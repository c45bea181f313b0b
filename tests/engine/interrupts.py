"""Interrupt the C engine at random moments: `python tests/engine/interrupts.py 100000 FOLDER`, for the bpe.py in FOLDER.

Two threads share one tokenizer, and both encode short and long texts in turns. A timer raises KeyboardInterrupt in the
main thread after 5 to 200 µs, again and again; then training is interrupted, in one thread and in two, and at last
the encoding of a text whose parts two threads encode. Wrong ids and
merges are failures, and so are a crash and a call that does not return within a minute. tests/engine/sanitize runs this
under the address sanitizer.
"""

import faulthandler
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parents[2]))
import concurrent.futures.thread  # noqa: F401  # Ctrl-C within an import may leave Python's own lock taken

from bpe_more import choices, training, workers
from bpe_more.corpus import reading
from bpe_more.engine import encoder as encoder_in_c
from bpe_more.tokenizer import Tokenizer, encoders

HERE = Path(__file__).resolve().parents[2]
TEXT = (HERE / "fixtures/corpus.txt").read_text(encoding="utf-8")
SHORT = ["The ferry", "", "12 o'clock", "字 <|endoftext|> é"]
# longer than the 4,000 bytes of one call of encode_short(), and than the 1,000 ids that a new buffer has room for
LONG = [TEXT[:5000], TEXT[5000:30000]]


armed = False


def interrupt(*_: Any) -> None:
    global armed
    if armed:
        armed = False  # a second signal may be on its way
        raise KeyboardInterrupt


def until_interrupted(call: Any, most: float) -> None:
    """Repeat a call until the timer interrupts it, after `most` seconds or less. What else it raises is a failure."""
    global armed
    faulthandler.dump_traceback_later(60, exit=True)  # if the main thread hangs
    try:
        while True:
            armed = True  # again: an exception in a destructor is printed, not raised
            signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-6, most))
            call()
    except KeyboardInterrupt:
        pass


def encode_in_turns(tokenizer: Any, expected: dict[str, list[int]]) -> None:
    for text in random.choices(SHORT, k=3) + random.choices(LONG):
        if tokenizer.encode(text) != expected[text]:
            raise AssertionError(f"other ids for {text[:50]!r}")


def interrupt_encoding(n: int, most: float = 200e-6) -> None:
    model = training.train_bpe(None, 1000, ["<|endoftext|>"], texts=[TEXT])
    tokenizer = Tokenizer(*model, ["<|endoftext|>"])
    assert not isinstance(tokenizer.encoder, encoders.Encoder)
    in_python = encoders.Encoder(tokenizer)
    expected = {text: in_python.encode_utf8(text.encode()) for text in SHORT + LONG}
    failures: list[BaseException] = []
    done = threading.Event()

    def other_thread() -> None:
        try:
            while not done.is_set():
                encode_in_turns(tokenizer, expected)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=other_thread, daemon=True)
    thread.start()
    for _ in range(n):
        until_interrupted(lambda: encode_in_turns(tokenizer, expected), most)
        for text in SHORT[:1] + LONG[:1]:  # the next short text was the one that read freed memory
            if tokenizer.encode(text) != expected[text]:
                raise AssertionError(f"other ids for {text[:50]!r} after an interruption")
        if failures:
            raise failures[0]
    done.set()
    thread.join()
    print(f"{n} interruptions while two threads encode, {len(tokenizer.encoder.calls)} caches at the end")


def interrupt_training(n: int, most: float) -> None:
    texts = [TEXT[:2000], TEXT[2000:3000]]
    counts = training.count_words(None, texts=texts, engine="python")
    model = training.train_from_counts(counts, 300, engine="python")
    old = Tokenizer(*training.train_from_counts(counts, 270, engine="python"))

    def train() -> None:
        assert training.count_words(None, texts=texts) == counts, "other counts"
        assert training.train_bpe(None, 300, texts=texts) == model, "other merges"
        assert old.extend(texts=texts, n_tokens=30).merges == model[1], "other merges in an extension"

    for _ in range(n):
        until_interrupted(train, most)
    print(f"{n} interruptions of counting and training")


def main() -> None:
    faulthandler.enable()
    assert choices.find_engine()[0], choices.find_engine()[1]
    sys.setswitchinterval(1e-5)  # so that threads meet between any two lines
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    n, start = int(sys.argv[1]), time.monotonic()
    interrupt_encoding(n)
    interrupt_training(n // 100, 20e-3)
    reading.SLICE_BYTES_IN_C = 300  # so that two threads count
    interrupt_training(n // 3, 5e-3)
    encoder_in_c.LONG_TEXT = 20_000  # so that threads share a text
    encoder_in_c.PART_OF_TEXT, encoder_in_c.WINDOW_OF_TEXT = 3_000, 200
    workers.count_cores = lambda: 2  # type: ignore[assignment]
    interrupt_encoding(n // 10, 3e-3)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
