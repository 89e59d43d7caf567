# SPDX-License-Identifier: Apache-2.0
"""docs/README.md, the index of the manual, lists every page of docs, and every page has an answer, a paragraph of
prose, before its first heading, list, table or block."""

import glob
import os
import re
import sys

import doc_pages


def main():
    root = sys.argv[1]
    report = doc_pages.Report()
    index = doc_pages.Page(root, "docs/README.md")
    listed = {target for _, target in index.links()}
    names = sorted(os.path.basename(path) for path in glob.glob(os.path.join(root, "docs", "*.md")))
    for name in names:
        page = doc_pages.Page(root, f"docs/{name}")
        if name not in listed and name != "README.md":
            report.fail("docs/README.md", f"does not list {name}")
        lines = [line for line in page.lines[1:] if line.strip()]
        if not lines or not re.match(r"[A-Z`*'\"]|tally ", lines[0]):
            report.fail(f"docs/{name}:2", "no paragraph before the first heading, list, table or block")
    report.end(f"{len(names)} pages in the index")


main()
