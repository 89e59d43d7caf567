# SPDX-License-Identifier: Apache-2.0
"""Gradients against PyTorch's own arithmetic, with the same inputs of all ranks: equal bits for the
wire mode of fp16 and bf16 and for quantization by gathering; PowerSGD from the same Q over 30 steps
within 1e-3; optimizers against torch.optim over 100 steps within 1e-6 of the largest parameter."""

import worlds  # first: it skips the test without PyTorch, and finds the package
import numpy
import torch
from torch.distributed.algorithms.ddp_comm_hooks import quantization_hooks
from torch.nn.parallel import DistributedDataParallel

import tally
from tally.torch import hook

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


class Given(torch.nn.Module):
    """A model whose gradients are given: the loss is the product with them."""

    def __init__(self, shapes):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(shape) for shape in shapes)

    def forward(self, gradients):
        return sum((weight * gradient).sum() for weight, gradient in zip(self.weights, gradients))


def gradients(shapes, rank, step):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    made = [torch.randn(shape, generator=generator) * 10 ** (-index % 3)
            for index, shape in enumerate(shapes)]
    for gradient in made:  # some columns matter more, as in a network
        gradient *= torch.linspace(0.1, 3, gradient.shape[-1]) ** 2
    return made


def means(text, shapes, rank, n_steps):
    model = DistributedDataParallel(Given(shapes))
    model.register_comm_hook(None, hook(text, model))
    for step in range(n_steps):
        model.zero_grad()
        model(gradients(shapes, rank, step)).backward()
        yield [weight.grad for weight in model.module.weights]


# ---- equal bits ----


def halves(dtype):
    def reference(inputs):
        parts = [x.to(dtype).div_(len(inputs)) for x in inputs]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total.float()
    return reference


def per_tensor(inputs):
    total = torch.zeros_like(inputs[0])
    for x in inputs:
        observer = torch.ao.quantization.MinMaxObserver()
        observer(x)
        scale, zero = observer.calculate_qparams()
        scale, zero = scale.float(), zero.float()
        quantized = quantization_hooks._quantize_per_tensor_cuda(x, scale, zero)
        total += quantization_hooks._dequantize_per_tensor_cuda(quantized, scale, zero)
    return total / len(inputs)


def per_channel(inputs, size=512):
    total = 0
    for x in inputs:
        rows = torch.nn.functional.pad(x, (0, size - len(x) % size)).view(-1, size)
        observer = torch.ao.quantization.PerChannelMinMaxObserver()
        observer(rows)
        scale, zero = observer.calculate_qparams()
        scale, zero = scale.float(), zero.float()
        quantized = quantization_hooks._quantize_per_channel_cuda(rows, scale, zero).float()
        # Upstream's loop over the rows runs on a GPU only.
        total = total + (scale[:, None] * (quantized - zero[:, None])).flatten()[:len(x)]
    return total / len(inputs)


BITS = (("fp16:accumulate=wire", halves(torch.float16)),
        ("bf16:accumulate=wire", halves(torch.bfloat16)),
        ("quantize_per_tensor:exchange=gather", per_tensor),
        ("quantize_per_channel:exchange=gather", per_channel))


def bits_body(rank, world):
    shapes = [(37, 83)]
    for text, reference in BITS:
        for step, (mean,) in enumerate(means(text, shapes, rank, 3)):
            inputs = [gradients(shapes, r, step)[0].flatten() for r in range(world)]
            expected = reference(inputs)
            wrong = (mean.flatten() != expected).sum().item()
            assert wrong == 0, (text, step, wrong, (mean.flatten() - expected).abs().max())


