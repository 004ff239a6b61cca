# pyright: reportMissingImports=false
"""What `prism-jax capture models.py:llama2_7b --tp 4` reads: the four networks, made parallel as their mesh says."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from networks import Config, Network
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

GPT2 = Config(12, 768, 12, 12, 3072, 50304, 1024)
BERT = Config(24, 1024, 16, 16, 4096, 30528, 512, causal=False, predicted=77)
LLAMA2_7B = Config(32, 4096, 32, 32, 11008, 32000, 4096, gated=True, rms=True, rope=True)
LLAMA3_405B = Config(126, 16384, 128, 8, 53248, 128256, 8192, gated=True, rms=True, rope=True)
MIXTRAL = Config(32, 4096, 32, 8, 14336, 32000, 4096, gated=True, rms=True, rope=True, n_experts=8, top_k=2)


def gpt2(layout: Any) -> tuple[Any, ...]:
    return built(GPT2, 8, layout)


def bert_large(layout: Any) -> tuple[Any, ...]:
    return built(BERT, 8, layout)


def llama2_7b(layout: Any) -> tuple[Any, ...]:
    return built(LLAMA2_7B, 1, layout)


def mixtral_8x7b(layout: Any) -> tuple[Any, ...]:
    return built(MIXTRAL, 1, layout)


def llama3_405b(layout: Any) -> tuple[Any, ...]:
    return built(LLAMA3_405B, 1, layout)


def built(config: Config, batch: int, layout: Any) -> tuple[Any, ...]:
    """The contract of a capture: model, inputs of a micro-batch, loss, optimizer."""
    n_layers = layers_of(config.n_layers, layout.n_stages)[layout.stage]
    mesh = layout.mesh["tp"] if layout.size("tp") > 1 else None
    model: Any = Network(config, n_layers, mesh, is_first=layout.is_first, is_last=layout.is_last).to(torch.bfloat16)
    if layout.size("fsdp") > 1:
        for unit in (model.embedding, *model.layers, model.head):
            if unit is not None:
                fully_shard(unit, mesh=layout.mesh["fsdp"])
        fully_shard(model, mesh=layout.mesh["fsdp"])
    if layout.size("dp") > 1:
        model = DistributedDataParallel(model, process_group=layout.mesh.get_group("dp"), gradient_as_bucket_view=True)
    shape = (batch, config.seq_len)
    x = torch.zeros(shape, dtype=torch.long) if layout.is_first else torch.zeros(*shape, config.hidden).bfloat16()
    group = layout.mesh.get_group("tp") if mesh is not None else None
    targets = torch.zeros(batch, config.predicted or config.seq_len, dtype=torch.long)

    def loss(output: tuple[Tensor, Tensor | None]) -> Tensor:
        logits, pooled = output
        found = cross_entropy(logits.flatten(0, 1), targets.flatten(), group)
        return found if pooled is None else found + pooled.float().mean()

    return model, (x,), loss if layout.is_last else None, torch.optim.AdamW(model.parameters())


def layers_of(n_layers: int, n_stages: int) -> list[int]:
    """Layers of every stage: as even as possible, fewer at the end."""
    even, rest = divmod(n_layers, n_stages)
    return [even + (stage < rest) for stage in range(n_stages)]


def cross_entropy(logits: Tensor, targets: Tensor, group: Any) -> Tensor:
    """Mean loss; where a group holds the vocabulary in parts, as Megatron-LM computes it."""
    if group is None:
        return functional.cross_entropy(logits.float(), targets)
    return ParallelCrossEntropy.apply(logits, targets, group).mean()


class ParallelCrossEntropy(torch.autograd.Function):
    """Maximum, sum and target logit over the ranks that share the vocabulary."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, group: Any) -> Tensor:
        wide = logits.float()
        top = wide.amax(dim=-1)
        dist.all_reduce(top, dist.ReduceOp.MAX, group)
        wide = wide - top[:, None]
        own = wide.gather(1, targets[:, None]).squeeze(1)
        dist.all_reduce(own, group=group)
        powers = wide.exp()
        total = powers.sum(dim=-1)
        dist.all_reduce(total, group=group)
        ctx.save_for_backward(powers / total[:, None], targets)
        return total.log() - own

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        probabilities, _ = ctx.saved_tensors
        return (probabilities * grads[0][:, None]).bfloat16(), None, None
