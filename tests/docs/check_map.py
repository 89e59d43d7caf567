# SPDX-License-Identifier: Apache-2.0
"""Compares the map of the files and the path of a gradient in docs/architecture.md with the tree.

Every .c file of src, and every .h without a .c beside it, has one row in the table of its folder
(### src/FOLDER), with its responsibility. Every row names a file of that folder. Every function of the
path is in the file that its row names, and the path touches at most MOST_FILES files.
"""

import glob
import os
import re
import sys

import doc_pages

PAGE = "docs/architecture.md"
SECTION = "Map of the files"
PATH = "The path of a gradient"
MOST_FILES = 18


def sources(root):
    """folder -> the names its table must have."""
    folders = {}
    for path in sorted(glob.glob("src/**/*.[ch]", root_dir=root, recursive=True)):
        folder, name = os.path.split(path)
        stem, extension = os.path.splitext(path)
        if extension == ".c" or not os.path.exists(os.path.join(root, stem + ".c")):
            folders.setdefault(folder, set()).add(name)
    return folders


def rows(lines):
    """(line, folder, file, responsibility) of each row of the tables; file is None for a heading."""
    inside, folder = False, ""
    for i, line in enumerate(lines, 1):
        heading = re.match(r"(##+) (.*)", line)
        if heading and heading[1] == "##":
            inside = heading[2] == SECTION
        elif heading and inside:
            folder = heading[2].strip("`/ ")
            yield i, folder, None, ""
        row = re.match(r"\| `([^`]+)`(.*?) \| (.*) \|$", line)
        if row and inside:
            yield i, folder, row[1] + row[2], row[3].strip()


def path_rows(lines):
    """(line, functions, file) of each row of the table under 'The path of a gradient'."""
    inside = False
    for i, line in enumerate(lines, 1):
        if line.startswith("## "):
            inside = line == "## " + PATH
        row = re.match(r"\| (`[^:]*): .* \| `([^`]+)` \|$", line)
        if row and inside:
            yield i, re.findall(r"`(\w+)`", row[1]), row[2]


def check_path(root, lines, report):
    n, files = 0, set()
    for line, functions, name in path_rows(lines):
        files.add(name)
        source = os.path.join(root, "src", name)
        if not os.path.exists(source):
            report.fail(f"{PAGE}:{line}", f"the tree has no file src/{name}")
            continue
        with open(source, encoding="utf-8") as file:
            text = file.read()
        for function in functions:
            n += 1
            if not re.search(rf"\b{function}\b", text):
                report.fail(f"{PAGE}:{line}", f"src/{name} has no function {function}")
    if len(files) > MOST_FILES:
        report.fail(PAGE, f"the path of a gradient touches {len(files)} files; at most {MOST_FILES}")
    if n == 0:
        report.fail(PAGE, f"no table of functions under '{PATH}'")


def main():
    root = sys.argv[1]
    report = doc_pages.Report()
    with open(os.path.join(root, PAGE), encoding="utf-8") as file:
        lines = file.read().splitlines()
    check_path(root, lines, report)
    missing = sources(root)
    seen, folders, n = {}, set(missing), 0
    for line, folder, name, responsibility in rows(lines):
        where = f"{PAGE}:{line}"
        if name is None:
            if folder not in folders:
                report.fail(where, f"the tree has no folder {folder} with C files")
            continue
        n += 1
        path = f"{folder}/{name}"
        if path in seen:
            report.fail(where, f"{path} has a row in line {seen[path]} already")
        elif name not in missing.get(folder, ()):
            report.fail(where, f"{path} needs no row: the tree has no such file, or it is the header "
                        "of a .c file")
        elif not responsibility:
            report.fail(where, f"say in one line what {path} is responsible for")
        seen.setdefault(path, line)
        missing.get(folder, set()).discard(name)
    for folder, names in missing.items():
        for name in sorted(names):
            report.fail(PAGE, f"{folder}/{name} is missing in the table under '### {folder}', section "
                        f"'{SECTION}'")
    report.end(f"{n} rows compared with the tree")


main()
