# SPDX-License-Identifier: Apache-2.0
"""Runs the python blocks of each page, in order, in one process with a world of one: what they use
and do not make themselves is made here. A page's diff must apply to the names that exist: its added
lines run too. Skips, with one line, where PyTorch is not installed.
"""

import os
import sys
import tempfile
import traceback

import doc_pages

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)


def small_model():
    return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))


def code_of(block):
    """The lines that a reader ends up with."""
    if block.language == "diff":
        return "".join(line[1:] + "\n" for line in block.lines if line[:1] in "+ ")
    return block.text


def run_page(page, report):
    blocks = [block for block in page.blocks if block.language in ("python", "diff")]
    names = {"torch": torch}  # a diff shows a part of a program that has imported it
    for block in blocks:
        starts = "init_process_group(" in block.text
        if starts and dist.is_initialized():
            dist.destroy_process_group()
        elif not starts and not dist.is_initialized():
            dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        if not starts:
            names.setdefault("process_group", dist.group.WORLD)
            names.setdefault("model", small_model())
            names.setdefault("other_model", small_model())
        try:
            exec(compile(code_of(block), block.where, "exec"), names)
        except Exception:
            report.fail(block.where, traceback.format_exc())
    if dist.is_initialized():
        dist.destroy_process_group()
    return len(blocks)


def main():
    root, build = sys.argv[1:]
    sys.path.insert(0, os.path.join(root, "python"))
    sys.path.append(os.path.join(root, "tests", "docs", "stand_in"))  # Horovod is not in Debian
    os.environ["TALLY_LIBRARY"] = os.path.join(build, "src", "libtally.so.0")
    report = doc_pages.Report()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        n = sum(run_page(page, report) for page in doc_pages.read_pages(root))
    report.end(f"{n} python blocks run")


main()