# ---- PowerSGD ----


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def checksum(words):
    def add(total, word):
        total = (total ^ word) * GOLDEN & MASK
        return total ^ total >> 32
    total = add(0x7461, len(words))
    for at in range(0, len(words) - 7, 8):
        total = add(total, int.from_bytes(words[at:at + 8], "little"))
    return add(total, int.from_bytes(words[len(words) // 8 * 8:], "little"))


def first_q(m, rank, name):
    """tally's first Q: nearly normal numbers that depend on the parameter's name."""
    q = torch.empty(m, rank)
    for k in range(rank):
        state = mix((mix(mix(GOLDEN) ^ checksum(name.encode())) + k * GOLDEN) & MASK)
        for i in range(m):
            total = 0
            for _ in range(3):
                state = (state + GOLDEN) & MASK
                bits = mix(state)
                total += sum(bits >> shift & 0xFFFF for shift in (0, 16, 32, 48))
            q[i, k] = (total - 6 * 65535) * 2.0 ** -16
    return q


def orthogonalize(matrix):
    for i in range(matrix.shape[1]):
        column = matrix[:, i]
        column /= column.norm()
        for j in range(i + 1, matrix.shape[1]):
            matrix[:, j] -= (column @ matrix[:, j]) * column
    return matrix


class PowerReference:
    """Upstream's algorithm for one matrix, for all ranks at once, in fp64: residuals with the mean of
    Q."""

    def __init__(self, shape, rank, name, world):
        self.q = first_q(shape[1], rank, name).double()
        self.residuals = [torch.zeros(shape, dtype=torch.float64) for _ in range(world)]

    def step(self, inputs):
        world = len(inputs)
        corrected = [x + residual for x, residual in zip(inputs, self.residuals)]
        q = orthogonalize(self.q.clone())
        p = orthogonalize(sum(x @ q for x in corrected))
        self.q = sum(x.t() @ p for x in corrected) / world
        mean = p @ self.q.t()
        self.residuals = [x - mean for x in corrected]
        return mean


def power_body(rank, world):
    worst = 0
    for text, shapes, n_ranks in (("powersgd:rank=2,start=0", [(40, 30), (24, 50)], 2),
                                  ("powersgd:start=0", [(64, 64)], 1),
                                  ("batched_powersgd:start=0", [(30, 30)], 1),
                                  ("batched_powersgd:rank=2,start=0", [(30, 30)], 2)):
        references = [PowerReference(shape, n_ranks, f"weights.{i}", world)
                      for i, shape in enumerate(shapes)]
        for step, found in enumerate(means(text, shapes, rank, 30)):
            every = [gradients(shapes, r, step) for r in range(world)]
            for i, reference in enumerate(references):
                expected = reference.step([every[r][i] for r in range(world)])
                error = ((found[i] - expected).norm() / expected.norm()).item()
                assert error < 1e-3, (text, step, i, error)
                worst = max(worst, error)
    return worst


# ---- optimizers ----

OPTIMIZERS = (
    ("sgd:lr=0.05", torch.optim.SGD, {"lr": 0.05}),
    ("sgd:lr=0.05,momentum=0.9,nesterov=1,weight_decay=0.01", torch.optim.SGD,
     {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("adam:lr=0.01", torch.optim.Adam, {"lr": 0.01}),
    ("adamw:lr=0.01,weight_decay=0.1", torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    ("adagrad:lr=0.05", torch.optim.Adagrad, {"lr": 0.05}),
    ("rmsprop:lr=0.01,momentum=0.5", torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    ("adadelta:lr=1", torch.optim.Adadelta, {"lr": 1.0}),
    ("adamax:lr=0.01", torch.optim.Adamax, {"lr": 0.01}),
    ("rprop:lr=0.01", torch.optim.Rprop, {"lr": 0.01}))


def optimizers_against_torch():
    shapes = [(7, 9), (300,)]
    with tally.Group() as group:
        for text, kind, options in OPTIMIZERS:
            start = gradients(shapes, 5, 0)
            theirs = [torch.nn.Parameter(x.clone()) for x in start]
            ours = {str(i): x.clone().numpy() for i, x in enumerate(start)}
            reference = kind(theirs, **options)
            with tally.DDP(group, ours) as ddp, tally.Optimizer(ddp, text) as optimizer:
                for step in range(100):
                    # Every eighth element has no gradient at times: signs and zeros both occur.
                    for i, gradient in enumerate(gradients(shapes, 6, step)):
                        gradient[..., ::8] *= step % 2
                        theirs[i].grad = gradient
                        ddp.grads[str(i)][...] = gradient.numpy()
                        ddp.ready(str(i))
                    ddp.wait()
                    optimizer.step()
                    reference.step()
            largest = max(x.abs().max().item() for x in theirs)
            error = max(numpy.abs(ours[str(i)] - x.detach().numpy()).max()
                        for i, x in enumerate(theirs))
            assert error <= 1e-6 * largest, (text, error, largest)


def bits_two_ranks():
    worlds.run(2, bits_body)


def bits_three_ranks():
    worlds.run(3, bits_body)


def power_two_ranks():
    print(f"largest relative error: {max(worlds.run(2, power_body)):.1e}")


def power_three_ranks():
    print(f"largest relative error: {max(worlds.run(3, power_body)):.1e}")


if __name__ == "__main__":
    worlds.main([bits_two_ranks, bits_three_ranks, power_two_ranks, power_three_ranks,
                 optimizers_against_torch])
