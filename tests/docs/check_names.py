# SPDX-License-Identifier: Apache-2.0
"""Everything the pages name exists: functions, types, fields and constants of the headers, variables,
commands with their options, targets, scripts, files, links, hooks and optimizers. The pages for
contributors may also name what the private headers declare (tally__...).
"""

import glob
import json
import os
import re
import shutil
import subprocess
import sys

import doc_pages

# Examples of a rule: these names do not exist.
EXAMPLES = {"tally_name", "tally__name"}
# Names of the build and its tests, not of the library, are in these files.
BUILD_FILES = ["python/tally/*.py", "CMakeLists.txt", "src/CMakeLists.txt", "tests/*/*.cmake", "tests/*/*.sh",
               "tests/fuzz/*.[ch]"]
# The pages for contributors.
INSIDE = {"CONTRIBUTING.md", "docs/architecture.md", "docs/shm-protocol.md"}
FILE_TYPES = r"(c|h|py|sh|md|cmake|txt|map|in|svg)"


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


class Header:
    """The names of tally.h and tally_extend.h."""

    def __init__(self, root):
        text = "".join(read(name) for name in glob.glob(os.path.join(root, "include/*.h")))
        self.words = set(re.findall(r"\w+", text))
        self.words |= {"TALLY_" + name for name in re.findall(r"X\((\w+), -?\d", text)}
        self.words |= {"TALLY_HOOK_" + name for name in re.findall(r"X\((\w+), \d", text)}
        self.fields = {}
        for name, body in re.findall(r"^(?:typedef )?struct (\w+) \{(.*?)^\}", text, re.S | re.M):
            body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
            self.fields[name] = set(re.findall(r"(\w+)(?:\[\w+\])?\)?(?:\([^;]*\))?;", body))


