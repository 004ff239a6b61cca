# pyright: reportMissingImports=false
"""A mixture of experts in PyTorch: tokens go to the experts of other ranks by an all-to-all and come back.

    prism-jax capture examples/capture/moe.py:build --ep 8 -o moe.capture.gz

Which expert a token goes to is data. A capture takes it that every expert gets as many tokens as any other, and says so.
"""

import torch
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.nn import functional

N_LAYERS, N_EXPERTS, TOP_K, WIDTH, INNER, VOCABULARY, N_TOKENS, BATCH = 4, 16, 2, 1024, 2816, 32000, 2048, 2


class Experts(nn.Module):
    """Router, and the experts of this rank, one after another."""

    def __init__(self, group, n_ranks: int) -> None:
        super().__init__()
        self.group, self.n_ranks = group, n_ranks
        self.router = nn.Linear(WIDTH, N_EXPERTS, bias=False)
        self.up = nn.ModuleList([nn.Linear(WIDTH, INNER, bias=False) for _ in range(N_EXPERTS // n_ranks)])
        self.down = nn.ModuleList([nn.Linear(INNER, WIDTH, bias=False) for _ in range(N_EXPERTS // n_ranks)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, token, width] to the same."""
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(dim=-1).topk(TOP_K, dim=-1)
        order = chosen.flatten().argsort()
        sent = tokens[order // TOP_K]
        counts = torch.bincount(chosen.flatten(), minlength=N_EXPERTS).view(self.n_ranks, -1).sum(dim=1)
        splits = [int(n) for n in counts]
        arrived = all_to_all_single_autograd(sent, splits, splits, self.group) if self.n_ranks > 1 else sent
        parts = arrived.chunk(len(self.up))
        done = torch.cat(
            [down(functional.silu(up(part))) for up, down, part in zip(self.up, self.down, parts, strict=True)]
        )
        back = all_to_all_single_autograd(done, splits, splits, self.group) if self.n_ranks > 1 else done
        return torch.zeros_like(tokens).index_add(0, order // TOP_K, back * weights.flatten()[order, None]).view_as(x)


class Layer(nn.Module):
    """Attention and experts, both residual."""

    def __init__(self, group, n_ranks: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.experts = Experts(group, n_ranks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, token, width] to the same."""
        q, k, v = (one.unflatten(-1, (16, -1)).transpose(1, 2) for one in self.qkv(self.norm_1(x)).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).flatten(2))
        return x + self.experts(self.norm_2(x))


def build(layout):
    """What `prism-jax capture` asks for; ranks have all parameters but those of experts in common, and reduce their gradients."""
    group = layout.mesh.get_group("ep") if layout.size("ep") > 1 else None
    layers = [Layer(group, layout.size("ep")) for _ in range(N_LAYERS)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *layers, nn.Linear(WIDTH, VOCABULARY, bias=False))
    model = model.to(layout.device, torch.bfloat16)
    tokens = torch.zeros(BATCH, N_TOKENS, dtype=torch.long, device=layout.device)

    def loss(logits):
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())

    optimizer = torch.optim.AdamW(model.parameters())

    def update():
        for name, parameter in model.named_parameters():
            if group is not None and ".experts.up" not in name and ".experts.down" not in name:
                torch.distributed.all_reduce(parameter.grad, group=group)
        optimizer.step()

    return model, (tokens,), loss, update
