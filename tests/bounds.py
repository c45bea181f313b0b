"""How long a script tries random cases, and from which seed: `SCRIPT 1000`, `SCRIPT 30s`, or either with a seed after it."""

import itertools
import sys
import time
from collections.abc import Iterator


def bounded(bound: str) -> Iterator[int]:
    """bounded("500") -> 0, 1, ..., 499; bounded("30s") -> 0, 1, ..., for 30 seconds, but at least 0."""
    if not bound.endswith("s"):
        yield from range(int(bound))
        return
    end = time.monotonic() + float(bound[:-1])
    for number in itertools.count():
        yield number
        if time.monotonic() >= end:
            return


def choose_seed(arguments: list[str]) -> int:
    """Return the seed among the last arguments of a script, or a new one, and print it: a run that hangs has shown it."""
    seed = int(arguments[0]) if arguments else time.time_ns() % 10**9
    print(f"{sys.argv[0]}: seed {seed}", flush=True)
    return seed
