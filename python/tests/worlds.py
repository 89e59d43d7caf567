# SPDX-License-Identifier: Apache-2.0
"""Ranks for tests: forked processes with a process group. A program imports PyTorch once, and each
world runs all its cases, so that a test takes seconds. No rank is left behind.
"""

import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

import tally.torch  # noqa: F401  registers the backend

_context = multiprocessing.get_context("fork")


def _rank_main(rank, world, backend, folder, pipe, body, arguments):
    status = 0
    try:
        torch.set_num_threads(1)
        os.environ["TALLY_TIMEOUT"] = os.environ.get("TALLY_TIMEOUT", "60")
        if backend:
            dist.init_process_group(backend, rank=rank, world_size=world,
                                    store=dist.FileStore(f"{folder}/store", world))
        pipe.send(("result", body(rank, world, *arguments)))
    except BaseException:
        pipe.send(("error", traceback.format_exc()))
        status = 1
    finally:
        from tally._ends import close_all
        close_all()  # a forked child of multiprocessing runs no atexit functions
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run(world, body, *arguments, backend="gloo", timeout=120, dies=()):
    """Runs body(rank, world, *arguments) on all ranks; returns their results. Ranks in dies are
    expected to be killed. A failure on a rank raises, with the rank's own traceback."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(world):
            here, there = _context.Pipe(duplex=False)
            process = _context.Process(target=_rank_main, args=(rank, world, backend, folder, there,
                                                                body, arguments))
            process.start()
            there.close()
            ranks.append((process, here))
        results, errors = [], []
        deadline = time.monotonic() + timeout
        for rank, (process, pipe) in enumerate(ranks):
            kind, value = "error", f"no answer after {timeout} s, or died"
            try:
                if pipe.poll(max(0, deadline - time.monotonic())):
                    kind, value = pipe.recv()
            except EOFError:
                kind, value = ("result", None) if rank in dies else ("error", "died")
            results.append(value)
            if kind == "error":
                errors.append(f"rank {rank} of {world}: {value}")
        for process, _ in ranks:
            process.join(max(0.1, min(5, deadline - time.monotonic())) if not errors else 0.1)
            if process.is_alive():
                errors.append(f"a rank of {world} did not end")
                os.kill(process.pid, signal.SIGKILL)
                process.join()
        if errors:
            raise AssertionError("\n".join(errors))
        return results


def main(cases):
    """Runs named cases, those named on the command line or all, and says how long each took."""
    chosen = sys.argv[1:] or [case.__name__ for case in cases]
    failed = 0
    for case in cases:
        if case.__name__ not in chosen:
            continue
        start = time.monotonic()
        try:
            case()
            words = "ok"
        except Exception:
            traceback.print_exc()
            words = "FAILED"
            failed += 1
        print(f"{case.__name__}: {words}, {time.monotonic() - start:.1f} s", flush=True)
    sys.exit(1 if failed else 0)


def flat_grads(model):
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()
                      if parameter.grad is not None])


def equal_on_all(tensor):
    """Whether all ranks have the same bits."""
    others = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(others, tensor)
    return all(torch.equal(other, tensor) for other in others)


class first_bucket:
    """DDP's first bucket has 1 MiB unless this constant says otherwise: tests want several."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.kept = dist._DEFAULT_FIRST_BUCKET_BYTES
        dist._DEFAULT_FIRST_BUCKET_BYTES = self.size

    def __exit__(self, *_):
        dist._DEFAULT_FIRST_BUCKET_BYTES = self.kept
