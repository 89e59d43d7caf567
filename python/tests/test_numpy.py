# SPDX-License-Identifier: Apache-2.0
"""Group, DDP and Optimizer on NumPy arrays, and the declarations against the headers. Needs no
PyTorch. Ranks are forked processes."""

import ctypes
import multiprocessing
import os
import pathlib
import subprocess
import sys
import traceback
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

try:
    import numpy
except ImportError:
    print("skipped: python3-numpy is not installed")
    sys.exit(77)

import tally
from tally import _declarations as D


def world(n, body):
    """Runs body(group) on n ranks."""
    name = f"@tally-test-{uuid.uuid4().hex}"
    context = multiprocessing.get_context("fork")

    def main(rank):
        code = 1
        try:
            with tally.Group(rank=rank, world=n, rendezvous=name, timeout_s=30) as group:
                body(group)
            code = 0
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)
    ranks = [context.Process(target=main, args=(rank,)) for rank in range(n)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(100)
    codes = [rank.exitcode for rank in ranks]
    assert codes == [0] * n, codes


def collectives(group):
    n, rank = group.size, group.rank
    for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8"):
        array = numpy.full((2, 3), rank + 1, dtype)
        assert group.all_reduce(array) is array
        assert (array == n * (n + 1) // 2).all(), array
    assert (group.all_reduce(numpy.array([float(rank)]), "max") == n - 1).all()
    assert (group.broadcast(numpy.full(4, rank), root=n - 1) == n - 1).all()
    gathered = group.all_gather(numpy.array([rank, -rank]))
    assert gathered.shape == (n, 2) and (gathered[:, 0] == numpy.arange(n)).all()
    shard = group.reduce_scatter(numpy.ones(5000, "float32"))
    assert (shard == n).all()
    assert group.all_reduce(numpy.array([shard.size]))[0] == 5000
    exchanged = group.all_to_all(numpy.arange(n) + 10 * rank)
    assert (exchanged == 10 * numpy.arange(n) + rank).all()
    group.barrier()
    half = group.split(rank % 2)
    assert half.size == (n + 1 - rank % 2) // 2
    half.close()
    assert group.split(-1) is None
    for wrong, kind in ((numpy.ones(3, "complex64"), TypeError), ([1.0], TypeError),
                        (numpy.ones((4, 4))[:, ::2], ValueError)):
        try:
            group.all_reduce(wrong)
            raise SystemExit("nothing was raised")
        except kind:
            pass


def training(group):
    """ZeRO gives the bits of the plain optimizer, and the state goes on after a load."""
    def run(blobs=None, first=0, **options):
        rng = numpy.random.default_rng(1)
        params = {"w": rng.standard_normal((40, 30)).astype("float32"),
                  "b": rng.standard_normal(700).astype("float32")}
        if blobs:
            for name in params:
                params[name][...] = blobs[2][name]
        with tally.DDP(group, params, hook="bf16", bucket_cap_bytes=2000) as ddp, \
                tally.Optimizer(ddp, "adamw:lr=0.01", **options) as optimizer:
            if blobs:
                ddp.load(blobs[0])
                optimizer.load(blobs[1])
            for step in range(first, first + 5):
                for name in ("b", "w"):
                    noise = numpy.random.default_rng([step, group.rank])
                    ddp.grads[name][...] = noise.standard_normal(params[name].shape)
                    ddp.ready(name)
                ddp.wait()
                if not options:
                    optimizer.step()
            ddp.check()
            assert optimizer.lr == 0.01 and ddp.stats()["hook"] == "bf16"

            def all_of(blob):
                flat = numpy.frombuffer(blob, "uint8")
                sizes = group.all_gather(numpy.array([flat.size]))[:, 0]
                padded = numpy.zeros(sizes.max(), "uint8")
                padded[:flat.size] = flat
                return [row[:size].tobytes() for row, size in zip(group.all_gather(padded), sizes)]
            return params, (all_of(ddp.save()), all_of(optimizer.save()),
                            {name: array.copy() for name, array in params.items()})
    plain, state = run()
    sharded, _ = run(shard=1)
    later, _ = run(state, first=5)
    straight, _ = run(state, first=5, shard=1)
    for name in plain:
        assert (plain[name] == sharded[name]).all(), name
        assert (later[name] == straight[name]).all(), name


def own_gradients(group):
    params = {"a": numpy.zeros(10), "b": numpy.zeros((3, 3))}
    grads = {name: numpy.full(array.shape, group.rank + 1.0) for name, array in params.items()}
    with tally.DDP(group, params, grads, find_unused=1) as ddp:
        ddp.ready("b")
        if group.rank == 0:
            ddp.ready("a")
        ddp.wait()
        assert numpy.allclose(grads["b"], (group.size + 1) / 2)
        assert numpy.allclose(grads["a"], 1 / group.size)
        assert abs(ddp.mean(group.rank) - (group.size - 1) / 2) < 1e-12


def errors(group):
    params = {"a": numpy.zeros(4, "float32")}
    with tally.DDP(group, params) as ddp:
        try:
            ddp.wait()
            raise SystemExit("nothing was raised")
        except tally.TallyError as error:
            assert error.status == "STATE" and "no gradient was announced" in str(error)
        try:
            tally.DDP(group, params, bucket_caps_bytes=3)
            raise SystemExit("nothing was raised")
        except TypeError as error:
            assert "bucket_cap_bytes" in str(error)


def declarations():
    """The declarations are those of the headers, and have the sizes that C gives them."""
    headers = [str(ROOT.parent / "include" / name) for name in ("tally.h", "tally_extend.h")]
    if not pathlib.Path(headers[0]).exists():
        print("declarations: skipped, the headers are not here")
        return
    subprocess.run([sys.executable, "-B", str(ROOT / "generate.py"), "--check", *headers,
                    str(ROOT / "tally" / "_declarations.py")], check=True)
    for name in D.FUNCTIONS:
        assert getattr(tally._library.C, name), name
    config = D.tally_group_config()
    tally._library.C.tally_group_config_init(ctypes.byref(config), ctypes.sizeof(config))
    assert (config.size, config.rank, config.lanes) == (ctypes.sizeof(config), -1, -1)
    assert list(tally.hooks())[0] == "allreduce" and "adamw" in tally.optimizers()


def main():
    declarations()
    for n in (1, 2, 3):
        for body in (collectives, training, own_gradients, errors):
            world(n, body)
    print("test_numpy: ok")


if __name__ == "__main__":
    main()
