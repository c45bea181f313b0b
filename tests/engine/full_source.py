"""Print the complete C source, with patterns that driver.c takes besides the named ones: `python tests/engine/full_source.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import bpe
import build_ffi
from bpe_more import engine

# some with text that nothing matches, with few states, and with more than fit a register
MORE = [r"\w\w|\d", r"\w+", r"[^\n]*\n|[^\n]+", r".{3}|字{2,9}", r"\s+(?!\S)|\p{L}{1,40}?x|\p{L}{2}"]
print(build_ffi.source())
print(f"enum {{ N_PATTERNS = {len(bpe.PATTERNS)} }};")
print("extern const bpe_pattern more_patterns[5];", engine.pattern_tables("more_patterns", MORE))
