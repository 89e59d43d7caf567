# SPDX-License-Identifier: Apache-2.0
"""Training runs through DDP: two models, DDP's options, and hooks of each kind. All ranks end with
equal parameters, and the loss stays near that of plain DDP. Then what hooks are combined with:
optimizers in the hook, casting wrappers, several models, sub-groups, saved state, data loaders."""

import io
import itertools
import threading
import time

import worlds  # first: it skips the test without PyTorch, and finds the package
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, optimizer_overlap_hooks
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from tally.torch import hook

STEPS = 12
BATCH = 16
# Of the loss of plain DDP after STEPS steps: lossless hooks, and those that lose bits.
BOUNDS = {"allreduce": 1e-4, "bf16": 2e-2, "int8": 2e-2, "powersgd:rank=2,start=2": 0.35}
OPTIONS = {"plain": {}, "views": {"gradient_as_bucket_view": True}, "static": {"static_graph": True},
           "unused": {"find_unused_parameters": True},
           "unused_views": {"find_unused_parameters": True, "gradient_as_bucket_view": True},
           "no_sync": {"gradient_as_bucket_view": True}, "join": {}, "fp64": {}}


class Dense(torch.nn.Module):
    shape = (20,)

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(20, 64)
        self.side = torch.nn.Linear(20, 64)
        self.last = torch.nn.Linear(64, 5)

    def forward(self, x, skips=False):
        hidden = torch.tanh(self.first(x))
        if not skips:
            hidden = hidden + 0.1 * self.side(x)
        return self.last(hidden)


class Convolutional(torch.nn.Module):
    shape = (1, 8, 8)

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 8, 3)
        self.norm = torch.nn.BatchNorm2d(8)
        self.side = torch.nn.Linear(64, 5)
        self.last = torch.nn.Linear(8 * 36, 5)

    def forward(self, x, skips=False):
        out = self.last(torch.relu(self.norm(self.conv(x))).flatten(1))
        return out if skips else out + 0.1 * self.side(x.flatten(1))


def batch(kind, rank, step, dtype):
    generator = torch.Generator().manual_seed(31 * step + rank)
    x = torch.randn((BATCH, *kind.shape), generator=generator).to(dtype)
    return x, (x.flatten(1).sum(1) > 0).long()


