"""Print the seconds of each step, and the ten slowest tests: `python .ci/report.py FOLDER`, which has them in files."""

import sys
from pathlib import Path
from xml.etree import ElementTree

folder = Path(sys.argv[1])
rows = [line.split("\t") for line in (folder / "steps").read_text().splitlines()]
for core in ("first", "second"):
    steps = [(int(seconds), name) for its_core, seconds, name in rows if its_core == core]
    print(f"\nseconds on the {core} core")
    for (start, name), (end, _) in zip(steps, steps[1:]):
        print(f"{end - start:6}  {name}")

cases = [case for path in folder.glob("tests.*.xml") for case in ElementTree.parse(path).iter("testcase")]
slowest = sorted(cases, key=lambda case: float(case.get("time", 0)), reverse=True)[:10]
print(f"\nseconds of the ten slowest of {len(cases):,} tests")
for case in slowest:
    print(f"{float(case.get('time', 0)):6.1f}  {case.get('classname')}::{case.get('name')}")
