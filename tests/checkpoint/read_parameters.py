# SPDX-License-Identifier: Apache-2.0
"""read_parameters.py FOLDER: the program of docs/checkpoints.md, which reads a checkpoint with NumPy alone."""
import json, os, struct, sys
import numpy

DTYPES = {"F32": numpy.float32, "F64": numpy.float64, "F16": numpy.float16, "BF16": numpy.uint16}

def read(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[slice(*about["data_offsets"])], DTYPES[about["dtype"]]).reshape(about["shape"])
            for name, about in header.items()}

folder = sys.argv[1]
index = os.path.join(folder, "model.safetensors.index.json")
files = {"model.safetensors"}
if os.path.exists(index):
    files = set(json.load(open(index))["weight_map"].values())
for file in sorted(files):
    for name, array in read(os.path.join(folder, file)).items():
        print(name, array.dtype, array.shape)
