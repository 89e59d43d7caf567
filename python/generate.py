#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tally/_declarations.py from the public headers: every struct, enum and function, for
ctypes. `generate.py HEADERS OUTPUT` writes the file; with --check it compares, and fails if the
file is out of date.
"""

import re
import sys
import types

HEAD = '''# SPDX-License-Identifier: Apache-2.0
"""tally's C interface for ctypes. Written by generate.py from tally.h and tally_extend.h: do not
edit. STRUCTS and FUNCTIONS have the names of the headers.
"""

import ctypes
from ctypes import (c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint, c_ulonglong,
                    c_void_p)

'''
WIDTH = 100
SCALARS = {"int": "c_int", "unsigned": "c_uint", "size_t": "c_size_t", "double": "c_double",
           "float": "c_float", "unsigned long long": "c_ulonglong", "void": "None"}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", " ", text, flags=re.S)


def ctype(declared, structs, enums, callbacks):
    """The ctypes name of a C type without its identifier."""
    stars = declared.count("*")
    base = " ".join(word for word in declared.replace("*", " ").split() if word != "const")
    if base in callbacks and stars == 0:
        return base
    if base in enums:
        base = "int"
    if stars == 0:
        return SCALARS[base] if base in SCALARS else base
    if stars == 1 and base == "char":
        return "c_char_p"
    if base in structs:
        inner = base
    elif stars == 1 and base in SCALARS and base != "void":
        inner = SCALARS[base]
    else:
        inner, stars = "c_void_p", stars - 1  # an object of tally, or bytes of any kind
    for _ in range(stars):
        inner = f"ctypes.POINTER({inner})"
    return inner


def split_declaration(text):
    """A type and a name; the name of a function pointer is inside its brackets."""
    function = re.match(r".*\(\s*\*\s*(\w+)\s*\)\s*\(.*\)$", text, re.S)
    if function:
        return None, function.group(1), ""
    found = re.match(r"(.*?)(\w+)\s*(\[.*\])?$", text.strip(), re.S)
    return found.group(1), found.group(2), found.group(3) or ""


def split_arguments(text):
    depth, start, parts = 0, 0, []
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return parts + [text[start:]]


def struct_lines(name, body, structs, enums, callbacks):
    lines, fields = [f"class {name}(ctypes.Structure):", "    _fields_ = ["], []
    for field in (part.strip() for part in body.split(";")):
        if not field:
            continue
        declared, identifier, array = split_declaration(field)
        is_function = declared is None or declared.strip() in callbacks
        kind = "c_void_p" if is_function else ctype(declared, structs, enums, callbacks)
        if array:
            kind = f"c_char * {array.strip('[]')}"
        fields.append(f'("{identifier}", {kind}),')
    row = "       "
    for field in fields:
        if len(row) + len(field) + 1 > WIDTH:
            lines.append(row)
            row = "       "
        row += " " + field
    return lines + [row, "    ]", "", ""]


def read_lists(text):
    """The X-macro lists of the headers: name, value, text."""
    lists = {}
    for name, body in re.findall(r"#define (TALLY_\w+_LIST)\(X\)(.*?[^\\])\n", text, re.S):
        lists[name] = [(row, int(value), words) for row, value, words in
                       re.findall(r'X\((\w+), (-?\d+), "([^"]*)"\)', body)]
    return lists


def read_headers(paths):
    """The declarations of the headers, as C text without comments: the lists, the names of enums, their constants, callbacks
    (name: result, arguments), structs (name, body), second names of structs (of, alias), functions (result, name,
    arguments)."""
    text = "\n".join(open(path, encoding="utf-8").read() for path in paths)
    plain = re.sub(r"^\s*#.*?[^\\]$", "", without_comments(text), flags=re.M | re.S)
    plain = re.sub(r"^\s*#.*$", "", plain, flags=re.M)
    enums = re.findall(r"typedef enum (\w+) \{([^}]*)\}", plain)
    return types.SimpleNamespace(
        lists=read_lists(text),
        enums=re.findall(r"typedef enum (\w+)", plain),
        constants=[row for _, body in enums for row in re.findall(r"(\w+) = (\d+)", body)],
        callbacks={name: (result, arguments) for result, name, arguments in
                   re.findall(r"typedef (int|void) \(\*(\w+)\)\(([^)]*)\);", plain)},
        structs=re.findall(r"struct (\w+) \{(.*?)\}", plain, re.S),
        aliases=re.findall(r"typedef (tally_\w+) (tally_\w+);", plain),
        functions=re.findall(r"TALLY_API ([\w\s*]*?)(\w+)\((.*?)\);", plain, re.S))


def generate(headers):
    read = read_headers(headers)
    enums, callbacks = read.enums, read.callbacks
    structs = [name for name, _ in read.structs] + [alias for _, alias in read.aliases]

    out = [HEAD]
    for name, rows in read.lists.items():
        out.append(f"{name} = (")
        out += [f'    ("{row}", {value}, "{words}"),' for row, value, words in rows]
        out += [")", ""]
    out += [f"{name} = {value}" for name, value in read.constants]
    out.append("")
    for at, (name, body) in enumerate(read.structs):  # a pointer to a later struct is any pointer
        out += struct_lines(name, body, structs[:at], enums, callbacks)
    for name, (result, arguments) in callbacks.items():
        kinds = [ctype(split_declaration(part)[0], structs, enums, callbacks)
                 for part in split_arguments(arguments)]
        out.append(f"{name} = ctypes.CFUNCTYPE({', '.join([SCALARS[result]] + kinds)})")
    out.append("")
    out += [f"{alias} = {of}" for of, alias in read.aliases]
    out += ["STRUCTS = {", *[f'    "{name}": {name},' for name in structs], "}", ""]
    out.append("FUNCTIONS = {")
    for result, name, arguments in read.functions:
        kinds = [] if arguments.strip() == "void" else [
            ctype(split_declaration(part)[0], structs, enums, callbacks)
            for part in split_arguments(arguments)]
        out.append(f'    "{name}": ({ctype(result, structs, enums, callbacks)}, '
                   f"[{', '.join(kinds)}]),")
    return "\n".join(out + ["}", ""])


def main():
    check = "--check" in sys.argv
    *headers, output = [word for word in sys.argv[1:] if word != "--check"]
    fresh = generate(headers)
    if not check:
        with open(output, "w", encoding="utf-8") as file:
            file.write(fresh)
    elif open(output, encoding="utf-8").read() != fresh:
        sys.exit(f"generate: {output} does not match the headers: run generate.py without --check")


if __name__ == "__main__":
    main()
