"""Damage what a cluster keeps in files, and start again: `python tests/cluster/damaged.py 1000 FOLDER [SEED]`.

Counts, plans, shards and their descriptions are cut, changed, exchanged and replaced, for the bpe.py in FOLDER. The next
run must give the right result, or an error of one line that names the file or its folder. tests/engine/sanitize does that
with a sanitized C engine, which stops at the first byte that is read beyond a part. `30s` is a bound in seconds.
"""

import json
import random
import re
import sys
import tempfile
import zlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

END = "<|endoftext|>"
TEXTS = [f"low lower{END}lowest {number} " * 9 + " ".join(map(str, range(30))) for number in range(3)]
ERRORS = (ValueError, OSError)


class Here:
    """An engine that runs tasks in this process, where a sanitizer sees them."""

    exchange = None
    n_workers = 2

    def reports(self, work: Any, items: Any, job: Any) -> Any:
        from bpe_more.cluster.tasks import attempt

        for item in items:
            yield attempt(work, item, job)


def damaged(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Change the content of a file; others is that of other files."""
    place = rng.randrange(len(data))
    number = rng.choice([0, 1, 8, 1000, 10**6, 2**32, 2**63, 2**64 - 1, rng.getrandbits(64)]).to_bytes(8, "little")
    return rng.choice([
        lambda: data[:place],
        lambda: data + rng.randbytes(rng.randint(1, 20)),
        lambda: data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :],
        lambda: data[:place] + number + data[place + 8 :],
        lambda: data[:place] + rng.randbytes(rng.randint(1, 9)) + data[place:],
        lambda: data[:place] + data[place + rng.randint(1, 9) :],
        lambda: rng.choice(others),
        lambda: rng.choice([b"", b"[]", b"{}", b'{"buckets": 3}', b'{"shard": 1, "tokenizer": 2}', b"[" * 100_000, b"1"]),
    ])()  # fmt: skip


def with_other_lengths(file: bytes, rng: random.Random) -> bytes:
    """Give another length to the first part of a file of counts."""
    return file[:48] + rng.choice([0, 1, 7, 8, 10**6, 2**63, 2**64 - 1]).to_bytes(8, sys.byteorder) + file[56:]


def with_another_number(data: bytes, rng: random.Random) -> bytes:
    """Change a number in a plan or a description."""
    places = [match.span() for match in re.finditer(rb"(?<=[ \[])\d+(?=[,\]}\s])", data)]
    start, end = rng.choice(places)
    return data[:end] + b"0" + data[end:] if rng.random() < 0.5 else data[:start] + b"1" + data[start:]


def forged(file: bytes, rng: random.Random) -> bytes:
    """Give wrong lengths to the words of the first of two buckets in a file of counts, with right digests."""
    from bpe_more.cluster import counts, urls

    sizes = array("Q", file[48:64])
    part, other = file[64 : 64 + sizes[0]], file[64 + sizes[0] :]
    n_bytes, data = int.from_bytes(part[16:24], "big"), zlib.decompress(part[24:])
    lengths, rest = array("Q", data[:n_bytes]), data[n_bytes:]
    first, second = rng.sample(range(len(lengths)), 2)
    if rng.random() < 0.5:
        lengths[second] += lengths[first] + 5
        lengths[first] = 2**64 - 5  # so that a sum of 64 bits is right
    else:
        lengths[first] = rng.choice([lengths[first] + 1, 0, 10**6, 2**63, 2**64 - 1])
    part = counts.packed(n_bytes + rng.choice([0, 0, 1, 8, -8, 2**62]), [lengths, rest])
    sizes[0] = len(part)
    return b"".join([file[:32], urls.checksum(sizes.tobytes()), sizes, part, other])


def check(cases: Iterable[int], seed: int) -> dict[str, int]:
    """Try a damage for each case; return how many ended in an error, or in the right result."""
    from bpe_more import cluster, training
    from bpe_more.tokenizer import Tokenizer

    rng, outcomes = random.Random(seed), {"error": 0, "right": 0}
    engine_of, cluster.engine_of = cluster.engine_of, lambda *arguments: Here()
    with tempfile.TemporaryDirectory() as folder:
        try:
            paths = [Path(folder, f"{number}.txt") for number in range(3)]
            for path, text in zip(paths, TEXTS):
                path.write_text(text, encoding="utf-8")
            expected = training.train_bpe(paths, 290, [END], engine="python", workers=1)[1]
            tokenizer = Tokenizer.train(paths, 290, [END])
            ids = [list(tokenizer.encoder_for("python").encode(text)) for text in TEXTS]
            options: dict[str, Any] = {"buckets": 2, "task_bytes": 1}

            def train() -> None:
                merges = cluster.train(None, paths, 290, [END], counts=f"{folder}/counts", **options).merges
                assert list(merges) == expected, "other merges"

            def encode() -> None:
                n_ids = cluster.encode(None, paths, tokenizer, f"{folder}/ids")
                index = json.loads(Path(folder, "ids/index.json").read_bytes())
                assert n_ids == index["ids"] == sum(map(len, ids)), "another number of ids"
                shards = [array("H", Path(folder, f"ids/{path.name}.npy").read_bytes()[128:]).tolist() for path in paths]
                assert shards == ids, "other ids"
                assert [shard["ids"] for shard in index["shards"]] == list(map(len, ids)), "other lengths in the index"

            train()
            encode()
            kept = {path: path.read_bytes() for path in Path(folder).glob("*/*") if path.name != "index.json"}
            for number in cases:
                options["engine"] = rng.choice(["auto", "python"])
                path = rng.choice(sorted(kept))
                others = [kept[other] for other in sorted(kept) if other != path]
                if path.suffix == ".npy":  # the size is compared, not the content
                    data = rng.choice([kept[path][: rng.randrange(len(kept[path]))], kept[path] + b"\0"])
                elif path.suffix == ".counts" and rng.random() < 0.4:
                    data = rng.choice([forged, with_other_lengths])(kept[path], rng)
                elif path.suffix == ".json" and rng.random() < 0.3:
                    data = with_another_number(kept[path], rng)
                else:
                    data = damaged(kept[path], others, rng)
                path.write_bytes(data)
                try:
                    (encode if path.parent.name == "ids" else train)()
                    outcomes["right"] += 1
                except ERRORS as error:
                    text = str(error)
                    assert "\n" not in text and (path.name in text or str(path.parent) in text) and "delete it" in text, text
                    outcomes["error"] += 1
                except Exception as error:
                    raise AssertionError(f"damage {number} of {seed}, to {path.name}: {error!r}") from error
                for other, content in kept.items():
                    if not other.exists() or other.read_bytes() != content:
                        other.write_bytes(content)
        finally:
            cluster.engine_of = engine_of
    return outcomes


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    sys.path.insert(0, sys.argv[2])
    from bounds import bounded, choose_seed
    from bpe_more import choices

    assert choices.find_engine()[0], choices.find_engine()[1]
    print("damaged files of a cluster:", check(bounded(sys.argv[1]), choose_seed(sys.argv[3:])))
