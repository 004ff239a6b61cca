# pyright: reportMissingImports=false
"""GPT-2, Llama 2, Mixtral and BERT in plain PyTorch, as one would write them, with DTensor for tensor parallelism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """Sizes of a network, and what distinguishes the four."""

    n_layers: int
    hidden: int
    n_heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq_len: int
    gated: bool = False
    rms: bool = False
    rope: bool = False
    causal: bool = True
    n_experts: int = 0
    top_k: int = 0
    predicted: int = 0  # BERT: tokens of a sample that are predicted; 0: all

    @property
    def width(self) -> int:
        return self.hidden // self.n_heads


def norm(config: Config) -> nn.Module:
    return nn.RMSNorm(config.hidden) if config.rms else nn.LayerNorm(config.hidden)


class Attention(nn.Module):
    """Queries, keys and values in one product; `tp` ranks have their share of the heads."""

    def __init__(self, config: Config, tp: int) -> None:
        super().__init__()
        self.config, self.heads, self.kv_heads = config, config.n_heads // tp, config.kv_heads // tp
        out = config.n_heads * config.width
        self.qkv = nn.Linear(config.hidden, out + 2 * config.kv_heads * config.width, bias=not config.rms)
        self.out = nn.Linear(out, config.hidden, bias=not config.rms)

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        d = self.config.width
        sizes = [self.heads * d, self.kv_heads * d, self.kv_heads * d]
        q, k, v = (one.unflatten(-1, (-1, d)).transpose(1, 2) for one in self.qkv(x).split(sizes, dim=-1))
        if angles is not None:
            q, k = rotated(q, angles), rotated(k, angles)
        gqa = self.kv_heads != self.heads
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.config.causal, enable_gqa=gqa)
        return self.out(y.transpose(1, 2).flatten(2))


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding: pairs of halves."""
    a, b = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-b, a), dim=-1) * angles.sin()


class MLP(nn.Module):
    """Two products and an activation; `inner` may be the share of a rank."""

    def __init__(self, config: Config, inner: int) -> None:
        super().__init__()
        self.gated = config.gated
        self.up = nn.Linear(config.hidden, inner * (2 if config.gated else 1), bias=not config.rms)
        self.down = nn.Linear(inner, config.hidden, bias=not config.rms)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        if self.gated:
            gate, value = y.chunk(2, dim=-1)
            return self.down(functional.silu(gate) * value)
        return self.down(functional.gelu(y))


class Experts(nn.Module):
    """Mixture of experts, token by token; every expert is split over `mesh`, their sum is reduced once."""

    def __init__(self, config: Config, mesh: Any) -> None:
        super().__init__()
        self.config, self.mesh = config, mesh
        share = config.ffn // (1 if mesh is None else mesh.size())
        self.router = nn.Linear(config.hidden, config.n_experts, bias=False)
        self.experts = nn.ModuleList([MLP(config, share) for _ in range(config.n_experts)])

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(dim=-1).topk(self.config.top_k, dim=-1)
        if self.mesh is not None:
            tokens = DTensor.from_local(tokens, self.mesh, [Replicate()]).to_local(grad_placements=[Partial()])
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            row, place = torch.where(chosen == number)
            out.index_add_(0, row, expert(tokens[row]) * weights[row, place, None])
        if self.mesh is not None:
            out = DTensor.from_local(out, self.mesh, [Partial()]).redistribute(placements=[Replicate()]).to_local()
        return out.view_as(x)


class Layer(nn.Module):
    """Attention and MLP, both residual; norms before them, or behind them (BERT)."""

    def __init__(self, config: Config, mesh: Any) -> None:
        super().__init__()
        self.config = config
        self.norm_1, self.norm_2 = norm(config), norm(config)
        self.attention = Attention(config, 1 if mesh is None else mesh.size())
        self.mlp = Experts(config, mesh) if config.n_experts else MLP(config, config.ffn)

    def forward(self, x: Tensor, angles: Tensor | None) -> Tensor:
        if not self.config.causal:
            x = self.norm_1(x + self.attention(x, angles))
            return self.norm_2(x + self.mlp(x))
        x = x + self.attention(self.norm_1(x), angles)
        return x + self.mlp(self.norm_2(x))


class Embedding(nn.Module):
    """Tokens, and positions where they are learnt."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.hidden)
        self.positions = None if config.rope else nn.Embedding(config.seq_len, config.hidden)
        self.norm = None if config.causal else norm(config)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return x if self.norm is None else self.norm(x)


class Head(nn.Module):
    """Logits of all tokens, or BERT's of those that are predicted, and its pooler."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.transform = None if config.causal else nn.Linear(config.hidden, config.hidden)
        self.pooler = None if config.causal else nn.Linear(config.hidden, config.hidden)
        self.norm = norm(config)
        self.logits = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        pooled = None
        if self.transform is not None and self.pooler is not None:
            pooled = torch.tanh(self.pooler(x[:, 0]))
            x = functional.gelu(self.transform(x[:, : self.config.predicted]))
        return self.logits(self.norm(x)), pooled


class Network(nn.Module):
    """The layers of one pipeline stage, with the ends that it has."""

    def __init__(self, config: Config, layers: int, mesh: Any, *, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config) if is_first else None
        self.layers = nn.ModuleList([Layer(config, mesh) for _ in range(layers)])
        self.head = Head(config) if is_last else None
        if mesh is not None:
            self._split(mesh)

    def forward(self, x: Tensor) -> Any:
        if self.embedding is not None:
            x = self.embedding(x)
        angles = None
        if self.config.rope:
            angles = torch.zeros(x.shape[1], self.config.width, dtype=x.dtype, device=x.device)
        for layer in self.layers:
            x = layer(x, angles)
        return x if self.head is None else self.head(x)

    def _split(self, mesh: Any) -> None:
        """Tensor parallelism after Megatron-LM, by DTensor."""
        plan = {"attention.qkv": ColwiseParallel(), "attention.out": RowwiseParallel()}
        if not self.config.n_experts:
            plan |= {"mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel()}
        for layer in self.layers:
            parallelize_module(layer, mesh, plan)
        if self.embedding is not None:
            parallelize_module(self.embedding, mesh, {"tokens": RowwiseParallel(input_layouts=Replicate())})
        if self.head is not None:
            parallelize_module(self.head, mesh, {"logits": ColwiseParallel(output_layouts=Shard(-1))})
