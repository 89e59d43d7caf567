# SPDX-License-Identifier: Apache-2.0
"""The backend "tally" of torch.distributed: every collective against the plain result, sub-groups,
objects, non-contiguous tensors, and the names it does not offer."""

import datetime
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import worlds  # first: it skips the test without PyTorch, and finds the package
import torch
import torch.distributed as dist

import tally.torch


def values(rank, *shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn(shape, generator=generator) * 10).to(dtype)


def reductions(rank, world):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
                  torch.int32, torch.uint8, torch.int8, torch.int16):
        every = [values(r, 3, 5).abs().div(8).to(dtype) for r in range(world)]
        for op, expected in ((dist.ReduceOp.SUM, sum(x.double() for x in every)),
                             (dist.ReduceOp.MAX, torch.stack(every).double().max(0).values),
                             (dist.ReduceOp.MIN, torch.stack(every).double().min(0).values)):
            tensor = every[rank].clone()
            dist.all_reduce(tensor, op=op)
            torch.testing.assert_close(tensor.double(), expected.to(dtype).double(), rtol=2e-2,
                                       atol=2e-2)
            assert worlds.equal_on_all(tensor)
    transposed = values(rank, 4, 6).t()
    dist.all_reduce(transposed)
    torch.testing.assert_close(transposed, sum(values(r, 4, 6).t() for r in range(world)))
    flag = torch.tensor([rank == 0])
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    assert flag.item() is True
    tensor = values(rank, 7)
    dist.reduce(tensor, dst=world - 1)
    expected = sum(values(r, 7) for r in range(world)) if rank == world - 1 else values(rank, 7)
    torch.testing.assert_close(tensor, expected)
    output = torch.empty(5)
    dist.reduce_scatter(output, [values(rank, 5) + r for r in range(world)])
    torch.testing.assert_close(output, sum(values(r, 5) for r in range(world)) + world * rank)


