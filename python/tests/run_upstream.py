#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs PyTorch's own tests of its hooks on tally: `run_upstream.py [--backend gloo|tally] PATH`,
where PATH is test_ddp_hooks.py of a PyTorch checkout, which stays untouched. The tests want two
GPUs; here two ranks on the CPU take their places, and the names that the installed PyTorch lacks
are filled in. All six cases must run.
"""

import argparse
import functools
import importlib.util
import os
import pathlib
import sys
import types
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

if importlib.util.find_spec("torch") is None:
    print("skipped: python3-torch is not installed")
    sys.exit(77)
if importlib.util.find_spec("expecttest") is None:  # PyTorch's test support imports it
    sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase, ACCEPT=False)

import torch
import torch.distributed as dist
import torch.distributed.algorithms.ddp_comm_hooks as upstream
import torch.nn.parallel
import torch.testing._internal.common_distributed as support

import tally.torch

N_CASES = 6
N_DEVICES = 2  # ranks that stand for devices


def fake_devices():
    """Numbers of devices mean the CPU."""
    torch.accelerator = types.SimpleNamespace(current_accelerator=lambda: None,
                                              device_count=lambda: N_DEVICES)
    plain_to = torch.nn.Module.to

    def to(self, *arguments, **named):
        if arguments and isinstance(arguments[0], int):
            arguments = ("cpu", *arguments[1:])
        return plain_to(self, *arguments, **named)
    torch.nn.Module.to = to

    plain = torch.nn.parallel.DistributedDataParallel

    @functools.wraps(plain)
    def parallel(module, device_ids=None, **named):
        return plain(module, **named)
    torch.nn.parallel.DistributedDataParallel = parallel


def fake_support(backend):
    """The names of the test support of later versions."""
    class DistributedTestBase(support.MultiProcessTestCase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def tearDown(self):
            super().tearDown()
            try:
                os.remove(self.file_name)
            except OSError:
                pass

        def create_pg(self, device):
            # An experiment of 1.13 that its test support switches on; Python 3.11 cannot import it.
            if importlib.util.find_spec("torch.nn.parallel._replicated_tensor_ddp_utils"):
                from torch.nn.parallel import _replicated_tensor_ddp_utils as experiment
                experiment._set_ddp_with_replicated_tensor(False)
            store = dist.FileStore(self.file_name, self.world_size)
            dist.init_process_group(backend, world_size=self.world_size, rank=self.rank,
                                    store=store)
            return dist.group.WORLD

    def always(*_):
        return lambda function: function
    support.DistributedTestBase = DistributedTestBase
    support.requires_accelerator_dist_backend = always
    support.skip_if_lt_x_gpu = always


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", help="test_ddp_hooks.py of PyTorch")
    parser.add_argument("--backend", default="gloo", choices=("gloo", "tally"))
    options = parser.parse_args()
    if not os.path.exists(options.path):
        print(f"skipped: there is no {os.path.basename(options.path)} of PyTorch here; give its path")
        return 77
    torch.set_num_threads(1)
    fake_devices()
    fake_support(options.backend)
    upstream.DDPCommHookType = tally.torch.DDPCommHookType
    upstream.register_ddp_comm_hook = tally.torch.register_ddp_comm_hook
    spec = importlib.util.spec_from_file_location("test_ddp_hooks", options.path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["test_ddp_hooks"] = module
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    n_passed = result.testsRun - len(result.failures) - len(result.errors) - len(result.skipped)
    print(f"run_upstream: {n_passed} of {N_CASES} cases passed over {options.backend}")
    return 0 if result.wasSuccessful() and n_passed == N_CASES else 1


if __name__ == "__main__":
    sys.exit(main())
