# SPDX-License-Identifier: Apache-2.0
"""Failures: a rank is killed, comes late, has a NaN, raises in backward, is interrupted, ends
early, forks. tally's text arrives out of backward(), nothing hangs, and nothing is left behind."""

import gc
import os
import signal
import subprocess
import sys
import tempfile
import time

import worlds  # first: it skips the test without PyTorch, and finds the package
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tally._ends import close_all
from tally.torch import hook

TEXTS = ("allreduce", "int8", "powersgd:start=0")


def make(text, width=50, **options):
    torch.manual_seed(0)
    with worlds.first_bucket(1000):
        model = DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Linear(10, width), torch.nn.Linear(width, 4)),
            bucket_cap_mb=0.001, broadcast_buffers=False, **options)
    made = hook(text, model)
    model.register_comm_hook(None, made)
    return model, made


def backward(model, x=None):
    model.zero_grad()
    model(torch.randn(8, 10) if x is None else x).square().mean().backward()


def warm_up(model):
    """DDP arranges its buckets in the second step, over the process group; then hooks are alone."""
    for _ in range(3):
        backward(model)


def error_of(function):
    start = time.monotonic()
    try:
        function()
    except Exception as error:
        return str(error), time.monotonic() - start
    raise SystemExit("nothing was raised")


def killed(rank, world, text):
    """A peer dies in the middle of a step: its number comes out of backward within a second."""
    model, _ = make(text)
    warm_up(model)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    words, seconds = error_of(lambda: backward(model))
    assert "PEER" in words and "rank 1" in words, words
    assert seconds < 3, seconds  # a second, and the time that busy CPUs take
    words, seconds = error_of(lambda: backward(model))
    assert "ABORTED" in words and seconds < 1, (words, seconds)


def late(rank, world):
    """A rank that does not arrive: TIMEOUT, with its number."""
    os.environ["TALLY_TIMEOUT"] = "1"
    model, _ = make("bf16")
    warm_up(model)
    if rank == 1:
        time.sleep(6)
        words, _ = error_of(lambda: backward(model))
        assert "ABORTED" in words or "TIMEOUT" in words, words
        return
    words, seconds = error_of(lambda: backward(model))
    assert "TIMEOUT" in words and "rank 1" in words, words
    assert 0.9 < seconds < 6, seconds


def not_a_number(rank, world):
    """int8 and quantize refuse a NaN and name the parameter; other hooks pass it on. Training goes
    on after both."""
    for text in ("int8:exempt=none", "quantize_per_tensor", "quantize_per_channel", "allreduce",
                 "fp16", "bf16", "powersgd:start=0", "noop"):
        model, made = make(text)
        backward(model)
        x = torch.randn(8, 10)
        if rank == 0:
            x[0, 0] = float("nan")
        if "int8" in text or "quantize" in text:
            words, _ = error_of(lambda: backward(model, x))
            assert "NUMERIC" in words, words
            assert any(f"'{name}'" in words for name, _ in model.module.named_parameters()), words
            assert made.stats()["step"] == 1
        else:
            backward(model, x)
            assert torch.isnan(worlds.flat_grads(model)).any() or (text == "noop" and rank == 1)
        for _ in range(2):
            backward(model)
        grads = worlds.flat_grads(model)
        assert torch.isfinite(grads).all(), text
        assert text == "noop" or worlds.equal_on_all(grads), text


