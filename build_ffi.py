"""Build the optional C engine of bpe.py: `python build_ffi.py`.

It compiles bpe_fast.c with cffi into a module beside bpe.py, which then finds it by itself. Needed: a C compiler, and
`pip install cffi setuptools regex`. Everything works without it, only slower.

    python build_ffi.py                    build for this machine's processor
    python build_ffi.py --flags="-O3"      build with other flags, here for any processor of its kind
    python build_ffi.py --source FILE      only write the complete C source (for other build tools, and for .ci/)
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# What Python may call. cffi reads this, and it stands in front of the C: if the two disagree, it does not compile.
PROTOTYPES = """
enum { BPE_VERSION = 4 }; /* of the functions; bpe.py uses a library only if it has the one it knows */
enum bpe_status { BPE_OK, BPE_NO_MEMORY, BPE_BAD_UTF8, BPE_OVERFLOW };

typedef struct bpe_words bpe_words;
typedef struct { uint64_t words, bytes, pretokens, bytes_in_words; } bpe_totals;
bpe_words *bpe_words_new(const uint8_t *specials, const size_t *lengths, size_t n);
void bpe_words_free(bpe_words *w);
int bpe_words_scan(bpe_words *w, const uint8_t *text, size_t length, size_t *bad_offset);
int bpe_words_put(bpe_words *w, const uint8_t *bytes, const size_t *lengths, const uint64_t *counts, size_t n);
int bpe_words_add(bpe_words *w, const bpe_words *other);
void bpe_words_totals(const bpe_words *w, bpe_totals *totals);
void bpe_words_get(const bpe_words *w, uint8_t *bytes, size_t *lengths, uint64_t *counts);

typedef struct bpe_learner bpe_learner;
typedef struct { uint32_t left, right; uint64_t count, replaced; } bpe_merge;
int bpe_learner_new(bpe_words *w, const uint32_t *id_of_byte, const uint8_t *tokens, const size_t *lengths,
                    size_t n_tokens, uint64_t merges_wanted, uint64_t min_frequency, size_t max_token_length,
                    int smaller_ids, int follow, bpe_learner **learner);
int bpe_learner_run(bpe_learner *l, bpe_merge *merges, size_t most, size_t *made);
int bpe_learner_follow(bpe_learner *l, uint32_t left, uint32_t right, bpe_merge *merge);
int bpe_learner_followed(bpe_learner *l, uint64_t merges_wanted, size_t max_token_length);
void bpe_learner_free(bpe_learner *l);

extern const char bpe_regex_version[];
extern const char bpe_class_digest[];
"""


def class_table() -> str:
    """The classes as C: blocks of 256 code points, each different one once, and the number of each block."""
    import regex

    from bpe import character_classes

    classes = character_classes()
    ascii_classes = (3 * (c in " \t\n\v\f\r") or 2 * c.isdigit() or c.isalpha() for c in map(chr, range(128)))
    if classes[:128] != bytes(ascii_classes):
        raise SystemExit("build_ffi.py: this regex package has other classes for ASCII than bpe_fast.c expects")
    blocks = [classes[start : start + 256] for start in range(0, 0x110000, 256)]
    distinct = list(dict.fromkeys(blocks))
    index = ",".join(str(distinct.index(block)) for block in blocks)
    rows = ",\n".join("{" + ",".join(map(str, block)) + "}" for block in distinct)
    kind = "uint8_t" if len(distinct) <= 256 else "uint16_t"
    return (
        f'const char bpe_regex_version[] = "{regex.__version__}";\n'
        f'const char bpe_class_digest[] = "{hashlib.sha256(classes).hexdigest()[:16]}";\n'
        f"static const {kind} bpe_class_index[{len(blocks)}] = {{{index}}};\n"
        f"static const uint8_t bpe_class_blocks[{len(distinct)}][256] = {{{rows}}};\n"
    )


def source() -> str:
    """The complete C source: prototypes, classes, bpe_fast.c."""
    with open(os.path.join(HERE, "bpe_fast.c"), encoding="utf-8") as file:
        return "#include <stddef.h>\n#include <stdint.h>\n" + PROTOTYPES + class_table() + file.read()


def build(flags: str | None) -> str:
    """Compile, and put the module beside bpe.py: -> a line that says what was built."""
    from cffi import FFI

    attempts = ["-O3 -march=native", "-O3 -mcpu=native", "-O3"]  # the second is what some compilers for ARM want
    if flags is not None or sys.platform == "win32":
        attempts = [flags or "/O2"]
    errors = []
    for attempt in attempts:
        ffi = FFI()
        ffi.cdef(PROTOTYPES)
        ffi.set_source("_bpe_fast", source(), extra_compile_args=attempt.split())
        with tempfile.TemporaryDirectory() as folder:
            try:
                built = ffi.compile(tmpdir=folder)
            except Exception as error:  # each platform's compiler fails with another class
                errors.append(f"{attempt}: {error}")
                continue
            target = os.path.join(HERE, os.path.basename(built))
            shutil.copy(built, target + ".tmp")
            os.replace(target + ".tmp", target)
            return f"built {target} ({attempt})"
    raise SystemExit(
        f"build_ffi.py: it does not compile ({errors[-1]}); needed are a C compiler and `pip install cffi setuptools "
        "regex` (bpe.py works without it, only slower)"
    )


def main() -> None:
    """The command line; SystemExit with one line where something is missing."""
    parser = argparse.ArgumentParser(description="Build the C engine of bpe.py beside it.")
    parser.add_argument("--flags", help="for the compiler (default: optimized for this machine's processor)")
    parser.add_argument("--source", metavar="FILE", help="only write the complete C source to FILE")
    args = parser.parse_args()
    try:
        if args.source:
            with open(args.source, "w", encoding="utf-8") as file:
                file.write(source())
        else:
            print(build(args.flags))
    except ImportError as error:
        raise SystemExit(
            f"build_ffi.py: {error}; `pip install cffi setuptools regex` installs what is needed "
            "(bpe.py works without it, only slower)"
        ) from None


if __name__ == "__main__":
    main()