def train(kind, option, text, rank, world):
    """Returns the model and the mean loss of the last steps."""
    torch.manual_seed(1)
    dtype = torch.float64 if option == "fp64" else torch.float32
    with worlds.first_bucket(1000):
        model = DistributedDataParallel(kind().to(dtype), bucket_cap_mb=0.01, **OPTIONS[option])
    if text:
        model.register_comm_hook(None, hook(text, model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    losses = []

    def step(number):
        # With find_unused_parameters, one rank leaves a layer out in every third step.
        skips = option.startswith("unused") and number % 3 == 0 and rank == 0
        x, y = batch(kind, rank, number, dtype)
        loss = torch.nn.functional.cross_entropy(model(x, skips), y)
        loss.backward()
        losses.append(loss.item())

    def run(n_steps):
        for number in range(n_steps):
            optimizer.zero_grad()
            if option == "no_sync":
                with model.no_sync():
                    step(number + 500)
            step(number)
            optimizer.step()
    if option == "join":
        with Join([model]):
            run(STEPS - rank)  # rank 0 has more input than the others
    else:
        run(STEPS)
    loss = torch.tensor(sum(losses[-3:]) / 3)
    dist.all_reduce(loss)
    return model, loss.item() / world


def matrix(rank, world, kinds, options):
    n_runs = 0
    for kind, option in itertools.product(kinds, options):
        _, plain = train(kind, option, None, rank, world)
        for text, bound in BOUNDS.items():
            if option == "fp64" and text != "allreduce" and text != "bf16":
                continue  # these hooks send fp64 unchanged
            model, loss = train(kind, option, text, rank, world)
            where = (kind.__name__, option, text, loss, plain)
            flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
            assert worlds.equal_on_all(flat), where
            assert torch.isfinite(flat).all() and abs(loss - plain) <= bound * max(plain, 0.1), where
            n_runs += 1
    return n_runs


# ---- combinations ----


def simple(rank, register, n_steps=4, optimizer=None, cap=0.01, first=1000):
    torch.manual_seed(3)
    with worlds.first_bucket(first):
        model = DistributedDataParallel(Dense(), bucket_cap_mb=cap)
    made = register(model)
    for number in range(n_steps):
        model.zero_grad()
        x, y = batch(Dense, rank, number, torch.float32)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        if optimizer:
            optimizer(model)
    return model, made


def optimizer_in_hook(rank, world):
    """PyTorch's wrapper updates parameters when a bucket's mean is there."""
    class Sgd:
        functional_optim = None

        def __init__(self):
            self.lr = 0.1

        def step_param(self, parameter, gradient):
            parameter.data.add_(gradient, alpha=-self.lr)

    if not hasattr(optimizer_overlap_hooks, "_hook_then_optimizer"):
        return
    state = optimizer_overlap_hooks._OptimizerHookState.__new__(
        optimizer_overlap_hooks._OptimizerHookState)
    state.functional_optimizer = Sgd()
    state.params_to_optimize = None

    def overlapped(model):
        wrapped = optimizer_overlap_hooks._hook_then_optimizer(hook("allreduce", model), state)
        model.register_comm_hook(None, wrapped)

    def plain(model):
        model.register_comm_hook(None, hook("allreduce", model))

    def update(model):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(parameter.grad, alpha=-0.1)
    one, _ = simple(rank, overlapped)
    other, _ = simple(rank, plain, optimizer=update)
    for a, b in zip(one.parameters(), other.parameters()):
        assert torch.allclose(a, b, rtol=1e-6, atol=1e-7)


def casting_wrapper(rank, world):
    wrapped, _ = simple(rank, lambda model: model.register_comm_hook(
        None, default_hooks.fp16_compress_wrapper(hook("allreduce"))))
    plain, _ = simple(rank, lambda model: None)
    torch.testing.assert_close(worlds.flat_grads(wrapped), worlds.flat_grads(plain), rtol=1e-2,
                               atol=1e-3)


def many_models(rank, world):
    """Two models train on two threads, which begin in different orders on the ranks: a backward
    waits for its means, so one thread for all hooks would wait for ever."""
    models = []
    for text in ("int8", "bf16"):
        torch.manual_seed(5)
        model = DistributedDataParallel(Dense(), broadcast_buffers=False)
        model.register_comm_hook(None, hook(text, model))
        models.append(model)

    def run(model, delay, n_steps=3):
        time.sleep(delay)
        for number in range(n_steps):
            x, y = batch(Dense, rank, number, torch.float32)
            torch.nn.functional.cross_entropy(model(x), y).backward()
    for model in models:  # DDP arranges its buckets over Gloo, which wants one order on all ranks
        run(model, 0, n_steps=2)
    threads = [threading.Thread(target=run, args=(model, 0.2 * ((at + rank) % 2)))
               for at, model in enumerate(models)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for model in models:
        assert worlds.equal_on_all(worlds.flat_grads(model))


def sub_groups(rank, world):
    """A hook over the process group of some ranks."""
    halves = [dist.new_group([r for r in range(world) if r % 2 == half]) for half in range(2)]
    mine = halves[rank % 2]
    torch.manual_seed(6)
    model = DistributedDataParallel(Dense(), process_group=mine)
    made = hook("int8", model, mine)
    model.register_comm_hook(mine, made)
    x, y = batch(Dense, rank, 0, torch.float32)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    assert made.stats()["world"] == dist.get_world_size(mine)
    grads = worlds.flat_grads(model)
    every = [torch.empty_like(grads) for _ in range(world)]
    dist.all_gather(every, grads)
    for r in range(world):
        assert torch.equal(every[r], grads) == (r % 2 == rank % 2), r


def saved_state(rank, world):
    """Steps after a load have the bits of steps without one, in a fresh DDP."""
    text = "powersgd:rank=2,start=1"

    def keep_going(model, first, n_steps):
        for number in range(first, first + n_steps):
            model.zero_grad()
            x, y = batch(Dense, rank, number, torch.float32)
            torch.nn.functional.cross_entropy(model(x), y).backward()
        return worlds.flat_grads(model).clone()

    def fresh(lazy=False):
        torch.manual_seed(7)
        with worlds.first_bucket(1000):
            model = DistributedDataParallel(Dense(), bucket_cap_mb=0.01)
        made = hook(text) if lazy else hook(text, model)
        model.register_comm_hook(None, made)
        return model, made

    for lazy in (False, True):
        model, made = fresh(lazy)
        keep_going(model, 0, 3)
        file = io.BytesIO()
        torch.save(made.state_dict(), file)
        file.seek(0)
        state = torch.load(file)
        assert state["hook"] == text and state["blob"].dtype == torch.uint8
        expected = keep_going(model, 3, 3)
        model, other = fresh(lazy)
        if lazy:
            states = [None] * world
            dist.all_gather_object(states, state)
            other.load_state_dict(states)
        else:
            other.load_state_dict(state)
        found = keep_going(model, 3, 3)
        assert torch.equal(found, expected), (lazy, (found - expected).abs().max())
        assert other.stats()["hook"] == text
    fewer_ranks(rank, world, text, state)


def fewer_ranks(rank, world, text, state):
    """The states of all ranks, loaded by half of them, which continue to train."""
    states = [None] * world
    dist.all_gather_object(states, state)
    some = dist.new_group(list(range(world // 2)))
    if rank < world // 2:
        torch.manual_seed(7)
        model = DistributedDataParallel(Dense(), process_group=some)
        made = hook(text, process_group=some)
        made.load_state_dict(states)
        model.register_comm_hook(some, made)
        for number in range(3):
            x, y = batch(Dense, rank, number, torch.float32)
            torch.nn.functional.cross_entropy(model(x), y).backward()
        stats = made.stats()  # a hook without the state would not compress in its first step
        assert stats["total_compressed_to"] == 3 * stats["compressed_to"], stats
        assert stats["world"] == world // 2
        grads = worlds.flat_grads(model)
        every = [torch.empty_like(grads) for _ in range(world // 2)]
        dist.all_gather(every, grads, group=some)
        assert all(torch.equal(one, grads) for one in every)


def other_buckets(rank, world):
    """One bucket, or many that DDP arranges again after the first step: the same bits, also with a
    state that comes from the steps before."""
    for text in ("powersgd:rank=2,start=1", "int8:block=64", "bf16"):
        def register(model):
            model.register_comm_hook(None, hook(text, model))
        many, _ = simple(rank, register)
        one, _ = simple(rank, register, cap=25, first=1 << 20)
        found, expected = worlds.flat_grads(many), worlds.flat_grads(one)
        assert torch.equal(found, expected), (text, (found - expected).abs().max())


def data_loader(rank, world):
    """Workers that are forked while a hook has its thread."""
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return batch(Dense, rank, index, torch.float32)

    torch.manual_seed(8)
    model = DistributedDataParallel(Dense())
    model.register_comm_hook(None, hook("int8", model))
    n_batches = 0
    for _ in range(2):
        for x, y in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2):
            loss = torch.nn.functional.cross_entropy(model(x.flatten(0, 1)), y.flatten())
            loss.backward()
            n_batches += 1
    assert n_batches == 8
    assert worlds.equal_on_all(worlds.flat_grads(model))


def combinations(rank, world):
    for case in (optimizer_in_hook, casting_wrapper, many_models, other_buckets, saved_state,
                 data_loader, sub_groups):
        case(rank, world)


def two_ranks():
    n_runs = worlds.run(2, matrix, (Dense, Convolutional), list(OPTIONS))[0]
    print(f"{n_runs} training runs")


def three_ranks():
    worlds.run(3, matrix, (Dense,), ["plain", "unused_views", "join"])


def on_tally():
    worlds.run(2, matrix, (Convolutional,), ["views", "no_sync", "join"], backend="tally")


def combined():
    worlds.run(4, combinations)


if __name__ == "__main__":
    worlds.main([two_ranks, three_ranks, on_tally, combined])
