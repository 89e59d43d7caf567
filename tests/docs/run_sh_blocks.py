# SPDX-License-Identifier: Apache-2.0
"""Runs every command of every sh block of the pages, and those in backticks; builds what their cmake
blocks say; looks whether commands still print what a bench has put there as their output.

The blocks of a page run in order, each in one shell, in a folder that looks like the tree after
`make build`, with a program ./train, a program's source prog.c, a file of hosts, and a home of its
own. commands.txt says what is run on a smaller scale, and what is skipped why.
"""

import os
import re
import shutil
import subprocess
import sys
import time

import doc_pages

LINKS = ["bench", "examples", "include", "scripts", "src", "Makefile", "CMakeLists.txt",
         "CMakePresets.json", "cmake", ".ci"]
SECONDS = 100  # for one command
# In prose: a command with all that it needs, not one that is only spoken of.
COMPLETE = re.compile(r"(build/)?tally (hooks|optimizers|env|bench \w+ -|run --help|run .*-n \d+ .*/)"
                      r"|make \w+$|ctest ")
INSTALLED = ('export PATH="$HOME/tally/bin:$PATH" LD_LIBRARY_PATH="$HOME/tally/lib" '
             'PKG_CONFIG_PATH="$HOME/tally/lib/pkgconfig"\n')


class Rule:
    def __init__(self, line, text):
        parts = re.fullmatch(r"(run|says|needs|skip)\s+(.*?)\s+=> (.*)", text)
        if not parts:
            sys.exit(f"tests/docs/commands.txt:{line}: not a rule: {text}")
        self.line, self.kind, self.does = line, parts[1], parts[3]
        self.expression = re.compile(parts[2])
        self.used = False


def read_rules(path):
    with open(path, encoding="utf-8") as file:
        return [Rule(i, line.strip()) for i, line in enumerate(file, 1)
                if line.strip() and not line.startswith("#")]


class Plan:
    """The result of the rules for a command."""

    def __init__(self, rules, command):
        self.run, self.patterns, self.needs, self.skip = command, [], [], ""
        for rule in rules:
            # Expectations are about the command as the page shows it.
            text = self.run if rule.kind == "run" else command
            if not rule.expression.search(text):
                continue
            rule.used = True
            if rule.kind == "run":
                self.run = rule.expression.sub(rule.does, self.run)
            elif rule.kind == "says":
                self.patterns.append(rule.does)
            elif rule.kind == "needs":
                self.needs.append(rule.does)
            else:
                self.skip = rule.does


def commands_of(block):
    """(line, command) of each, without comments."""
    for i, text in enumerate(block.lines):
        command = re.sub(r"(^|\s)#.*", "", text).strip()
        if command:
            yield block.line + i, command


