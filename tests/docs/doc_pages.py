# SPDX-License-Identifier: Apache-2.0
"""The pages that tests of this folder read: README, CONTRIBUTING, docs, examples and the man pages.

Finds blocks of code and what stands in backticks or in links, each with its line. What they mean is
the business of the tests. A block's key is its page and section: docs/hooks.md#the-text-form, with
.2 for the second one there.
"""

import glob
import os
import re
import sys

PAGES = ["README.md", "CONTRIBUTING.md", "examples/README.md", "docs/*.md", "docs/man/*.[13]"]


class Block:
    def __init__(self, page, line, language, key, bench):
        self.page, self.line, self.language, self.key = page, line, language, key
        self.bench = bench  # the bench that wrote it, or ""
        self.lines = []

    @property
    def text(self):
        return "\n".join(self.lines) + "\n"

    @property
    def where(self):
        return f"{self.page}:{self.line}"


class Report:
    """Collects what is wrong, and ends the test."""

    def __init__(self):
        self.failures = 0

    def fail(self, where, text):
        print(f"FAILED: {where}: {text}", flush=True)
        self.failures += 1

    def end(self, summary):
        if self.failures:
            sys.exit(f"{self.failures} failed; {summary}")
        print(summary)


def anchor_of(heading):
    """As web pages of such files name a section."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


class Page:
    """One page: blocks, and the other lines as prose, in which lines of blocks are empty."""

    def __init__(self, root, name):
        self.name = name
        with open(os.path.join(root, name), encoding="utf-8") as file:
            self.lines = file.read().splitlines()
        self.blocks, self.anchors = [], set()
        self.prose = list(self.lines)
        self.bench_lines = set()  # what a bench has written
        self._anchor, self._counts, self._bench = "", {}, ""
        if name.endswith(".md"):
            self._read_markdown()
        else:
            self._read_man()

    def _begin(self, line, language):
        count = self._counts[self._anchor] = self._counts.get(self._anchor, 0) + 1
        key = f"{self.name}#{self._anchor}" + (f".{count}" if count > 1 else "")
        self.blocks.append(Block(self.name, line, language, key, self._bench))
        return self.blocks[-1]

    def _read_markdown(self):
        block, fence, in_list = None, "", False
        for i, line in enumerate(self.lines):
            if self._bench:
                self.bench_lines.add(i + 1)
            if block:
                self.prose[i] = ""
                if line.strip() == fence:
                    block = None
                else:
                    block.lines.append(line)
                continue
            start = re.match(r"\s*(```+|~~~+)\s*(\S*)", line)
            marker = re.match(r"<!-- bench (\w+): (begin|end) -->", line)
            heading = re.match(r"#+ (.*)", line)
            if start:
                fence = start[1]
                block = self._begin(i + 2, start[2])
                self.prose[i] = ""
            elif marker:
                self._bench = marker[1] if marker[2] == "begin" else ""
            elif heading:
                self._anchor = anchor_of(heading[1])
                self.anchors.add(self._anchor)
            elif re.match(r"    ", line) and not in_list and not self.lines[i - 1].strip():
                self._begin(i + 1, "").lines.append(line[4:])
            if line.strip() and not start:
                in_list = bool(re.match(r"([-*]|\d+\.) ", line)) or in_list and line.startswith(" ")

    def _read_man(self):
        """A displayed block is a command in EXAMPLES, and C elsewhere."""
        block = None
        for i, line in enumerate(self.lines):
            language = "sh" if self._anchor == "examples" else "c"
            if line.startswith(".Sh "):
                self._anchor = anchor_of(line[4:])
            elif line.startswith(".Bd "):
                block = self._begin(i + 2, language)
            elif line.startswith(".Ed"):
                block = None
            elif line.startswith(".Dl "):
                self._begin(i + 1, language).lines.append(line[4:])
            elif block:
                block.lines.append(line)

    def spans(self):
        """(line, text) of everything in backticks, which may go on in the next line."""
        text = "\n".join(self.prose)
        for match in re.finditer(r"`([^`]+)`", text):
            yield text.count("\n", 0, match.start()) + 1, re.sub(r"\s*\n\s*", " ", match[1])

    def links(self):
        """(line, target) of every link and image."""
        for i, line in enumerate(self.prose):
            for match in re.finditer(r"\]\(([^)\s]+)\)", line):
                yield i + 1, match[1]


def read_pages(root):
    names = [name for pattern in PAGES for name in sorted(glob.glob(pattern, root_dir=root))]
    return [Page(root, name) for name in names]
