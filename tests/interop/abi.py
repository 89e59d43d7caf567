#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the binary interface with its record: abi.py RECORD READELF LIBRARY HEADER... [--write].

Everything in the record must still hold, because a program that was built with an older header relies on it:
functions with their C types and symbol versions, types and offsets of fields, callbacks, values of enums and macros. A
struct that begins with its size may grow. Everything else is not released yet and may still change; it is listed.
--write, before a release, records it, and refuses if something recorded changed or is gone."""

import ctypes
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import generate  # noqa: E402: python/generate.py reads the headers


def c_type(text):
    """A C type on one line. const does not change how values are passed."""
    words = re.sub(r"\bconst\b", "", text).replace("*", " * ").split()
    return " ".join(words).replace("* *", "**")


def c_function(result, arguments):
    kinds = [part if part.strip() == "void" else generate.split_declaration(part)[0]
             for part in generate.split_arguments(arguments)]
    return f"{c_type(result)}({', '.join(map(c_type, kinds))})"


def c_field(text):
    """The name and the type of a field."""
    function = re.match(r"(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", text, re.S)
    if function:
        return function[2], c_function(function[1], function[3])
    declared, name, array = generate.split_declaration(text)
    return name, c_type(declared) + array


def symbol_versions(readelf, library):
    """{function: version} of the symbols that the library exports."""
    listed = subprocess.run([readelf, "--dyn-syms", "--wide", library], check=True, capture_output=True,
                            text=True).stdout
    return dict(re.findall(r"(tally_\w+)@+(\S+)", listed))


def number_macros(headers):
    """(name, value) of each macro that is a number, except the version's."""
    text = "\n".join(pathlib.Path(header).read_text(encoding="utf-8") for header in headers)
    return re.findall(r"^#define (TALLY_(?!VERSION_)\w+) \(?(-?\w+)\)?$", text, re.MULTILINE)


def describe(headers, versions):
    """{thing: value} of the whole interface."""
    read = generate.read_headers(headers)
    layout = {}
    exec(generate.generate(headers), layout)  # the layout that ctypes gives to the structs
    lines = {}
    for result, name, arguments in read.functions:
        version = versions.get(name, "not exported")
        lines[f"function {name}"] = f"{c_function(result, arguments)}, {version}"
    for name, (result, arguments) in read.callbacks.items():
        lines[f"callback {name}"] = c_function(result, arguments)
    bodies = dict(read.structs)
    bodies.update({alias: bodies[of] for of, alias in read.aliases})
    for name, body in bodies.items():
        struct = layout[name]
        grows = " or more" if struct._fields_[0][0] == "size" else ""
        lines[f"struct {name}"] = f"{ctypes.sizeof(struct)} bytes{grows}"
        for field, kind in (c_field(part.strip()) for part in body.split(";") if part.strip()):
            place = getattr(struct, field)
            lines[f"field {name}.{field}"] = f"{kind}, {place.size} bytes at {place.offset}"
    lines.update({f"constant {name}": value for name, value in [*read.constants, *number_macros(headers)]})
    for name, rows in read.lists.items():
        lines.update({f"constant {name[:-5]}_{row}": str(value) for row, value, _ in rows})
    return lines


def still_holds(recorded, now):
    """A struct that begins with its size may have grown."""
    if recorded == now:
        return True
    return (now is not None and recorded.endswith(" or more") and now.endswith(" or more") and
            int(now.split()[0]) >= int(recorded.split()[0]))


def main():
    record, readelf, library, *headers = [word for word in sys.argv[1:] if word != "--write"]
    now = describe(headers, symbol_versions(readelf, library))
    with open(record, encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    head = [line for line in lines if line.startswith("#")]
    recorded = dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))
    broken = [f"{thing}: was {value}, is {now.get(thing, 'gone')}" for thing, value in recorded.items()
              if not still_holds(value, now.get(thing))]
    if broken:
        sys.exit("\n".join(broken) + "\nabi: programs that are built already would break. Keep the old form, "
                 "or give the library a new soname (CONTRIBUTING.md, Releases)")
    if "--write" in sys.argv:
        with open(record, "w", encoding="utf-8") as file:
            file.write("\n".join(head + [f"{thing}: {value}" for thing, value in sorted(now.items())]) + "\n")
    else:
        for thing in sorted(set(now) - set(recorded)):
            print(f"not recorded, so not released yet: {thing}: {now[thing]}")
    print(f"{len(recorded)} things are as recorded")


if __name__ == "__main__":
    main()
