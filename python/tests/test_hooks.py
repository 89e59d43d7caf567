# SPDX-License-Identifier: Apache-2.0
"""All ten hooks of PyTorch's registry, and every other hook of tally, as hooks of DDP with 2, 3 and 4
ranks: means within upstream's tolerances, the same bits on all ranks, several buckets that are
arranged again after the first step. The registry has upstream's names."""

import time

import worlds  # first: it skips the test without PyTorch, and finds the package
import torch
import torch.distributed as dist
import torch.distributed.algorithms.ddp_comm_hooks as upstream
from torch.nn.parallel import DistributedDataParallel

from tally.torch import DDPCommHookType, Hook, TallyError, hook, register_ddp_comm_hook

STEPS = 4
TOLERANCES = {  # rtol, atol: upstream's tests of its hooks, and assertEqual's for bf16
    "ALLREDUCE": (1e-5, 0), "FP16_COMPRESS": (1e-5, 1e-4), "BF16_COMPRESS": (1.6e-2, 1e-5),
    "QUANTIZE_PER_TENSOR": (1e-5, 1e-4), "QUANTIZE_PER_CHANNEL": (1e-5, 1e-4),
    "POWER_SGD": (1e-5, 1e-5), "POWER_SGD_RANK2": (1e-5, 1e-5),
    "BATCHED_POWER_SGD": (1e-5, 1e-5), "BATCHED_POWER_SGD_RANK2": (1e-5, 1e-5)}
TEXTS = ("int8", "int8:block=64", "bf16(int8)", "bf16(powersgd:rank=4,start=2)",
         "powersgd:rank=2,start=2", "batched_powersgd:start=2", "fp16:saturate=1",
         "quantize_per_tensor:exchange=gather", "hosts:size=2(int8)", "fp16(powersgd:start=0)")


