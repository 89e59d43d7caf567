# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs every C block of the pages, alone and as ranks.

A complete program is compiled as it is; one that includes mpi.h by Open MPI's compiler, and it runs under
its launcher, where that is installed. A piece of one is included by a file fragment_*.c beside this
one, which has what the piece takes for granted; in it every call of tally must succeed. A block that
is neither is a failure, and so is an include of a block that is not there.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import doc_pages

FLAGS = ["-std=c17", "-O1", "-Wall", "-Wextra", "-Werror"]
INCLUDE = re.compile(r'#include "([^"]*#[^"]*)"')


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def header_program(root):
    """The complete program in the comment at the top of tally.h."""
    with open(os.path.join(root, "include/tally.h"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(" *     #include"))
    last = next(i for i in range(first, len(lines)) if re.match(r" \* \S", lines[i]))
    block = doc_pages.Block("include/tally.h", first + 1, "c", "include/tally.h#program", "")
    block.lines = [line[7:] for line in lines[first:last]]
    return block


def checked_calls(root):
    """Puts a check around every call of a function that returns an int."""
    names = []
    for header in ("tally.h", "tally_extend.h"):
        with open(os.path.join(root, "include", header), encoding="utf-8") as file:
            names += re.findall(r"^TALLY_API int (\w+)\(", file.read(), re.M)
    macros = [f"#define {name}(...) must({name}(__VA_ARGS__), \"{name}\", __FILE__, __LINE__)\n"
              for name in names]
    return ("#include <stdio.h>\n#include <stdlib.h>\n#include <tally_extend.h>\n"
            "static inline int must(int rc, const char *name, const char *file, int line)\n{\n"
            "    if (rc < 0) {\n"
            "        fprintf(stderr, \"%s:%d: %s: %s\\n\", file, line, name, tally_last_error());\n"
            "        exit(1);\n    }\n    return rc;\n}\n" + "".join(macros))


class Programs:
    """Compiles and runs programs in a scratch folder."""

    def __init__(self, root, build, compiler, scratch, report):
        self.root, self.build, self.compiler = root, build, compiler
        self.scratch, self.report = scratch, report

    def run(self, program):
        name, where, sources, worlds = program
        path = os.path.join(self.scratch, name)
        with open(sources[0], encoding="utf-8") as file:
            is_mpi = "<mpi.h>" in file.read()
        if is_mpi and not shutil.which("mpicc.openmpi"):
            print(f"{where}: skipped: Open MPI is not installed")
            return
        command = ["mpicc.openmpi" if is_mpi else self.compiler, *FLAGS, f"-I{self.root}/include", f"-I{self.scratch}",
                   f"-I{self.root}/tests/docs", *sources, "-o", path, f"-L{self.build}/src",
                   f"-Wl,-rpath,{self.build}/src", "-ltally", "-lm"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            self.report.fail(where, "does not compile:\n" + made.stderr)
            return
        for world in worlds:
            launcher = [f"{self.build}/tally", "run", "-n", str(world)] if world > 1 else []
            if is_mpi:
                launcher = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(world)]
            ran = subprocess.run([*launcher, path], capture_output=True, text=True, check=False,
                                 timeout=120)
            if ran.returncode or len(ran.stdout.splitlines()) != world:
                self.report.fail(where, f"as {world} ranks: status {ran.returncode}\n"
                                 + ran.stdout + ran.stderr)


def collect(root, scratch, report):
    """All programs to make, as (name, where, sources, worlds)."""
    blocks = {b.key: b for page in doc_pages.read_pages(root) for b in page.blocks
              if b.language == "c"}
    blocks["include/tally.h#program"] = header_program(root)
    programs, included = [], set()
    for file in sorted(glob.glob(os.path.join(root, "tests/docs/fragment_*.c"))):
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        keys = INCLUDE.findall(text)
        included.update(keys)
        name = os.path.basename(file)[:-2]
        for key in keys:
            if key not in blocks:
                report.fail(f"tests/docs/{name}.c", f"no page has a C block '{key}'")
        if keys:
            worlds = re.search(r"worlds: ([\d ]+)", text)
            worlds = [int(w) for w in worlds[1].split()] if worlds else [1, 2]
            model = os.path.join(root, "tests/docs/fragment_model.c")
            programs.append((name, f"tests/docs/{name}.c", [file, model], worlds))
    for key, block in blocks.items():
        numbered = f'#line {block.line} "{block.page}"\n{block.text}'
        if key in included:
            write(os.path.join(scratch, key), numbered)
        elif re.search(r"\bint main\(", block.text):
            name = re.sub(r"\W", "_", key)
            write(os.path.join(scratch, name + ".c"), numbered)
            programs.append((name, block.where, [os.path.join(scratch, name + ".c")], [1, 2]))
        else:
            report.fail(block.where, f"no test runs this block: include it as \"{key}\" in a file "
                        "tests/docs/fragment_*.c, or make it a complete program")
    return programs, len(blocks)


def main():
    root, build, compiler = sys.argv[1:]
    scratch = os.path.join(build, "docs", "c")
    report = doc_pages.Report()
    programs, n_blocks = collect(root, scratch, report)
    write(os.path.join(scratch, "checked_calls.h"), checked_calls(root))
    runner = Programs(root, build, compiler, scratch, report)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(runner.run, programs))
    report.end(f"{n_blocks} blocks of C in {len(programs)} programs")


main()
