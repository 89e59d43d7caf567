# SPDX-License-Identifier: Apache-2.0
"""read_safetensors.py MAKE_CHECKPOINT: other programs can read the parameters of a checkpoint.

MAKE_CHECKPOINT saves one and prints every parameter. They are read back by a reader that is written
here from the public description of the format (eight bytes with the length of the header, JSON, data),
with struct and, where they are installed, with NumPy, PyTorch and the safetensors package. All must find
the same names, dtypes, shapes and bits.
"""
import importlib.util
import json
import os
import struct
import subprocess
import sys
import tempfile

SIZES = {"F32": 4, "F64": 8, "F16": 2, "BF16": 2}
CODES = {4: "I", 8: "Q", 2: "H"}


def read_header(path):
    """Name -> (dtype, shape, first byte, end), and all bytes; checks the rules of the format."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length].decode("utf-8"))
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values()), metadata
    assert data[8:9] == b"{" and length % 8 == 0, "the header is not aligned"
    at = 0
    tensors = {}
    for name, tensor in header.items():
        first, end = tensor["data_offsets"]
        count = 1
        for size in tensor["shape"]:
            count *= size
        assert first == at and end - first == count * SIZES[tensor["dtype"]], f"{name}: {tensor}"
        at = end
        tensors[name] = (tensor["dtype"], tensor["shape"], 8 + length + first, 8 + length + end)
    assert 8 + length + at == len(data), "there are bytes behind the last tensor"
    return tensors, data


def with_struct(path):
    """Name -> (dtype, shape, bits of all elements)."""
    tensors, data = read_header(path)
    return {
        name: (dtype, shape, list(struct.unpack(f"<{(end - first) // SIZES[dtype]}{CODES[SIZES[dtype]]}", data[first:end])))
        for name, (dtype, shape, first, end) in tensors.items()
    }


def with_numpy(path):
    import numpy

    kinds = {"F32": numpy.float32, "F64": numpy.float64, "F16": numpy.float16, "BF16": numpy.uint16}
    unsigned = {4: numpy.uint32, 8: numpy.uint64, 2: numpy.uint16}
    tensors, data = read_header(path)
    found = {}
    for name, (dtype, shape, first, end) in tensors.items():
        array = numpy.frombuffer(data[first:end], kinds[dtype]).reshape(shape)
        found[name] = (dtype, list(array.shape), array.view(unsigned[SIZES[dtype]]).flatten().tolist() if array.ndim else [int(array.view(unsigned[SIZES[dtype]]))])
    return found


def bits_of_torch(tensor):
    import torch

    views = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    size = tensor.element_size()
    return [value % (1 << 8 * size) for value in tensor.contiguous().view(-1).view(views[size]).tolist()]


def with_torch(path):
    import torch

    kinds = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
    tensors, data = read_header(path)
    found = {}
    for name, (dtype, shape, first, end) in tensors.items():
        if end > first:
            tensor = torch.frombuffer(bytearray(data[first:end]), dtype=kinds[dtype]).reshape(shape)
        else:
            tensor = torch.empty(shape, dtype=kinds[dtype])
        found[name] = (dtype, list(tensor.shape), bits_of_torch(tensor))
    return found


def with_package(path):
    from safetensors.torch import load_file

    names = {"torch.float32": "F32", "torch.float64": "F64", "torch.float16": "F16", "torch.bfloat16": "BF16"}
    return {name: (names[str(t.dtype)], list(t.shape), bits_of_torch(t)) for name, t in load_file(path).items()}


def expected_of(text):
    expected = {}
    for line in text.splitlines():
        head, _, bits = line.partition(" :")
        name, dtype, shape = head.split(" ")
        expected[bytes.fromhex(name).decode("utf-8")] = (
            dtype,
            [] if shape == "-" else [int(size) for size in shape.split(",")],
            [int(word, 16) for word in bits.split()],
        )
    return expected


def check_page(saved, expected):
    """The program that docs/checkpoints.md shows lists all parameters."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "read_parameters.py")
    listed = subprocess.run([sys.executable, "-B", program, saved], check=True, stdout=subprocess.PIPE, text=True).stdout
    for name, (_, shape, _) in expected.items():
        shown = f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(str(size) for size in shape)})"
        assert f"{name} " in listed and shown in listed, f"{name} {shown} is not in: {listed}"


def has(module):
    return importlib.util.find_spec(module) is not None


def run_with_numpy():
    """Runs this program again with the system's Python, if only that one has NumPy."""
    system = "/usr/bin/python3"
    if has("numpy") or sys.executable == system or not os.access(system, os.X_OK):
        return
    if subprocess.run([system, "-c", "import numpy"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        os.execv(system, [system, "-B", *sys.argv])


def main():
    run_with_numpy()
    readers = {"struct": with_struct}
    if has("numpy"):
        readers["NumPy"] = with_numpy
    if has("torch"):
        readers["PyTorch"] = with_torch
    if has("safetensors") and has("torch"):
        readers["safetensors"] = with_package
    for world in ("1", "3"):
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([sys.argv[1], folder, world], check=True, stdout=subprocess.PIPE, text=True)
            expected = expected_of(made.stdout)
            saved = os.path.join(folder, "save-000001-step-3")
            index = os.path.join(saved, "model.safetensors.index.json")
            if os.path.exists(index):
                with open(index, encoding="utf-8") as file:
                    files = json.load(file)["weight_map"]
            else:
                files = {name: "model.safetensors" for name in expected}
            assert sorted(files) == sorted(expected), f"{files}"
            assert len(expected) == 10 and len({dtype for dtype, _, _ in expected.values()}) == 4
            if has("numpy"):
                check_page(saved, expected)
            for title, reader in readers.items():
                read = {}
                for file in sorted(set(files.values())):
                    read.update(reader(os.path.join(saved, file)))
                assert read == expected, f"{title}: {read} is not {expected}"
                print(f"{world} ranks: {title} reads {len(read)} parameters from {len(set(files.values()))} files")


main()
