#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Summarizes test runs: test_summary.py [--slowest N] FILE... lists the tests that were skipped, each with its
reason, and the N tests that took longest (10). A file is what `ctest --output-junit` wrote; its name is the
name of the build."""

import argparse
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def read(path):
    """(seconds, test, skip reason or None) of each test that ran."""
    for case in xml.parse(path).getroot().iter("testcase"):
        output = case.findtext("system-out") or ""
        reason = None
        if case.find("skipped") is not None:
            said = re.search(r"^skipped: (.*)", output, re.MULTILINE)
            reason = said[1] if said else "it gives no reason"
        yield float(case.get("time", 0)), case.get("name"), reason


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--slowest", metavar="N", type=int, default=10)
    parser.add_argument("files", metavar="FILE", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    times, skipped = [], collections.defaultdict(list)
    for path in options.files:
        for seconds, test, reason in read(path):
            name = f"{path.stem}: {test}" if len(options.files) > 1 else test
            times.append((seconds, name))
            if reason:
                skipped[reason].append(name)
    if options.slowest:
        print(f"The slowest of {len(times)} tests, in seconds:")
        for seconds, name in sorted(times, reverse=True)[:options.slowest]:
            print(f"{seconds:8.1f}  {name}")
    print("No test was skipped." if not skipped else
          f"{sum(map(len, skipped.values()))} tests were skipped:")
    for reason, names in skipped.items():
        print(f"  {reason}: {', '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
