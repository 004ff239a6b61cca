# pyright: reportMissingImports=false
"""One pipeline stage of a small causal transformer (PyTorch), and how a slow process makes its extra work."""

from __future__ import annotations

import torch
from job import Job
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Pre-norm attention and MLP, both residual."""

    def __init__(self, d_model: int, n_head: int) -> None:
        super().__init__()
        self.n_head = n_head
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.project = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, 4 * d_model), nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """[token, d_model] to the same shape."""
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.n_head, -1)).permute(1, 2, 0, 3)
        attended = functional.scaled_dot_product_attention(*heads.unsqueeze(1), is_causal=True)
        x = x + self.project(attended[0].transpose(0, 1).flatten(1))
        return x + self.down(functional.relu(self.up(self.norm_2(x))))


class Stage(nn.Module):
    """`n_layer` blocks, the embedding before them on the first stage and the vocabulary after them on the last."""

    def __init__(self, job: Job, stage: int) -> None:
        super().__init__()
        self.d_model = job.d_model
        self.embed = nn.Embedding(job.n_vocab, job.d_model) if stage == 0 else None
        self.blocks = nn.ModuleList([Block(job.d_model, job.n_head) for _ in range(job.n_layer)])
        self.head = nn.Linear(job.d_model, job.n_vocab) if stage == job.pp - 1 else None

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Activations [token, d_model] of the stage; on the last one the mean loss per token.

        Args:
            x: tokens [token] on the first stage, activations [token, d_model] on the others.
            targets: [token] next tokens; read by the last stage.
        """
        if self.embed is not None:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else functional.cross_entropy(self.head(x), targets)

    @torch.no_grad()
    def repeat(self, n_token: int, share: float) -> None:
        """Run the blocks again on noise for `share` of `n_token` tokens and drop the result: the work of a slow process."""
        left = round(share * n_token)
        while left > 0:
            x = torch.randn(min(left, n_token), self.d_model)
            for block in self.blocks:
                x = block(x)
            left -= n_token


def sequence(job: Job, step: int, replica: int, micro_batch: int) -> Tensor:
    """[token + 1] tokens that can be learnt: each is three times the one before plus 1, one in ten is random."""
    generator = torch.Generator().manual_seed(hash((job.seed, step, replica, micro_batch)) % 2**63)
    n_token = job.length(step, replica, micro_batch) + 1
    noise = torch.randint(job.n_vocab, (n_token,), generator=generator)
    kept = torch.rand(n_token, generator=generator) < 0.1
    tokens = noise.tolist()
    for position in range(1, n_token):
        if not kept[position]:
            tokens[position] = (3 * tokens[position - 1] + 1) % job.n_vocab
    return torch.tensor(tokens)
