#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a manual page for each command of tally from its help: command_pages.py TALLY FOLDER. The commands are
those that `tally --help` lists, and those that `tally bench --help` lists. tally.1 is not written here."""

import pathlib
import re
import subprocess
import sys

HEAD = """.\\" Written by command_pages.py from `{command} --help`.
.Dd {date}
.Dt {upper} 1
.Os tally
.Sh NAME
.Nm {dashed}
.Nd {summary}"""

# All pages have the date of tally.1.
DATE = re.search(r"^\.Dd (.*)$", pathlib.Path(__file__).with_name("tally.1").read_text(), re.MULTILINE)[1]


def ask(tally, words):
    return subprocess.run([tally, *words, "--help"], capture_output=True, text=True, check=True).stdout


def listed(text):
    """(name, summary) of the commands that a help lists."""
    return re.findall(r"^  ([a-z]+) +(\S.*)$", text, re.MULTILINE)


def plain(text):
    """Text of a page: no line begins with a request."""
    return "\n".join(("\\&" if line[:1] in ".'" else "") + line.replace("\\", "\\e") for line in text.split("\n"))


def sentence(text):
    """A paragraph ends with a full stop; the first line of a help has none."""
    return text if text.endswith((".", ":")) else text + "."


def page(words, summary, text):
    """The parts of a help: a paragraph, usage, more paragraphs, options, an example."""
    name = "tally " + " ".join(words)
    example = re.search(r"^Example: (.*)", text, re.MULTILINE)
    usage = re.search(r"^usage: (.*)", text, re.MULTILINE)
    body = text[:example.start()] if example else text
    body = body.replace(usage[0], "") if usage else body
    options = re.findall(r"^  (-\S.*?)  +(\S.*(?:\n {10,}\S.*)*)$", body, re.MULTILINE)
    commands = [] if options else listed(body)
    prose = "\n".join(line for line in body.split("\n") if not re.match(r"  +\S", line))
    prose = re.sub(rf"^{name}: ", "", prose.strip())
    prose = prose[:1].upper() + prose[1:]
    out = [HEAD.format(command=name, upper="-".join(["tally", *words]).upper(), dashed="-".join(["tally", *words]),
                       summary=summary, date=DATE),
           ".Sh SYNOPSIS", ".Bd -literal -compact", plain(usage[1] if usage else f"{name} [OPTION...]"), ".Ed",
           ".Sh DESCRIPTION"]
    out += ["\n.Pp\n".join(plain(sentence(part.strip())) for part in re.split(r"\n\s*\n", prose) if part.strip())]
    if options or commands:
        out += [".Bl -tag -width Ds"]
        for option, meaning in options or commands:
            shown = plain(option if options else f"{name} {option}")
            out += [".It Xo", shown, ".Xc", plain(" ".join(meaning.split()))]
        out += [".El"]
    if example:
        out += [".Sh EXAMPLES", ".Dl " + plain(example[1])]
    above = "tally 1" if len(words) == 1 else f"tally-{words[0]} 1"
    return "\n".join(out + [".Sh SEE ALSO", f".Xr {above}", ""])


def main():
    tally, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("tally-*.1"):
        old.unlink()
    todo = [([name], summary) for name, summary in listed(ask(tally, []))]
    while todo:
        words, summary = todo.pop(0)
        text = ask(tally, words)
        if re.search(rf"^'tally {words[0]} COMMAND --help'", text, re.MULTILINE):
            todo += [(words + [name], about) for name, about in listed(text)]
        (folder / f"{'-'.join(['tally', *words])}.1").write_text(page(words, summary, text))


if __name__ == "__main__":
    main()