def moves(rank, world):
    tensor = values(rank, 3, 2)
    dist.broadcast(tensor, src=world - 1)
    assert torch.equal(tensor, values(world - 1, 3, 2))
    gathered = [torch.empty(4, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(gathered, torch.full((4,), rank))
    assert all(torch.equal(gathered[r], torch.full((4,), r)) for r in range(world))
    outputs = [torch.empty(2) for _ in range(world)]
    dist.all_to_all(outputs, [torch.full((2,), float(10 * rank + r)) for r in range(world)])
    assert all(torch.equal(outputs[r], torch.full((2,), float(10 * r + rank))) for r in range(world))
    whole = torch.empty(world * 3)
    dist.all_to_all_single(whole, torch.arange(world * 3.) + 100 * rank)
    expected = torch.cat([torch.arange(3.) + 3 * rank + 100 * r for r in range(world)])
    assert torch.equal(whole, expected)
    collected = [torch.empty(3) for _ in range(world)] if rank == 0 else None
    dist.gather(values(rank, 3), collected, dst=0)
    assert rank != 0 or all(torch.equal(collected[r], values(r, 3)) for r in range(world))
    received = torch.empty(3)
    dist.scatter(received, [values(r, 3) for r in range(world)] if rank == 1 else None, src=1)
    assert torch.equal(received, values(rank, 3))
    dist.barrier()
    empty = torch.empty(0)
    dist.all_reduce(empty)


def objects(rank, world):
    every = [None] * world
    dist.all_gather_object(every, {"rank": rank, "words": "x" * (rank * 100)})
    assert [entry["rank"] for entry in every] == list(range(world))
    listed = [f"from {rank}", rank]
    dist.broadcast_object_list(listed, src=1)
    assert listed == ["from 1", 1]
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work.wait() and torch.equal(work.result()[0], torch.full((3,), float(world)))


def groups(rank, world):
    pair = dist.new_group([0, world - 1])
    others = dist.new_group(list(range(1, world)))
    tensor = torch.ones(1)
    if rank in (0, world - 1):
        dist.all_reduce(tensor, group=pair)
        assert tensor.item() == 2
    tensor = torch.ones(1)
    if rank > 0:
        dist.all_reduce(tensor, group=others)
        assert tensor.item() == world - 1


def not_offered(rank, world):
    for call in (lambda: dist.send(torch.ones(1), (rank + 1) % world),
                 lambda: dist.recv(torch.ones(1), (rank + 1) % world),
                 lambda: dist.all_reduce(torch.ones(1), op=dist.ReduceOp.PRODUCT)):
        try:
            call()
            raise SystemExit("nothing was raised")
        except NotImplementedError as error:
            assert "not offered" in str(error), repr(error)


def refused(call, kind, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (error, words)
        return
    raise SystemExit(f"nothing was raised: {words}")


def mistakes(rank, world):
    """Tensors that do not fit, on all ranks: an error that names the call, and no bytes move."""
    def like(*shape, n=world):
        return [torch.zeros(shape) for _ in range(n)]
    four = torch.ones(4)
    for outputs, words in ((like(3), "has 3 elements"), (like(5), "has 5 elements"),
                           (like(4, n=world - 1), f"a list of {world} tensors")):
        refused(lambda: dist.all_gather(outputs, four), ValueError, "all_gather", words)
        if rank == 0:
            refused(lambda: dist.gather(four, outputs, dst=0), ValueError, "gather", words)
            refused(lambda: dist.scatter(four, outputs, src=0), ValueError, "scatter", words)
        refused(lambda: dist.reduce_scatter(torch.zeros(4), outputs), ValueError, "reduce_scatter",
                words)
    refused(lambda: dist._all_gather_base(torch.zeros(3), four), ValueError, "all_gather", "got 3")
    refused(lambda: dist._reduce_scatter_base(torch.zeros(3), torch.ones(3 * world + 1)), ValueError,
            "reduce_scatter", f"got {3 * world + 1}")
    refused(lambda: dist.all_to_all(like(2, n=1), like(2, n=1)), ValueError, "all_to_all")
    rows = torch.ones(world)
    for sent, got in (([1000] * world, [1] * world), ([1] * world, [1000] * world), ([world], [world]),
                      ([-1] + [1] * (world - 2) + [2], [1] * world)):
        refused(lambda: dist.all_to_all_single(torch.zeros(world), rows, got, sent), ValueError,
                "all_to_all_single", f"{world} rows")
    refused(lambda: dist.all_to_all_single(torch.zeros(world + 1), torch.ones(world + 1)), ValueError,
            "all_to_all_single", f"{world + 1} rows")
    for tensor in (torch.eye(2).to_sparse(), torch.ones(2, device="meta")):
        refused(lambda: dist.all_reduce(tensor), NotImplementedError, "dense tensors on the CPU")
    coded = torch.quantize_per_tensor(four, 1.0, 0, torch.quint8)
    refused(lambda: dist.all_gather([coded] * world, coded), NotImplementedError, "dense tensors")
    one = torch.zeros(1).expand(4)
    for call in (lambda: dist.all_reduce(one), lambda: dist.broadcast(one, 0),
                 lambda: dist.all_gather([one] * world, four),
                 lambda: dist.reduce_scatter(one, like(4))):
        refused(call, ValueError, "expanded tensor", "clone it")
    total = torch.zeros(4)
    dist.reduce_scatter(total, [torch.ones(1).expand(4)] * world)
    assert (total == world).all()
    for root in (world, -1):
        for call in (lambda: dist.broadcast(four, root), lambda: dist.reduce(four, root),
                     lambda: dist.gather(four, None, root), lambda: dist.scatter(four, None, root)):
            refused(call, ValueError, f"rank {root} is not in 0..{world - 1}")
    refused(lambda: dist.all_to_all_single(torch.zeros(()), torch.zeros(())), ValueError, "no rows")
    refused(lambda: tally.torch.init_process_group("gloo"), ValueError, "'tally', not 'gloo'")
    refused(tally.torch.init_process_group, RuntimeError, "called before")
    trained = torch.ones(3, 2, requires_grad=True)
    dist.all_reduce(trained.t())
    dist.all_gather([trained] + like(3, 2, n=world - 1), torch.full((3, 2), 5.0))
    assert (trained == 5).all()
    paired = [torch.zeros(2, dtype=torch.complex64) for _ in range(world)]
    dist.all_gather(paired, torch.full((2,), 1j * rank, dtype=torch.complex64))
    assert all((paired[r] == 1j * r).all() for r in range(world))


def lazy_bits(rank, world):
    """Tensors whose bytes are not their elements, because PyTorch negates or conjugates later."""
    number = torch.full((2,), complex(1, 2 + rank))
    gathered = [torch.zeros(2) for _ in range(world)]
    dist.all_gather(gathered, number.conj().imag)
    assert all((gathered[r] == -2 - r).all() for r in range(world)), gathered
    least = number.clone().conj().imag
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    assert (least == -1 - world).all(), least
    copied = number.conj() if rank else number
    dist.broadcast(copied, 0)
    assert (copied == complex(1, 2)).all(), copied


def waits_in_callback(rank, world):
    """A callback of a future runs on the thread that runs the collectives of the group. Waiting there
    for another one of them would be for ever; it is an error, and the group works on."""
    other = dist.new_group(list(range(world)))
    for wait in (lambda: dist.all_reduce(torch.ones(1)),
                 lambda: dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()):
        if rank == 0:
            dist.barrier(group=other)  # the other ranks have their callbacks, and wait for this one
            for _ in range(2):
                dist.all_reduce(torch.ones(1))
            continue
        future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
        chained = future.then(lambda _: wait())
        dist.barrier(group=other)
        refused(chained.wait, RuntimeError, "would wait for ever")
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    future.then(lambda _: dist.all_reduce(torch.ones(1), group=other)).wait()  # on its own thread
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == world


def failures(rank, world):
    """A collective that fails raises, also where PyTorch's own form of a future would forget it:
    ranks that disagree, and a rank that dies."""
    pair = dist.new_group([0, 1])
    if rank < 2:
        work = dist.all_reduce(torch.ones(3 + rank), group=pair, async_op=True)
        refused(work.wait, RuntimeError, "MISMATCH", "3 f32", "4 f32")
        assert work.is_completed() and not work.is_success() and "MISMATCH" in str(work.exception())
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work.wait() and work.is_success() and work.exception() is None
    dist.barrier()
    if rank == world - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    refused(lambda: dist.all_reduce(torch.ones(3)), RuntimeError, "PEER", f"rank {world - 1}")
    refused(lambda: dist.barrier(), RuntimeError, "ABORTED")


def forgotten(rank, world):
    """Works that nobody waits for do not pile up; DDP without a hook leaves none."""
    from tally.torch.backend import TallyWork
    for _ in range(2 * TallyWork._MOST_KEPT):
        dist.all_reduce(torch.ones(2), async_op=True)
    dist.barrier()
    assert len(TallyWork._kept) <= TallyWork._MOST_KEPT
    TallyWork._kept.clear()
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3)),
        find_unused_parameters=True)
    for _ in range(4):
        model(torch.randn(4, 5)).square().mean().backward()
    assert worlds.equal_on_all(worlds.flat_grads(model))
    assert not TallyWork._kept, len(TallyWork._kept)


