# SPDX-License-Identifier: Apache-2.0
"""Group, DDP and Optimizer on NumPy arrays, and the declarations against the headers. Needs no
PyTorch. Ranks are forked processes."""

import ast
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


def refused(call, kind, *words):
    """The call raises this kind of error, with these words."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (error, words)
        return
    raise SystemExit(f"nothing was raised: {kind.__name__} {words}")


def mistakes(group):
    """Arguments that clumsy programs give, on all ranks: the error names them, and tally works on."""
    def ddp(params, *more, **options):
        return lambda: tally.DDP(group, params, *more, **options)

    def vector(dtype="float32"):
        return numpy.zeros(3, dtype)
    frozen = vector()
    frozen.setflags(write=False)
    refused(ddp({"w": frozen}), ValueError, "parameter 'w'", "writable")
    refused(ddp({"w": numpy.zeros((3, 2), order="F")}), ValueError, "parameter 'w'", "C-contiguous")
    refused(ddp({"w": vector("int32")}), TypeError, "parameter 'w' has dtype int32; accepted: float32")
    refused(ddp({"w": vector(">f4")}), TypeError, "parameter 'w' has dtype >f4")
    refused(ddp({"w": [1.0]}), TypeError, "parameter 'w' is a list")
    refused(ddp([vector()]), TypeError, "params is a list")
    refused(ddp({1: vector()}), TypeError, "name of a parameter", "expected a str")
    refused(ddp({"a\0b": vector()}), ValueError, "NUL")
    refused(ddp({}), tally.TallyError, "there are no parameters")
    refused(ddp({"w": vector(), "b": vector()}, {"w": vector()}), ValueError, "no array for", "'b'")
    refused(ddp({"w": vector()}, {"w": vector("float64")}), ValueError, "the gradient of 'w'")
    refused(ddp({"w": vector()}, hook="int9"), tally.TallyError, "no hook 'int9'")
    refused(ddp({"w": vector()}, hook=8), TypeError, "hook is a int, 8")
    refused(ddp({"w": vector()}, bucket_cap_bytes=-5), ValueError, "'bucket_cap_bytes'", "-5")
    refused(ddp({"w": vector()}, bucket_cap_bytes="x"), TypeError, "'bucket_cap_bytes'", "'x'")
    refused(ddp({"w": vector()}, bucket_cap_bytes=1.5), TypeError, "'bucket_cap_bytes'", "1.5")
    refused(ddp({"w": vector()}, bucket_cap_bytes=2**70), ValueError, "'bucket_cap_bytes'")
    refused(ddp({"w": vector()}, reserved=1), TypeError, "unknown option 'reserved'")
    # A number is no address: C would read there.
    refused(ddp({"w": vector()}, buffer_hook=8), TypeError, "'buffer_hook'", "8")
    for option in ("backend", "rendezvous", "mpi_comm"):
        refused(lambda: tally.Group(**{option: 8}), TypeError, f"'{option}'", "8")
    refused(ddp({"w": numpy.zeros(9, "uint8")[1:].view("float32")}), ValueError, "parameter 'w'", "copy")
    refused(ddp({"w": vector()}, {"w": vector(), "q": vector()}), KeyError, "no parameter 'q'")
    refused(ddp({"w": vector()}, [vector()]), TypeError, "grads is a list")
    refused(lambda: tally.DDP(None, {"w": vector()}), TypeError, "group is a NoneType")
    refused(lambda: tally.Optimizer(None, "adam"), TypeError, "ddp is a NoneType")
    refused(lambda: tally.Optimizer(group, "adam"), TypeError, "ddp is a Group, not a tally.DDP")
    refused(lambda: tally.Group("shm"), TypeError, "positional")
    objects = numpy.array([{}] * group.size)
    for call in (group.all_gather, group.broadcast, group.all_to_all, group.all_reduce):
        refused(lambda: call(objects), TypeError, "array has dtype object")
    refused(lambda: group.broadcast(vector(), root=2**32), ValueError, "root")
    refused(lambda: group.broadcast(vector(), root="0"), TypeError, "root is '0'")
    refused(lambda: group.split(None), TypeError, "color is None")
    refused(lambda: group.abort(None), TypeError, "reason is None")
    refused(lambda: group.all_reduce(vector(), ["sum"]), ValueError, "['sum']")
    refused(lambda: group.all_reduce(numpy.zeros(9, "uint8")[1:].view("float32")), ValueError, "copy")
    refused(lambda: group.split(2**40), ValueError, "color")
    refused(lambda: group.all_to_all(numpy.float32(1)), ValueError, "rows")
    assert group.all_gather(numpy.float32(group.rank)).shape == (group.size,)
    with tally.DDP(group, {"scalar": numpy.zeros(()), "empty": numpy.zeros((0, 3)), "w": vector("f8")},
                   bucket_cap_bytes=8) as made:
        refused(lambda: made.ready("q"), KeyError, "no parameter 'q'", "scalar, empty, w")
        refused(lambda: made.ready(["w"]), KeyError, "no parameter ['w']")
        refused(lambda: made.set_hook(None), TypeError, "hook is None")
        refused(lambda: made.clip_grad_norm("1"), TypeError, "max_norm is '1'")
        refused(lambda: made.mean(numpy.zeros(3)), TypeError, "value is array")
        refused(lambda: tally.DDP(made, {"w": vector()}), TypeError, "group is a DDP")
        refused(lambda: tally.Optimizer(made, None), TypeError, "optimizer is None")
        refused(lambda: made.grads.__setitem__("w", vector("f8")), TypeError,
                "fill it, with grads['w'][...]")
        for blobs in (b"x", None, "x", ["x"], 8):
            refused(lambda: made.load(blobs), TypeError, "one blob per rank")
        refused(lambda: made.load([b"x" * 100]), tally.TallyError, "not written by tally_ddp_save")
        for name in made.params:
            made.grads[name][...] = group.rank
            made.grads[name] += 1
            made.ready(name)
        made.wait()
        assert (made.grads["w"] == (group.size + 1) / 2).all()
    options = {"bucket_cap_bytes": numpy.int64(5000), "find_unused": True}
    with tally.DDP(group, {"w": vector()}, **options) as made, tally.Optimizer(made, "adam") as adam:
        refused(lambda: setattr(adam, "lr", None), TypeError, "lr is None")
    group.barrier()


def closed(group):
    """Calls after the end, in any order of ends, are errors, and ends can be repeated."""
    import copy
    import pickle
    made = tally.DDP(group, {"w": numpy.zeros(4, "float32")})
    optimizer = tally.Optimizer(made, "adam")
    for thing in (group, made, optimizer):
        refused(lambda: copy.copy(thing), TypeError, "cannot be copied")
        refused(lambda: copy.deepcopy(thing), TypeError, "cannot be copied")
        refused(lambda: pickle.dumps(thing), TypeError, "cannot be copied")
    refused(group.close, tally.TallyError, "still open")
    made.close()
    refused(optimizer.step, tally.TallyError, "its ddp was freed")
    for call in (made.wait, made.stats, made.save, lambda: made.ready("w")):
        refused(call, ValueError, "the ddp is closed")
    optimizer.close()
    for call in (optimizer.step, optimizer.save, lambda: optimizer.lr, optimizer.stats):
        refused(call, ValueError, "the optimizer is closed")
    made.close()
    optimizer.close()
    half = group.split(0)
    half.close()
    half.close()
    refused(half.barrier, ValueError, "the group is closed")
    assert repr(half) == "Group(closed)"


def dropped(group):
    """Objects that nobody closes end with their last reference: threads and memory stay, and a
    gradient that is still held stays valid."""
    import gc

    def use():
        half = group.split(0)
        params = {"w": numpy.zeros(100000, "float32")}
        made = tally.DDP(half, params)
        optimizer = tally.Optimizer(made, "adam")
        cycle = [half, made, optimizer]
        cycle.append(cycle)
        return made.grads["w"]
    sizes = []
    for _ in range(30):
        held = use()
        gc.collect()
        held[...] = 1
        del held
        gc.collect()
        with open("/proc/self/statm", encoding="ascii") as file:
            sizes.append((len(os.listdir("/proc/self/task")), int(file.read().split()[1])))
    assert sizes[-1][0] <= sizes[9][0], sizes
    assert sizes[-1][1] - sizes[9][1] < 500, sizes  # pages: less than two of the 20 copies
    group.barrier()


def forked(group):
    """A forked child cannot use the objects, is told so, and drops them without a word to others."""
    import gc
    made = tally.DDP(group, {"w": numpy.zeros(4, "float32")})
    child = os.fork()
    if child == 0:
        try:
            refused(group.barrier, tally.TallyError, "STATE", "fork")
            refused(lambda: made.ready("w"), tally.TallyError, "STATE", "fork")
            made.close()
            del made
            gc.collect()
            group.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    made.grads["w"][...] = group.rank
    made.ready("w")
    made.wait()
    assert (made.grads["w"] == (group.size - 1) / 2).all()
    made.close()


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


def oldest_python():
    """Every file has the syntax of Python 3.9, whose annotations have no "X | Y" unless they are kept
    as texts."""
    for path in [*(ROOT / "tally").rglob("*.py"), ROOT.parent / "examples/torch_ddp.py"]:
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
        annotations = [note for node in ast.walk(tree)
                       for note in (getattr(node, "annotation", None), getattr(node, "returns", None))
                       if note is not None]
        unions = [part.lineno for note in annotations for part in ast.walk(note)
                  if isinstance(part, ast.BinOp)]
        texts = [node for node in tree.body if isinstance(node, ast.ImportFrom)
                 and node.module == "__future__" and node.names[0].name == "annotations"]
        assert texts or not unions, f"{path}:{unions}"


def libraries():
    """A library that is missing, or is none, or a PyTorch that is missing: one error says so."""
    def text_of(program, **more):
        done = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": str(ROOT), **more})
        assert done.returncode == 1, done
        return done.stderr.strip().splitlines()[-1]
    missing = text_of("import tally", TALLY_LIBRARY="/nowhere/libtally.so")
    assert missing.startswith("ImportError") and "/nowhere/libtally.so" in missing, missing
    assert "set TALLY_LIBRARY" in missing, missing
    other = text_of("import tally", TALLY_LIBRARY="libm.so.6")
    assert other == "ImportError: libm.so.6 has no tally_version: it is not libtally", other
    for module in ("torch", "numpy"):
        program = (f"import sys; sys.modules['{module}'] = None; import tally; "
                   + ("import tally.torch" if module == "torch" else "tally.Group().all_reduce([1.0])"))
        assert text_of(program).startswith("ModuleNotFoundError"), module
        assert module in text_of(program)


def main():
    declarations()
    oldest_python()
    libraries()
    for n in (1, 2, 3):
        for body in (collectives, training, own_gradients, errors, mistakes, closed, dropped,
                     forked):
            world(n, body)
    print("test_numpy: ok")


if __name__ == "__main__":
    main()
