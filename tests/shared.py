"""What several files of this folder need, and test_bpe.py doesn't."""

import array
import ast
import contextlib
import os
import sys
import time
from collections import Counter
from pathlib import Path

from test_bpe import number_counts

MANY = int(os.environ.get("BPE_TEXTS", 100))  # texts for each kind of model of other programs; CI takes 2000


def naive_counts(words):
    """How often each pair of neighbors occurs."""
    return Counter(number_counts(words.items()))


BAD_UTF8 = [
    b"\xff", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe5\xad", b"\x80", b"\xf8",
    b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xbf\xbf", b"\xf0\x8f\xbf\xbf", b"\xf5\x80\x80\x80", b"\xe5", b"\xf0\x9f\x98",
]  # fmt: skip


def split_anywhere(rng, text):
    cuts = sorted(rng.choices(range(len(text) + 1), k=rng.randint(0, 12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]


def edit(path, change):
    path.write_bytes(change(path.read_bytes()))


def read_ids(path):
    """Read (kind, ids) from a .npy file, with kind "u2" or "u4", without bpe.py or NumPy."""
    data = Path(path).read_bytes()
    assert data[:10] == b"\x93NUMPY\x01\0v\0" and data[127:128] == b"\n"
    header, data = ast.literal_eval(data[10:128].decode()), data[128:]
    kind = header["descr"].lstrip("<>")
    order, shape = "<" if sys.byteorder == "little" else ">", (len(data) // int(kind[1]),)
    assert header == {"descr": order + kind, "fortran_order": False, "shape": shape}
    return kind, array.array({"u2": "H", "u4": "I"}[kind], data).tolist()


def wait_for(event, seconds=30):
    """Wait until event() is true, for a limited time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError):  # a temporary file that has just gone
            if event():
                return
        time.sleep(0.01)


def one_line(stderr):
    """Check that an error is one line without a traceback, and return it as str."""
    text = stderr.decode()
    assert text.count("\n") == 1 and "Traceback" not in text, text
    return text


@contextlib.contextmanager
def pipe_of(data):
    """The path of a pipe with data, which must fit into it."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(data)
    with os.fdopen(read_end, "rb"):
        yield f"/dev/fd/{read_end}"


FORMS = [  # what NFC and NFKC change, and what only looks like it
    "e\u0301", "\u00e9", "\u0301", "\u0958", "\u0958.", "\u1112\u1161\u11ab", "\uac00\u11a8", "\u2126", "\u212b", "ﬁ", "™", "①",
    "か\u3099", "か゛", "ｶﾞ", "\uff9e", "=\u0338", "a\u0323\u0307", "a\u0307\u0323", "Ａ１", "＜EOT＞", "<EOT", "…", "½", "\u037e", "\u00a0",
]  # fmt: skip
