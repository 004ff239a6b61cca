# pyright: reportMissingImports=false
"""The job of `experiments/local_cluster` for `prism-jax capture build.py --dp 2 --pp 2 --option ranks=all`.

Its stage, its slow process and its update as `experiments/local_cluster/worker.py` runs them; transfers between stages are the
schedule's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[2] / "local_cluster"))
from job import Job
from stage import Stage

LEARNING_RATE, MOMENTUM, MAX_NORM = 0.05, 0.9, 1.0
JOB = Job(sigma=0.3, slow_rank=3, seed=7)  # as `examples/local_cluster` was recorded


class Work(nn.Module):
    """What a process computes for a micro-batch: its stage, and on the slow one half of it again, twice in the backward pass."""

    def __init__(self, stage: Stage, extra: float) -> None:
        super().__init__()
        self.stage, self.extra = stage, extra

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        y = self.stage(x, targets)
        if self.extra:
            self.stage.repeat(len(x), self.extra)
            x.register_hook(lambda _: self.stage.repeat(len(targets), 2.0 * self.extra))
        return y


def build(layout: Any) -> tuple[Any, ...]:
    """The contract of a capture."""
    stage = Stage(JOB, layout.stage)
    extra = JOB.slow_factor - 1.0 if layout.rank == JOB.slow_rank else 0.0
    parameters = list(stage.parameters())
    gradients = torch.zeros(sum(p.numel() for p in parameters))
    for p, flat in zip(parameters, gradients.split([p.numel() for p in parameters]), strict=True):
        p.grad = flat.view_as(p)
    optimizer = torch.optim.SGD(parameters, LEARNING_RATE, MOMENTUM, foreach=True)
    replicas = layout.mesh.get_group("dp")

    def update() -> None:
        dist.all_reduce(gradients, group=replicas)
        gradients.div_(JOB.dp)
        square = gradients.dot(gradients)
        dist.all_reduce(square)
        gradients.mul_((MAX_NORM / ((square / JOB.dp).sqrt() + 1e-6)).clamp(max=1.0))
        optimizer.step()
        gradients.zero_()

    tokens = torch.zeros(JOB.n_token, dtype=torch.long)
    x = tokens if layout.is_first else torch.zeros(JOB.n_token, JOB.d_model, requires_grad=True)
    return Work(stage, extra), (x, tokens), None, update