class Sandbox:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.answers = {}  # of has
        self.folder = os.path.join(build, "docs", "commands")
        home = os.path.join(self.folder, "home")
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(home)
        for name in LINKS:
            os.symlink(os.path.join(root, name), os.path.join(self.folder, name))
        # All of the build but CTest's own notes, which belong to the run that this test is part of.
        os.mkdir(os.path.join(self.folder, "build"))
        for name in set(os.listdir(build)) - {"Testing"}:
            os.symlink(os.path.join(build, name), os.path.join(self.folder, "build", name))
        os.symlink(os.path.join(build, "examples", "line"), os.path.join(self.folder, "train"))
        shutil.copy(os.path.join(root, "examples", "line.c"), os.path.join(self.folder, "prog.c"))
        with open(os.path.join(self.folder, "hosts"), "w", encoding="utf-8") as file:
            file.write("localhost\n")
        # Lets any user run Open MPI, with more ranks than CPUs.
        self.environment = dict(os.environ, HOME=home, PATH=f"{build}:{os.environ['PATH']}",
                                OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1", LC_ALL="C.UTF-8")

    def shell(self, script):
        """(status, output) of a script that stops at the first failure."""
        try:
            ran = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder,
                                 env=self.environment, stdin=subprocess.DEVNULL, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return -1, f"took more than {SECONDS} s"
        return ran.returncode, ran.stdout

    def has(self, what):
        """Asks once: some answers take seconds, such as that of Slurm."""
        if what not in self.answers:
            self.answers[what] = self.shell(what if " " in what else f"command -v {what}")[0] == 0
        return self.answers[what]


class Runner:
    def __init__(self, sandbox, rules, report):
        self.sandbox, self.rules, self.report = sandbox, rules, report
        self.n_run = self.n_skipped = 0
        self.exports = ""  # of the block so far: commands after an export see it
        self.ran = {}  # what each script came to: some are on several pages

    def command(self, where, command):
        """Returns its output, or nothing if it was skipped."""
        plan = Plan(self.rules, command)
        missing = [what for what in plan.needs if not self.sandbox.has(what)]
        if plan.skip or missing:
            print(f"{where}: skipped: {command}: {plan.skip or 'needs ' + missing[0]}")
            self.n_skipped += 1
            return ""
        start = time.monotonic()
        script = self.exports + plan.run
        if script not in self.ran:
            self.ran[script] = self.sandbox.shell(script)
        status, said = self.ran[script]
        print(f"{where}: {plan.run} ({time.monotonic() - start:.1f} s)")
        if status:
            self.report.fail(where, f"'{command}', run as '{plan.run}': status {status}\n{said}")
        for pattern in plan.patterns:
            if not re.search(pattern, said):
                self.report.fail(where, f"'{command}', run as '{plan.run}', does not say "
                                 f"/{pattern}/ but\n{said}")
        if re.match(r"export ", plan.run):
            self.exports += plan.run + "\n"
        self.n_run += 1
        return said

    def sh(self, block):
        # A reader of a man page has installed tally.
        self.exports = INSTALLED if block.page.startswith("docs/man/") else ""
        for line, command in commands_of(block):
            self.command(f"{block.page}:{line}", command)

    def cmake(self, block):
        """A project with the block's lines, which finds what the page has installed before. One that adds
        tally's sources is only configured: the test interop_user_of_sources builds such a project."""
        project = os.path.join(self.sandbox.folder, f"project_{block.line}")
        os.makedirs(project)
        with open(os.path.join(project, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(user LANGUAGES C)\n"
                       "add_executable(prog ../prog.c)\n" + block.text)
        if "third_party/tally" in block.text:
            os.makedirs(os.path.join(project, "third_party"))
            os.symlink(self.sandbox.root, os.path.join(project, "third_party", "tally"))
            status, said = self.sandbox.shell(f"cmake -S {project} -B {project}/build -G Ninja")
            if status:
                self.report.fail(block.where, f"a project with these lines: status {status}\n{said}")
            self.n_run += 1
            return
        status, said = self.sandbox.shell(
            f"cmake -S {project} -B {project}/build -G Ninja -DCMAKE_PREFIX_PATH=$HOME/tally && "
            f"cmake --build {project}/build && {project}/build/prog")
        if status or "y = 2.000 x + 1.000" not in said:
            self.report.fail(block.where, f"a project with these lines: status {status}\n{said}")
        self.n_run += 1

    def prose(self, page):
        """Commands in backticks; those of a bench belong to figures, and run when it does."""
        self.exports = ""
        for line, text in page.spans():
            if line not in page.bench_lines and COMPLETE.match(text):
                self.command(f"{page.name}:{line}", text)

    def output(self, page, block):
        """Output of a bench: the command above the block still prints lines with these labels."""
        commands = [text for line, text in page.spans() if block.line - 6 < line < block.line]
        if not commands:
            self.report.fail(block.where, "no command in backticks above it that prints this")
            return
        said = self.command(block.where, commands[-1])
        for i, line in enumerate(block.lines):
            label = re.match(r"\s+(\S.*?)\s{2,}-?\d", line)
            if label and said and label[1] not in said:
                self.report.fail(f"{block.page}:{block.line + i}",
                                 f"'{commands[-1]}' prints no '{label[1]}' but\n{said}")


def main():
    root, build = sys.argv[1:]
    report = doc_pages.Report()
    rules = read_rules(os.path.join(root, "tests", "docs", "commands.txt"))
    runner = Runner(Sandbox(root, build), rules, report)
    for page in doc_pages.read_pages(root):
        for block in page.blocks:
            if block.language == "sh":
                runner.sh(block)
            elif block.language == "cmake":
                runner.cmake(block)
            elif block.bench and not block.language:
                runner.output(page, block)
        runner.prose(page)
    for rule in rules:
        if not rule.used:
            report.fail(f"tests/docs/commands.txt:{rule.line}", "no command of the pages needs it")
    report.end(f"{runner.n_run} commands run, {runner.n_skipped} skipped")


main()
