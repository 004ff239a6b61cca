# pyright: reportMissingImports=false
"""A GPT in PyTorch, made parallel as the mesh says: DDP, FSDP2, tensor parallelism by DTensor, pipeline stages.

prism-jax capture examples/capture/nanogpt.py:build --tp 4 --fsdp 8 -o nanogpt.capture.gz
prism-jax predict nanogpt.capture.gz --cluster dgx-h100
"""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

N_LAYERS, N_HEADS, WIDTH, VOCABULARY, N_TOKENS, BATCH = 12, 12, 768, 50304, 1024, 8


class Block(nn.Module):
    """Attention and MLP, both residual, norms before them."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.project = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, token, width] to the same."""
        y = self.norm_1(x)
        q, k, v = (make(y).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for make in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class GPT(nn.Module):
    """The blocks of one pipeline stage, with the embeddings on the first and the logits on the last."""

    def __init__(self, n_layers: int, n_heads: int, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH) if is_first else None
        self.positions = nn.Embedding(N_TOKENS, WIDTH) if is_first else None
        self.blocks = nn.ModuleList([Block(n_heads) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(WIDTH) if is_last else None
        self.logits = nn.Linear(WIDTH, VOCABULARY, bias=False) if is_last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Tokens or activations to activations or logits."""
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x)) if self.logits is not None and self.norm is not None else x


def build(layout):
    """What `prism-jax capture` asks for: model, inputs of a micro-batch, loss, optimizer."""
    tp = layout.size("tp")
    model = GPT(N_LAYERS // layout.n_stages, N_HEADS // tp, layout.is_first, layout.is_last)
    model = model.to(layout.device, torch.bfloat16)
    if tp > 1:
        split = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
        split |= {name: RowwiseParallel() for name in ("project", "down")}
        for block in model.blocks:
            parallelize_module(block, layout.mesh["tp"], split)
    if layout.size("fsdp") > 1:
        for block in model.blocks:
            fully_shard(block, mesh=layout.mesh["fsdp"])
        fully_shard(model, mesh=layout.mesh["fsdp"])
    if layout.size("dp") > 1:
        model = DistributedDataParallel(model, process_group=layout.mesh.get_group("dp"))
    tokens = torch.zeros(BATCH, N_TOKENS, dtype=torch.long, device=layout.device)
    x = tokens if layout.is_first else torch.zeros(BATCH, N_TOKENS, WIDTH, dtype=torch.bfloat16, device=layout.device)

    def loss(logits):
        return functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())

    return model, (x,), loss if layout.is_last else None, torch.optim.AdamW(model.parameters())
