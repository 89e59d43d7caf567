#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the binary interface with its record: abi.py DECLARATIONS RECORD [--write].

Everything in the record must still hold, because a program that was built with an older header relies on it:
functions with their arguments, offsets of fields, values of constants. A struct that begins with its size may
grow. What is not in the record is not released yet and may still change; it is listed. --write, before a release,
records it, and refuses if something recorded changed or is gone.
DECLARATIONS is python/tally/_declarations.py, which another test compares with the headers."""

import ctypes
import importlib.util
import sys


def load(path):
    spec = importlib.util.spec_from_file_location("declarations", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(kind):
    if kind is None:
        return "void"
    if hasattr(kind, "contents"):  # a pointer
        return name_of(kind._type_) + "*"
    return kind.__name__


def describe(module):
    """{thing: value} of the whole interface."""
    lines = {}
    for name, (result, arguments) in module.FUNCTIONS.items():
        lines[f"function {name}"] = f"{name_of(result)}({', '.join(map(name_of, arguments))})"
    for name, struct in module.STRUCTS.items():
        grows = " or more" if struct._fields_[0][0] == "size" else ""
        lines[f"struct {name}"] = f"{ctypes.sizeof(struct)} bytes{grows}"
        for field, *_ in struct._fields_:
            place = getattr(struct, field)
            lines[f"field {name}.{field}"] = f"{place.size} bytes at {place.offset}"
    for name, value in vars(module).items():
        if name.startswith("TALLY_") and isinstance(value, int):
            lines[f"constant {name}"] = str(value)
        elif name.startswith("TALLY_"):
            lines.update({f"constant {name[:-5]}_{row}": str(number) for row, number, _ in value})
    return lines


def still_holds(recorded, now):
    """A struct that begins with its size may have grown."""
    if recorded == now:
        return True
    return (now is not None and recorded.endswith(" or more") and now.endswith(" or more") and
            int(now.split()[0]) >= int(recorded.split()[0]))


def main():
    declarations, record = sys.argv[1:3]
    now = describe(load(declarations))
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
