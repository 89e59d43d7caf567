#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of the package, with libtally inside if it is built: a zip file with the package,
the library and three files of metadata. `make_wheel.py FOLDER [LIBRARIES]` writes it to FOLDER, with
the libraries of folder LIBRARIES (build/src); none: without, for an installed libtally. pip calls
build_wheel. Needs nothing that is not part of Python.
"""

import base64
import hashlib
import pathlib
import re
import sys
import sysconfig
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent
NAME = "tally_ddp"
BUILT = ROOT.parent / "build" / "src"


def version():
    text = (ROOT.parent / "include" / "tally.h").read_text(encoding="utf-8")
    return ".".join(re.search(rf"TALLY_VERSION_{part} (\d+)", text)[1]
                    for part in ("MAJOR", "MINOR", "PATCH"))


def libraries(built):
    """The library, and its parts for MPI; empty where tally is not built."""
    names = ("libtally.so.0", "libtally-openmpi.so", "libtally-mpich.so")
    return [built / name for name in names if (built / name).exists()]


def contents(built):
    for path in sorted((ROOT / "tally").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_bytes()
    for path in libraries(built):
        yield f"tally/lib/{path.name}", path.resolve().read_bytes()


def metadata():
    text = f"Metadata-Version: 2.1\nName: tally-ddp\nVersion: {version()}\n"
    return text + "License: Apache-2.0\nRequires-Python: >=3.9\n"


def build_wheel(folder, config_settings=None, metadata_directory=None, built=BUILT):
    has_library = bool(libraries(built))
    platform = re.sub(r"\W", "_", sysconfig.get_platform()) if has_library else "any"
    tag = f"py3-none-{platform}"
    name = f"{NAME}-{version()}-{tag}.whl"
    info = f"{NAME}-{version()}.dist-info"
    wheel = ("Wheel-Version: 1.0\nGenerator: tally\n"
             f"Root-Is-Purelib: {'false' if has_library else 'true'}\nTag: {tag}\n")
    record = []
    with zipfile.ZipFile(pathlib.Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        def put(path, data):
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)
        for path, data in contents(built):
            put(path, data)
        put(f"{info}/METADATA", metadata().encode())
        put(f"{info}/WHEEL", wheel.encode())
        record.append(f"{info}/RECORD,,")
        archive.writestr(f"{info}/RECORD", "\n".join(record) + "\n")
    return name


def build_sdist(folder, config_settings=None):
    raise NotImplementedError("build the wheel: the sources are tally's repository")


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    chosen = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else BUILT
    print(target / build_wheel(target, built=chosen))