def raises_in_backward(rank, world):
    """An exception of the application's in backward, on all ranks; the next step works."""
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x

        @staticmethod
        def backward(context, gradient):
            raise ValueError("the application's")
    class Net(torch.nn.Sequential):
        fails = False

        def forward(self, x):
            hidden = self[0](x)
            return self[1](Fails.apply(hidden) if self.fails else hidden)

    torch.manual_seed(0)
    with worlds.first_bucket(1):
        model = DistributedDataParallel(Net(torch.nn.Linear(10, 50), torch.nn.Linear(50, 4)),
                                        bucket_cap_mb=0.0001)
    made = hook("int8", model)
    model.register_comm_hook(None, made)
    warm_up(model)
    dist.barrier()
    model.module.fails = True  # the last layer's buckets travel before the first layer's fail
    words, _ = error_of(lambda: backward(model))
    assert words == "the application's", words
    assert made.stats()["step"] == 3
    dist.barrier()
    del model, made
    gc.collect()
    model, _ = make("int8")
    backward(model)
    assert worlds.equal_on_all(worlds.flat_grads(model))


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counts():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def many_models(rank, world):
    """30 models are made and dropped: memory, descriptors and threads stay."""
    sizes, things = [], []
    for _ in range(30):
        model, made = make("int8", width=20000)  # 1.1 MB of gradients
        backward(model)
        del model, made
        gc.collect()
        sizes.append(resident())
        things.append(counts())
    # One more or less for a moment: Gloo opens and closes descriptors by itself.
    assert min(things[-5:]) <= things[5], things
    assert sizes[-1] - sizes[9] < 12e6, [size // 1000 for size in sizes]
    return sizes[-1] - sizes[9]


def many_groups(rank, world):
    """Process groups are made, used and destroyed: their threads and descriptors go with them."""
    things = []
    for number in range(8):
        pair = dist.new_group([0, 1])
        total = torch.ones(3)
        dist.all_reduce(total, group=pair)
        assert total[0].item() == 2
        if number % 2:
            model = DistributedDataParallel(torch.nn.Linear(3, 3), process_group=pair)
            model.register_comm_hook(pair, hook("bf16", model, pair))
            model(torch.randn(2, 3)).mean().backward()
            del model
        dist.destroy_process_group(pair)
        del pair
        gc.collect()
        things.append(counts())
    assert min(things[-3:]) <= things[3], things


def gone_while_used(rank, world):
    """A rank that drops its model in the middle of training is named by the others."""
    model, made = make("int8")
    warm_up(model)
    if rank == 0:
        del model, made
        gc.collect()
        time.sleep(1)
        return
    words, _ = error_of(lambda: backward(model))
    assert "rank 0" in words and "reducer" in words, words


def forks(rank, world):
    """A forked child cannot use the hook, is told so, and ends without a word to the other ranks."""
    model, made = make("int8")
    warm_up(model)
    child = os.fork()
    if child == 0:
        try:
            words, _ = error_of(lambda: backward(model))
            close_all()  # as at the end of an interpreter
            os._exit(0 if "fork" in words else 2)
        finally:
            os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    backward(model)
    assert made.stats()["step"] == 4
    assert worlds.equal_on_all(worlds.flat_grads(model))


def several(rank, world):
    not_a_number(rank, world)
    raises_in_backward(rank, world)
    forks(rank, world)


def peers_killed():
    for text in TEXTS:
        worlds.run(3, killed, text, dies=(1,))
    worlds.run(2, killed, "bf16", backend="tally", dies=(1,))


def peer_late():
    worlds.run(2, late)


def numbers_and_exceptions():
    worlds.run(2, several)


def models_dropped():
    print(f"memory after 10 models to 30: {worlds.run(2, many_models)[0] / 1e6:+.1f} MB")
    worlds.run(2, many_groups, backend="tally")
    worlds.run(2, gone_while_used)


PROGRAM = """
import sys, time
sys.path.insert(0, {root!r})
import torch, torch.distributed as dist, tally.torch
rank, world, folder, how = int(sys.argv[1]), 2, sys.argv[2], sys.argv[3]
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=world,
                        store=dist.FileStore(folder + "/store", world))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 500))
hook = tally.torch.hook("int8", model)
model.register_comm_hook(None, hook)
def step():
    model(torch.randn(4, 1000)).mean().backward()
for _ in range(3):
    step()
if how == "raise" and rank == 1:
    raise SystemExit(3)
if how == "interrupt" and rank == 1:
    raise KeyboardInterrupt
if how == "early" and rank == 1:
    sys.exit(0)
if how == "ctrl-c":
    print("ready", flush=True)
    if rank == 1:
        time.sleep(60)
if how != "normal":
    step()
"""


def programs_end():
    """Whole programs end: in good order, and when one of them raises, is interrupted or ends
    early while the other one is in a step."""
    for how, own, other in (("normal", 0, 0), ("raise", 3, 1), ("early", 0, 1),
                            ("interrupt", -signal.SIGINT, 1)):
        with tempfile.TemporaryDirectory() as folder:
            program = PROGRAM.format(root=str(worlds.ROOT))
            ranks = [subprocess.Popen([sys.executable, "-B", "-c", program, str(rank), folder, how],
                                      stderr=subprocess.PIPE, text=True) for rank in range(2)]
            try:
                texts = [process.communicate(timeout=100)[1] for process in ranks]
            finally:
                for process in ranks:
                    process.kill()
            codes = [process.returncode for process in ranks]
            assert codes[1] in (own, 130) and codes[0] == other, (how, codes, texts)
            if other:
                assert "rank 1" in texts[0], (how, texts[0])


def interrupted():
    """Ctrl-C, which reaches all ranks, while one of them waits in backward for the other: both end
    at once."""
    with tempfile.TemporaryDirectory() as folder:
        program = PROGRAM.format(root=str(worlds.ROOT))
        ranks = [subprocess.Popen([sys.executable, "-B", "-c", program, str(rank), folder, "ctrl-c"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for rank in range(2)]
        try:
            for process in ranks:
                assert process.stdout.readline() == "ready\n"
            time.sleep(0.5)
            start = time.monotonic()
            for process in ranks:
                process.send_signal(signal.SIGINT)
            texts = [process.communicate(timeout=30)[1] for process in ranks]
            seconds = time.monotonic() - start
        finally:
            for process in ranks:
                process.kill()
        assert all(process.returncode != 0 for process in ranks), texts
        assert "KeyboardInterrupt" in texts[1], texts[1]
        assert "rank 1" in texts[0] or "KeyboardInterrupt" in texts[0], texts[0]
        assert seconds < 20, seconds


if __name__ == "__main__":
    worlds.main([peers_killed, peer_late, numbers_and_exceptions, models_dropped, programs_end,
                 interrupted])