class Task(torch.nn.Module):
    """As in upstream's test, whose tolerances fit its range: gradients of about 1e-3."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ParameterList(torch.randn(40, 20, dtype=dtype) for _ in range(3))
        self.bias = torch.nn.Parameter(torch.randn(20, dtype=dtype))

    def forward(self, x, rank):
        powers = [layer * x ** (1 + rank % 2) for layer in self.layers]
        return sum(powers) + self.bias


def grads_of(rank, register, steps=STEPS, dtype=torch.float32, **options):
    with worlds.first_bucket(1):
        model = DistributedDataParallel(Task(dtype), bucket_cap_mb=0.004, **options)
    made = register(model) if register else None
    for step in range(steps):
        torch.manual_seed(2020 + step)
        model.zero_grad()
        model(torch.randn(40, 20, dtype=dtype), rank).mean().backward()
    return worlds.flat_grads(model), made


def ten_types(rank, world):
    reference, _ = grads_of(rank, None)
    for kind in DDPCommHookType:
        grads, made = grads_of(rank, lambda model: register_ddp_comm_hook(kind, model, None))
        stats = made.stats()
        assert stats["step"] == STEPS and stats["n_buckets"] > 1, (kind, stats)
        if kind.name == "NOOP":
            assert stats["wire_bytes"] == 0
            grads /= world
            dist.all_reduce(grads)
            torch.testing.assert_close(grads, reference, rtol=1e-5, atol=1e-8)
            continue
        rtol, atol = TOLERANCES[kind.name]
        torch.testing.assert_close(grads, reference, rtol=rtol, atol=max(atol, 1e-8))
        assert worlds.equal_on_all(grads), kind
    if world == 2:
        grads, _ = grads_of(rank, lambda model: register_ddp_comm_hook(
            DDPCommHookType.ALLREDUCE, model, dist.group.WORLD))
        assert torch.equal(grads, reference), "allreduce has other bits than plain DDP"


def all_texts(rank, world):
    reference, _ = grads_of(rank, None)

    def register(text, lazy):
        def to(model):
            made = hook(text) if lazy else hook(text, model)
            model.register_comm_hook(None, made)
            return made
        return to
    for text in TEXTS:
        results = [grads_of(rank, register(text, lazy)) for lazy in (False, True)]
        for grads, made in results:
            assert worlds.equal_on_all(grads), text
            assert made.stats()["hook"] == text and made.stats()["step"] == STEPS, made.stats()
            error = ((grads - reference).norm() / reference.norm()).item()
            assert error < (0.9 if "powersgd" in text else 0.03), (text, error)
        if "powersgd" not in text:  # whose first Q depends on the names
            assert torch.equal(results[0][0], results[1][0]), text
    compare_dtype(rank, torch.float64, 1e-12)


def compare_dtype(rank, dtype, tolerance):
    def register(model):
        return register_ddp_comm_hook(DDPCommHookType.ALLREDUCE, model)
    plain, _ = grads_of(rank, None, dtype=dtype)
    grads, _ = grads_of(rank, register, dtype=dtype)
    torch.testing.assert_close(grads, plain, rtol=tolerance, atol=tolerance * 1e-2)


def refused(call, kind, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), (error, words)
        return
    raise SystemExit(f"nothing was raised: {words}")


def clumsy(rank, world):
    """Arguments that are none, on all ranks or on one: the error names them, and nobody waits."""
    import copy
    import pickle
    model = DistributedDataParallel(Task())
    for text in (None, 8, torch.relu):
        refused(lambda: hook(text), TypeError, "the text of a hook")
    refused(lambda: hook("int9"), TallyError, "int9")  # before the first backward
    refused(lambda: hook("int8", "model"), TypeError, "torch.nn.Module")
    refused(lambda: hook("int8", Task().requires_grad_(False)), TallyError, "no parameters")
    refused(lambda: register_ddp_comm_hook(DDPCommHookType.ALLREDUCE, Task()), TypeError, "Task")
    refused(lambda: register_ddp_comm_hook("ALLREDUCE", model), TypeError, "'ALLREDUCE'")
    refused(lambda: register_ddp_comm_hook(DDPCommHookType.ALLREDUCE, model, 5), TypeError, "int")
    alone = dist.new_group([0])
    if rank > 0:
        refused(lambda: hook("int8", model, alone), ValueError, "not a member")
    made = hook("int8", model)
    model.register_comm_hook(None, made)
    model(torch.randn(40, 20), rank).mean().backward()
    refused(lambda: made.set_hook("int9"), TallyError, "int9")
    assert made.text == "int8"
    state = made.state_dict()
    for wrong in (None, {}, {"blob": 5}, {"blob": state["blob"].float()}, [state, {}]):
        refused(lambda: made.load_state_dict(wrong), TypeError, "state_dict")
    refused(lambda: made.load_state_dict({"blob": state["blob"][:50]}), TallyError, "bytes")
    # On one rank only: the others are told.
    refused(lambda: made.load_state_dict({} if rank == 1 else state),
            TypeError if rank == 1 else RuntimeError, "state_dict")
    made.load_state_dict(state)
    refused(lambda: copy.deepcopy(made), TypeError, "cannot be copied")
    refused(lambda: pickle.dumps(made), TypeError, "cannot be copied")
    model(torch.randn(40, 20), rank).mean().backward()
    assert made.stats()["step"] == 2
    made.close()
    made.close()
    refused(lambda: model(torch.randn(40, 20), rank).mean().backward(), RuntimeError, "is closed")
    refused(made.state_dict, ValueError, "is closed")


def mistakes(rank, world):
    model = DistributedDataParallel(Task())
    try:
        hook("int9", model)
        raise SystemExit("int9 was accepted")
    except TallyError as error:
        assert error.status == "ARG" and "int9" in str(error), error
    try:
        register_ddp_comm_hook(upstream.DDPCommHookType.ALLREDUCE, model)
        raise SystemExit("upstream's type was accepted")
    except TypeError as error:
        assert "tally.torch.DDPCommHookType" in str(error)
    # One rank gives another hook: all are told, with both names.
    try:
        hook("int8" if rank == 1 else "bf16", model)
        raise SystemExit("different hooks were accepted")
    except TallyError as error:
        assert error.status == "MISMATCH" and "int8" in str(error) and "bf16" in str(error), error
    shared = Hook("int8", model)
    other = DistributedDataParallel(Task())
    other.register_comm_hook(None, shared)
    try:
        other(torch.randn(40, 20), rank).mean().backward()
        raise SystemExit("a hook served two models")
    except RuntimeError as error:
        assert "parameter of another model" in str(error), error


def sparse(rank, world):
    """A sparse gradient is refused, with the text of the hook."""
    for lazy in (False, True):
        model = DistributedDataParallel(torch.nn.Embedding(10, 4, sparse=True))
        model.register_comm_hook(None, hook("int8") if lazy else hook("int8", model))
        refused(lambda: model(torch.tensor([1, 2])).sum().backward(), RuntimeError,
                "hook 'int8' got a sparse gradient", "(10, 4)")
        dist.barrier()


def first_step(rank, world):
    """The buckets of a hook without a model travel together in its first step. Where ranks leave no CPU
    free, one that was waited for before the last one came took 0.1 s."""
    seconds = []
    for _ in range(5):
        with worlds.first_bucket(1):
            model = DistributedDataParallel(Task(), bucket_cap_mb=0.004, find_unused_parameters=True)
        made = hook("bf16")
        model.register_comm_hook(None, made)
        loss = model(torch.randn(40, 20), rank).mean()
        dist.barrier()
        start = time.monotonic()
        loss.backward()
        seconds.append(time.monotonic() - start)
        assert made.stats()["n_buckets"] > 1
    assert min(seconds) < 0.09, seconds


def body(rank, world):
    ten_types(rank, world)
    all_texts(rank, world)
    mistakes(rank, world)
    clumsy(rank, world)
    sparse(rank, world)
    first_step(rank, world)


def on_tally(rank, world):
    ten_types(rank, world)
    compare_dtype(rank, torch.bfloat16, 2e-2)  # Gloo refuses to broadcast such a model


def registry():
    assert [kind.name for kind in DDPCommHookType] == [
        kind.name for kind in upstream.DDPCommHookType]
    for kind in DDPCommHookType:
        assert callable(kind.value)
        assert DDPCommHookType[kind.name] is kind
    import inspect
    assert list(inspect.signature(register_ddp_comm_hook).parameters) == [
        "comm_hook_type", "model", "state"]


def two_ranks():
    worlds.run(2, body)


def three_ranks():
    worlds.run(3, body)


def four_ranks():
    worlds.run(4, ten_types)


def tally_backend():
    worlds.run(3, on_tally, backend="tally")


if __name__ == "__main__":
    worlds.main([registry, two_ranks, three_ranks, four_ranks, tally_backend])