class Names:
    def __init__(self, root, build, text_forms, report):
        self.root, self.build, self.text_forms = root, build, text_forms
        self.report = report
        self.header = Header(root)
        self.tally = os.path.join(build, "tally")
        self.helps = {}
        self.variables = {json.loads(line)["name"]
                          for line in run(self.tally, "env", "--json").stdout.splitlines()}
        self.build_words = set()
        for pattern in BUILD_FILES:
            for name in glob.glob(os.path.join(root, pattern)):
                self.build_words |= set(re.findall(r"\w+", read(name)))
        self.private_words = set()
        for name in glob.glob(os.path.join(root, "src/**/*.h"), recursive=True):
            self.private_words |= set(re.findall(r"\btally__\w+", read(name)))
        self.targets = set(re.findall(r"^(\w+):", read(os.path.join(root, "Makefile")), re.M))
        self.kinds = {kind: self.listed(kind + "s") for kind in ("hook", "optimizer")}
        self.files = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in (".git", "build")]
            self.files += [os.path.relpath(os.path.join(folder, name), root) for name in names]
        self.example_sources = "".join(read(os.path.join(root, name)) for name in self.files
                                       if name.startswith("examples/") and name.endswith(".c"))
        self.metrics = set(re.findall(r'"(tally_\w+)"', read(os.path.join(root, "src/ddp/metrics.c"))))
        self.n = 0

    def listed(self, command):
        """name -> its options, as tally lists them."""
        rows = [json.loads(line) for line in run(self.tally, command, "--json").stdout.splitlines()]
        return {row["name"]: {option["name"] for option in row["options"]} for row in rows}

    # ---- words of the library ----

    def words(self, page):
        for i, line in enumerate(page.lines, 1):
            where = f"{page.name}:{i}"
            for name in re.findall(r"(?<![\w./:-])(?:tally|TALLY)_\w+", line):
                self.n += 1
                if name in EXAMPLES or name.endswith("_"):
                    continue
                if page.name in INSIDE and name in self.private_words:
                    continue
                if name not in self.header.words | self.variables | self.build_words | self.metrics:
                    self.report.fail(where, f"neither the headers nor `tally env` nor the metrics have {name}")
            for struct, field in re.findall(r"\b(tally_\w+)\.(?!h\b)(\w+)", line):
                if field not in self.header.fields.get(struct, ()):
                    self.report.fail(where, f"{struct} has no field {field}")
            for field in re.findall(r"`config\.(\w+)`", line):
                if not any(field in fields for struct, fields in self.header.fields.items()
                           if struct.endswith("_config")):
                    self.report.fail(where, f"no config has a field {field}")

    # ---- commands ----

    def help_of(self, *command):
        if command not in self.helps:
            ran = run(*command, *(() if command[0] == "ompi_info" else ("--help",)))
            self.helps[command] = ran.stdout + ran.stderr
        return self.helps[command]

    def options(self, where, name, command, words):
        """All words that are options stand in the help where it lists them."""
        for word in words:
            option = re.match(r"(--?[a-z][\w-]*)", word)
            if option and not re.search(rf"(?m)(^|[\[|,:])\s*{option[1]}(?![\w-])",
                                        self.help_of(*command)):
                self.report.fail(where, f"{name} has no option {option[1]}")

    def tally_command(self, where, words):
        subcommands = set(re.findall(r"^  (\w+) ", self.help_of(self.tally), re.M))
        if not words or words[0] not in subcommands:
            if words:
                self.report.fail(where, f"tally has no command '{' '.join(words)}'")
            return
        command = [words[0]]
        if words[0] == "bench" and len(words) > 1:
            command.append(words[1])
        rest = words[len(command):]
        if words[0] == "run":  # up to the program, which has options of its own
            ends = [i for i, word in enumerate(rest)
                    if not word.startswith("-") and not word.isdigit()]
            if ends and rest[ends[0]].startswith("build/examples/"):
                self.example(where, rest[ends[0]], rest[ends[0] + 1:])
            rest = rest[:ends[0]] if ends else rest
        if not re.match(rf"(usage: )?tally {' '.join(command)}\b", self.help_of(self.tally, *command)):
            self.report.fail(where, f"tally has no command '{' '.join(command)}'")
        elif words[0] in ("hooks", "optimizers"):
            for name in rest:
                if not name.startswith("-") and name not in self.kinds[words[0][:-1]]:
                    self.report.fail(where, f"tally {words[0]} knows no {name}")
        self.options(where, "tally " + " ".join(command), (self.tally, *command), rest)

    def example(self, where, program, words):
        """Its options are those that sources of examples compare with."""
        source = os.path.join(self.root, program[len("build/"):] + ".c")
        if not os.path.exists(source):
            self.report.fail(where, f"no such example: {program}")
            return
        for word in words:
            if word.startswith("--") and f'"{word}"' not in self.example_sources:
                self.report.fail(where, f"{program} has no option {word}")

    def make(self, where, words):
        for word in words:
            if word.startswith("BENCH_ARGS="):
                rest = " ".join(words).split("BENCH_ARGS=")[1].strip('"').split()
                self.options(where, "bench/run_all.py",
                             ("python3", "-B", self.script_path("run_all.py")), rest)
                return
            if re.fullmatch(r"[a-z]+", word) and word not in self.targets:
                self.report.fail(where, f"the Makefile has no target {word}")

    def script(self, where, words):
        path = os.path.join(self.root, words[0])
        if not os.path.exists(path):
            self.report.fail(where, f"no such file: {words[0]}")
        elif len(words) > 1:
            inner = [i for i, word in enumerate(words[1:], 1) if "/" in word]
            python = ("python3", "-B") if path.endswith(".py") else ()
            self.options(where, words[0], (*python, path), words[1:inner[0] if inner else None])

    def command(self, where, text):
        """Whether it was one that this knows."""
        words = text.split()
        if words and words[0].startswith("BENCH_ARGS="):
            self.make(where, words)
            return True
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            self.variable(where, words.pop(0))
        if not words:
            return True
        if words[0] in ("tally", "build/tally"):
            self.tally_command(where, words[1:])
        elif words[0] == "make" and len(words) > 1:
            self.make(where, words[1:])
        elif re.match(r"(scripts|bench)/[\w-]+(\.sh|\.py)?$|\.ci/run$", words[0]):
            self.script(where, words)
        elif re.match(r"--?[A-Za-z]", text):
            self.bare_options(where, words)
        else:
            return False
        return True

    def bare_options(self, where, words):
        """Options without their command: of tally, of a script or example, or of other programs."""
        known = self.example_sources + self.help_of("python3", "-B", self.script_path("run_all.py"))
        known += self.help_of(self.script_path("link.sh"))
        known += "".join(self.help_of(self.tally, *command) for command in
                         (["run"], ["hooks"], ["plan"], ["top"], ["bench", "step"], ["bench", "hooks"]))
        if all(re.search(r"(?<![\w-])" + re.escape(word) + r"(?![\w-])", known)
               for word in words if word.startswith("-")):
            return
        settings = [words[i + 1] for i, word in enumerate(words) if word == "--mca"]
        words = [word.replace("eth0", "lo").replace("PE=4", "PE=1") for word in words]
        tries = [["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "1", *words,
                  "true"],
                 ["mpiexec.mpich", "-n", "1", *words, "true"],
                 ["cc", *words, "-fsyntax-only", "-x", "c", "/dev/null"]]
        tries = [command for command in tries if shutil.which(command[0])]
        if len(tries) == 3 and all(run(*command).returncode for command in tries):
            self.report.fail(where, f"neither tally nor MPI has these options: {' '.join(words)}")
        for name in settings if shutil.which("ompi_info") else ():
            if f":{name}:" not in self.help_of("ompi_info", "--all", "--parsable"):
                self.report.fail(where, f"Open MPI has no parameter {name}")

    def script_path(self, name):
        return os.path.join(self.root, "bench", name)

    def variable(self, where, text):
        """A variable of tally's with a value: one that tally takes."""
        name, value = text.split("=", 1)
        if name == "TALLY_HOOK":
            self.accepted(where, "hook", value.strip("'"))
        elif name in self.variables and name.startswith("TALLY_"):
            environment = dict(os.environ, **{name: value})
            ran = subprocess.run([self.tally, "env"], env=environment, capture_output=True,
                                 text=True, check=False)
            if ran.returncode:
                self.report.fail(where, f"tally does not take {text}: {ran.stderr.strip()}")

    # ---- hooks and optimizers ----

    def answer(self, kind, text):
        self.text_forms.stdin.write(f"{kind} {text}\n")
        self.text_forms.stdin.flush()
        return self.text_forms.stdout.readline().strip()

    def accepted(self, where, kind, text):
        said = self.answer(kind, text)
        if said != "ok":
            self.report.fail(where, said)

    def text_form(self, where, text):
        """Whether it is a hook, an optimizer, or an option of one."""
        name = re.match(r"\"?([a-z0-9_]+)(?=[:(\"]|$)", text)
        for kind, names in self.kinds.items():
            if name and name[1] in names:
                any_hook = re.compile(r"\((hook|\.\.\.)\)")
                self.accepted(where, kind, any_hook.sub("(allreduce)", text.strip('"')))
                return True
        if re.match(r"[a-z0-9_]+:[a-z_]+=", text):
            self.report.fail(where, f"neither a hook nor an optimizer: {text}")
            return True
        option = re.fullmatch(r"([a-z_]+)=[\w.-]+", text)
        if option and not any(self.answer(kind, f"{name}:{text}") == "ok"
                              for kind, names in self.kinds.items()
                              for name, options in names.items() if option[1] in options):
            self.report.fail(where, f"no hook or optimizer takes {text}")
        return bool(option)

    # ---- files ----

    def exists(self, name, folder):
        pattern = re.sub(r"<\w+>|\b[A-Z]{2,}\b|(?<=_)[A-Z]{2,}", "*", name).rstrip("/")
        if name.startswith("build/"):
            return glob.glob(os.path.join(self.build, pattern[len("build/"):])) or "*" in pattern
        if "/" not in name:  # file names are unique in the tree
            pattern = re.escape(pattern).replace(r"\*", "[^/]*")
            return any(re.fullmatch("(.*/)?" + pattern, file) for file in self.files)
        return any(glob.glob(os.path.join(self.root, base, pattern))
                   for base in ("", folder, "src", "examples"))

    def file(self, where, text, folder):
        in_tree = re.match(r"(src|tests|docs|examples|include|bench|scripts|cmake|tools|build|\.ci)/",
                           text)
        if in_tree or re.fullmatch(rf"[\w./*-]+\.{FILE_TYPES}", text):
            if not self.exists(text, folder):
                self.report.fail(where, f"no such file: {text}")

    def link(self, page, where, target, anchors):
        if re.match(r"\w+:", target):
            return
        path, _, anchor = target.partition("#")
        name = os.path.normpath(os.path.join(os.path.dirname(page.name), path)) if path else page.name
        if not os.path.exists(os.path.join(self.root, name)):
            self.report.fail(where, f"leads nowhere: {target}")
        elif anchor and anchor not in anchors.get(name, ()):
            self.report.fail(where, f"{name} has no section #{anchor}")

    def page(self, page, anchors):
        self.words(page)
        for line, target in page.links():
            self.link(page, f"{page.name}:{line}", target, anchors)
            self.n += 1
        for line, text in page.spans():
            where = f"{page.name}:{line}"
            self.n += 1
            if not self.command(where, text) and not self.text_form(where, text):
                self.file(where, text, os.path.dirname(page.name))
        for block in page.blocks:
            for i, line in enumerate(block.lines if block.language == "sh" else ()):
                self.command(f"{block.page}:{block.line + i}", re.sub(r"(^|\s)#.*", "", line))


def main():
    root, build, text_forms = sys.argv[1:]
    report = doc_pages.Report()
    pages = doc_pages.read_pages(root)
    anchors = {page.name: page.anchors for page in pages}
    with subprocess.Popen([text_forms], text=True, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as answers:
        names = Names(root, build, answers, report)
        for page in pages:
            names.page(page, anchors)
    report.end(f"{names.n} names and links in {len(pages)} pages")


main()
