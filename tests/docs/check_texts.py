# SPDX-License-Identifier: Apache-2.0
"""Every block of the pages has a rule: c, sh and cmake are run by the other tests; text is compared
here with what texts.txt names. A block of any other kind is a failure, unless a bench writes it.
"""

import os
import re
import subprocess
import sys

import doc_pages


def read_rules(path):
    rules = {}
    with open(path, encoding="utf-8") as file:
        for i, line in enumerate(file, 1):
            if line.strip() and not line.startswith("#"):
                key, rule = line.split(None, 1)
                rules[key] = (i, rule.strip())
    return rules


def squeezed(line):
    return " ".join(line.replace("→", "->").strip(" *#.,").split())


class Checker:
    def __init__(self, root, text_forms, report):
        self.root, self.text_forms, self.report = root, text_forms, report

    def in_file(self, block, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            text = " ".join(squeezed(line) for line in file)
        for i, line in enumerate(block.lines):
            if squeezed(line) not in text:
                self.report.fail(f"{block.page}:{block.line + i}", f"not in {name}: {line}")

    def answers(self, block):
        for i, line in enumerate(block.lines):
            where = f"{block.page}:{block.line + i}"
            quoted = re.match(r"(hook|optimizer) '([^']*)': ", line)
            if not quoted:
                self.report.fail(where, f"quotes no hook or optimizer: {line}")
                continue
            said = subprocess.run([self.text_forms], input=f"{quoted[1]} {quoted[2]}\n", text=True,
                                  capture_output=True, check=True).stdout.rstrip("\n")
            # An answer that all ranks got begins with whose it was.
            if re.sub(r"^rank 0: ", "", said) != line:
                self.report.fail(where, f"the answer is now: {said}")

    def paths(self, block):
        named = [line.split()[0] for line in block.lines]
        for i, name in enumerate(named):
            if not os.path.exists(os.path.join(self.root, name)):
                self.report.fail(f"{block.page}:{block.line + i}", f"no such file: {name}")
        for folder in sorted(os.listdir(os.path.join(self.root, "src"))):
            if os.path.isdir(os.path.join(self.root, "src", folder)) and \
                    f"src/{folder}/" not in named:
                self.report.fail(block.where, f"src/{folder}/ is missing")

    def check(self, block, rule):
        if rule.startswith("in "):
            self.in_file(block, rule[3:])
        elif rule == "answers":
            self.answers(block)
        elif rule == "paths":
            self.paths(block)
        elif rule != "drawing":
            self.report.fail(block.where, f"tests/docs/texts.txt has an unknown rule: {rule}")


def main():
    root, _, text_forms = sys.argv[1:]
    report = doc_pages.Report()
    rules = read_rules(os.path.join(root, "tests", "docs", "texts.txt"))
    checker = Checker(root, text_forms, report)
    blocks = [block for page in doc_pages.read_pages(root) for block in page.blocks]
    for block in blocks:
        if block.language == "text":
            if block.key in rules:
                checker.check(block, rules.pop(block.key)[1])
            else:
                report.fail(block.where, f"nothing checks this block: tests/docs/texts.txt has no "
                            f"'{block.key}'")
        elif block.language not in ("c", "sh", "cmake", "python", "diff") and not block.bench:
            report.fail(block.where, "no test knows blocks of this kind: say what it is, c, sh, "
                        "cmake or text, behind its first backticks")
    for key, (line, _) in rules.items():
        report.fail(f"tests/docs/texts.txt:{line}", f"no page has a text block '{key}'")
    report.end(f"{len(blocks)} blocks, each with a rule")


main()
