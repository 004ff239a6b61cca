# pyright: reportMissingImports=false
"""A network of a few kilobytes that uses everything a capture must see; test_real.py makes the captures beside it."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

WIDTH, INNER, VOCABULARY, TOKENS, BATCH, LAYERS = 64, 256, 96, 16, 4, 4


class Layer(nn.Module):
    def __init__(self, n_heads):
        super().__init__()
        self.n_heads, self.norm = n_heads, nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, INNER, bias=False), nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for one in self.qkv(self.norm(x)).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(x)))


def build(layout):
    tp = layout.size("tp")
    layers = [Layer(4 // tp) for _ in range(LAYERS // layout.n_stages)]
    ends = ([nn.Embedding(VOCABULARY, WIDTH)] if layout.is_first else [], [nn.Linear(WIDTH, VOCABULARY, bias=False)])
    net = nn.Sequential(*ends[0], *layers, *(ends[1] if layout.is_last else [])).to(torch.bfloat16)
    for layer in layers:
        if tp > 1:
            split = {
                "qkv": ColwiseParallel(),
                "up": ColwiseParallel(),
                "out": RowwiseParallel(),
                "down": RowwiseParallel(),
            }
            parallelize_module(layer, layout.mesh["tp"], split)
        if layout.size("fsdp") > 1:
            fully_shard(layer, mesh=layout.mesh["fsdp"])
    if layout.size("fsdp") > 1:
        fully_shard(net, mesh=layout.mesh["fsdp"])
    if layout.size("dp") > 1:
        net = DistributedDataParallel(net, process_group=layout.mesh.get_group("dp"))
    tokens = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    x = tokens if layout.is_first else torch.zeros(BATCH, TOKENS, WIDTH, dtype=torch.bfloat16)
    loss = (lambda y: y.float().mean()) if layout.is_last else None
    return net, (x,), loss, torch.optim.AdamW(net.parameters())


def routed(layout):
    """Tokens to experts, one expert after another."""

    class Routed(nn.Module):
        def __init__(self):
            super().__init__()
            self.router, self.experts = nn.Linear(WIDTH, 4), nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])

        def forward(self, x):
            chosen = self.router(x).topk(2, dim=-1).indices
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                row, _ = torch.where(chosen == number)
                out = out.index_add(0, row, expert(x[row]))
            return out.sum()

    return Routed(), torch.zeros(64, WIDTH), None


def data_decides(layout):
    net = nn.Linear(8, 8)

    def loss(y):
        return y.sum() if y.max() > 0 else y.mean()

    return net, torch.zeros(2, 8), loss


def wrong(layout):
    return nn.Linear(8, 8)


def raises(layout):
    raise KeyError("no such setting")


def not_parallel(layout):
    return nn.Linear(8, 8), torch.zeros(2, 8), lambda y: y.mean()
