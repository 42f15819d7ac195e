"""A real network and real steps of it, for the benchmarks that measure what was predicted."""

from __future__ import annotations

import torch
from ddpfix.launchers.memory.networks import DTYPES, build, make_batch, make_optimizer, materialize
from ddpfix.launchers.memory.step import TrainingStep
from ddpfix.record import replace
from torch import Tensor, nn

PADDED = 8  # tokens of padding at the end: transformers drops a mask that masks nothing


def real(step: TrainingStep, device: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The network of a step with random weights, and its optimizer as the device has it."""
    model = materialize(build(step), device)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(0, 0.02)
        for buffer in model.buffers():
            buffer.zero_()
    kind = step.network.optimizer
    return model, make_optimizer(model, foreach=device != "cpu", kind=kind)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: TrainingStep,
    batch: int,
    device: str = "cpu",
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """One step as the patched scripts make it, or the forward pass of an evaluation."""
    model.train(step.training)
    scaler = scaler or torch.amp.GradScaler(device, enabled=False)
    for _ in range(1 + step.accumulates):
        loss = forward(model, step, batch, device)
        if not step.training:
            return
        torch.autograd.backward(scaler.scale(loss))
        del loss
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def forward(model: nn.Module, step: TrainingStep, batch: int, device: str) -> Tensor:
    """The loss of a batch with some padding, under autocast where the step has it."""
    half = step.precision != "fp32"
    inputs = [tensor.to(device) for tensor in make_batch(step, batch)]
    for tensor in inputs:
        if tensor.ndim == 2:  # the tokens of texts
            tensor[:, -PADDED:] = 1
    with (
        torch.set_grad_enabled(step.training),
        torch.autocast(device, DTYPES[step.precision] if half else None, enabled=half),
    ):
        loss: Tensor = model(*inputs)
    return loss


def first_trained(step: TrainingStep) -> TrainingStep:
    """The training step before an evaluation, which leaves the optimizer's state behind."""
    return replace(step, training=True)
