# SPDX-License-Identifier: Apache-2.0
"""The package as users install it, in fresh virtual environments that see Debian's PyTorch: `pip
install .`, the wheel of `make wheel`, and the package without a library, which finds an installed
libtally by its soname. Each is used, and the example trains from the wheel."""

import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = pathlib.Path(os.environ.get("TALLY_LIBRARY", ROOT.parent / "build/src/libtally.so.0")).parent
TOOL = os.environ.get("TALLY_TOOL", str(ROOT.parent / "build" / "tally"))
LOOK = ("import tally, tally._library as library; "
        "assert tally.Group().size == 1; print(tally.__file__, library.PATH, tally.__version__)")


def environment(**more):
    """Without what would lead to another copy of the package or of the library."""
    kept = {name: value for name, value in os.environ.items()
            if name not in ("TALLY_LIBRARY", "PYTHONPATH", "LD_LIBRARY_PATH")
            and not name.startswith("PIP_")}
    return {**kept, "PIP_NO_CACHE_DIR": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **more}


def run(*command, folder, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          cwd=folder, env=environment(**more), timeout=200)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def fresh(folder, name):
    """Makes a virtual environment, which uses the pip of the system; returns its Python."""
    run(sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", folder / name,
        folder=folder)
    return folder / name / "bin" / "python"


def pip_install(python, what, folder):
    """Nothing is fetched: the package needs nothing but Python to be built."""
    run(python, "-m", "pip", "install", "--no-index", "--quiet", what, folder=folder)
    said, library, version = run(python, "-B", "-c", LOOK, folder=folder).split()
    home = python.parent.parent
    assert pathlib.Path(said).is_relative_to(home), said
    if (BUILT / "libtally.so.0").exists() and BUILT == ROOT.parent / "build/src":
        assert pathlib.Path(library).is_relative_to(home), library
    listed = run(python, "-m", "pip", "show", "tally-ddp", folder=folder)
    assert f"Version: {version}" in listed, listed


def from_checkout(folder):
    python = fresh(folder, "checkout")
    pip_install(python, ROOT, folder)
    run(python, "-m", "pip", "uninstall", "--quiet", "--yes", "tally-ddp", folder=folder)
    left = list((folder / "checkout").rglob("tally*"))
    assert not left, left


def from_wheel(folder):
    made = run(sys.executable, "-B", ROOT / "make_wheel.py", folder / "wheels", BUILT,
               folder=folder).strip()
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
    assert "tally/torch/hooks.py" in names and "tally/lib/libtally.so.0" in names, names
    python = fresh(folder, "wheel")
    pip_install(python, made, folder)
    for mpirun in ("mpirun.openmpi", "mpiexec.mpich"):  # their parts of tally are in the wheel
        if subprocess.run(["sh", "-c", f"command -v {mpirun}"], capture_output=True).returncode:
            print(f"{mpirun}: skipped, not installed")
            continue
        root = ["--allow-run-as-root", "--oversubscribe"] if "openmpi" in mpirun else []
        program = ("import numpy, tally\n"
                   "with tally.Group(backend='mpi') as group:\n"
                   "    assert group.all_reduce(numpy.ones(3)).tolist() == [2, 2, 2]\n")
        run(mpirun, *root, "-n", 2, python, "-B", "-c", program, folder=folder)
    if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        print("the example: skipped, python3-torch is not installed")
        return
    said = run(TOOL, "run", "-n", "2", python, "-B", ROOT.parent / "examples" / "torch_ddp.py",
               "int8", folder=folder, OMP_NUM_THREADS="1")
    assert "int8 on 2 ranks" in said, said
    share = float(said.split("ranks: ")[1].split("%")[0])
    assert share > 85, said
    print(said.strip())


def without_library(folder):
    """As a distribution packages it: the library is a package, and the loader finds it."""
    made = run(sys.executable, "-B", ROOT / "make_wheel.py", folder / "pure", "none",
               folder=folder).strip()
    assert made.endswith("-any.whl"), made
    python = fresh(folder, "pure-env")
    run(python, "-m", "pip", "install", "--no-index", "--quiet", made, folder=folder)
    library = run(python, "-B", "-c", LOOK, folder=folder, LD_LIBRARY_PATH=BUILT).split()[1]
    assert library == "libtally.so.0", library
    done = subprocess.run([python, "-B", "-c", "import tally"], capture_output=True, text=True,
                          cwd=folder, env=environment(TALLY_LIBRARY=str(folder / "nowhere.so")))
    assert done.returncode == 1 and "TALLY_LIBRARY" in done.stderr, done.stderr


def main():
    if subprocess.run([sys.executable, "-c", "import pip, venv"], capture_output=True).returncode:
        print("skipped: python3-pip is not installed")
        return 77
    if not (BUILT / "libtally.so.0").exists():
        print("skipped: libtally is not built")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        for case in (from_checkout, from_wheel, without_library):
            case(folder)
            print(f"{case.__name__}: ok", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