def body(rank, world):
    for case in (reductions, moves, objects, groups, not_offered, mistakes, lazy_bits, waits_in_callback,
                 forgotten):
        case(rank, world)


def collectives():
    for world in (2, 3, 4):
        worlds.run(world, body, backend="tally")


def failing():
    for world in (2, 3):
        worlds.run(world, failures, backend="tally", dies=(world - 1,))


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import torch, torch.distributed as dist, tally.torch
torch.set_num_threads(1)
{start}
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 3))
hook = tally.torch.register_ddp_comm_hook(tally.torch.DDPCommHookType.BF16_COMPRESS, model)
for _ in range(2):
    model(torch.randn(2, 5)).mean().backward()
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size() == {world}, total
assert hook.stats()["step"] == 2
"""


def run_program(command, start, world, **environment):
    program = PROGRAM.format(root=str(worlds.ROOT), start=start, world=world)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        subprocess.run([*command, sys.executable, "-B", file.name], check=True, timeout=100,
                       env={**os.environ, **environment})


def launchers():
    """tally run, and mpirun where it is installed; torchrun sets the same variables as this test."""
    own = "tally.torch.init_process_group()"
    tool = pathlib.Path(os.environ.get("TALLY_TOOL", worlds.ROOT.parent / "build" / "tally"))
    if tool.exists():
        run_program([str(tool), "run", "-n", "3"], own, 3)
    else:
        print("tally run: skipped, the tally command is not built")
    for mpirun in ("mpirun.openmpi", "mpiexec.mpich"):
        if subprocess.run(["sh", "-c", f"command -v {mpirun}"], capture_output=True).returncode:
            print(f"{mpirun}: skipped, not installed")
            continue
        root = ["--allow-run-as-root", "--oversubscribe"] if "openmpi" in mpirun else []
        run_program([mpirun, *root, "-n", "2"], own, 2)


def missing(rank, world, folder):
    """A rank that does not come is named after the timeout that the program gave."""
    if rank == 0:
        start = time.monotonic()
        refused(lambda: dist.init_process_group(
            "tally", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world,
            timeout=datetime.timedelta(seconds=1)), RuntimeError, f"rank 1 of {world} did not come")
        assert time.monotonic() - start < 20


def one_missing():
    with tempfile.TemporaryDirectory() as folder:
        worlds.run(2, missing, folder, backend=None)


def like_torchrun(rank, world, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                      LOCAL_WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    tally.torch.init_process_group()
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == world


def torchrun():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worlds.run(2, like_torchrun, port, backend=None)


if __name__ == "__main__":
    worlds.main([collectives, failing, one_missing, torchrun, launchers])
