"""Loss over a vocabulary: the product with the output matrix and the cross entropy, by how they are computed.

`software.cross_entropy` says how; with e bytes in an activation, per logit of the device unless said otherwise:

| | bytes moved forward, backward | kept for the backward pass | held for a moment |
|---|---|---|---|
| eager | 18, 14: separate operations in fp32 | 4 | `logits_peak_bytes` of the framework - 4 |
| compiled | 8, 6: maximum, then exponentials in fp32 | 4 | e |
| fused | 6, 4: gradients are written over the logits | e | 0 |
| linear | 6, 0: all three products and the loss, chunk by chunk | gradients of input and matrix | 10, of a chunk |
| cut | 0: tiles never leave the chip, and are multiplied again going back | input | 0 |

`software.cross_entropy_chunks` is the number of chunks of `linear`, and of what `eager` holds for a moment; without it `linear`
takes as many as Liger: ceil(V / hidden), each rounded up to a power of two tokens.

Sources. eager: `torch.nn.functional.cross_entropy` over `logits.float()`, whose backward pass has the logarithm of the softmax,
its gradient and that of the logits at once, 12 bytes; torchtitan PR 996 saves 7 GiB of 8,192 x 128,256 logits with eight chunks,
which is 7/8 of 8 bytes. compiled: fused cross entropy of Megatron-LM, JAX's `log_softmax`. fused: Liger-Kernel's
cross entropy, Transformer Engine's in Triton. linear: Liger-Kernel's fused linear cross entropy. cut: arXiv 2411.09009.
"""

from __future__ import annotations

from math import ceil, log2

from ...framework.base import MemoryOptions
from ...framework.software import COMPILED_LOSS, CUT, EAGER, FUSED, LINEAR, Software
from ..base.kernels import Kernel, stream
from ..base.workload import SavedTensor
from .shard import Shard, gemm

_FP32_BYTES = 4.0
# Of a logit of a chunk: in 16 bits, in fp32, and what the allocator keeps of the chunk before. arXiv 2411.09009 table 1: Liger's
# loss holds 313 MB in addition to the gradients for chunks of 128 tokens of 256,000 logits.
_CHUNK_LOGIT_BYTES = 10.0
# Bytes a logit, forward and backward, and launches. Eager: cast, maximum, exponential and sum; the exponentials are read again.
_PASSES = {
    EAGER: (2 + 4 + 4 + 4 + 4, 4 + 4 + 4 + 2, 6.0, 3.0),
    COMPILED_LOSS: (2 + 2 + 4, 4 + 2, 2.0, 1.0),
    FUSED: (2 + 2 + 2, 2 + 2, 2.0, 1.0),
    LINEAR: (2 + 2 + 2, 0, 2.0, 0.0),
    CUT: (0, 0, 1.0, 1.0),
}


def chunk_count(software: Software, tokens: float, vocab: float, hidden: float) -> float:
    """Chunks of tokens that logits are made in: as stated, as Liger chooses under `linear`, otherwise one."""
    if software.cross_entropy_chunks:
        return min(float(software.cross_entropy_chunks), tokens)
    if software.cross_entropy != LINEAR:
        return 1.0
    rows = 2.0 ** ceil(log2(max(tokens / ceil(vocab / hidden), 1.0)))
    return max(ceil(tokens / rows), 1.0)


def loss_kernels(tokens: float, vocab: float, hidden: float, shard: Shard) -> list[Kernel]:
    """Product with `vocab` columns of the output matrix and cross entropy of `tokens` tokens, all of this device."""
    kind = shard.software.cross_entropy or EAGER
    n_chunk = chunk_count(shard.software, tokens, vocab, hidden) if kind == LINEAR else 1.0
    rows = tokens / n_chunk
    products = [
        op._replace(dtype="bf16", count=n_chunk) for op in gemm("logits", rows, vocab, hidden, shard.in_16_bits)
    ]
    if kind == CUT:
        products = _on_chip(products, rows * vocab * shard.element_bytes)
    return products + cross_entropy_kernels(tokens * vocab, shard)


def _on_chip(products: list[Kernel], logits_bytes: float) -> list[Kernel]:
    """Removes the logits' traffic from products; the backward pass computes their tiles again."""
    ops = [op._replace(hbm_bytes=op.hbm_bytes - logits_bytes) for op in products]
    again = [op._replace(phase="B", name=f"{op.name} again") for op in ops if op.phase == "F"]
    return ops + again


def cross_entropy_kernels(logits: float, shard: Shard) -> list[Kernel]:
    """Loss over `logits` of this device."""
    forward, backward, *launches = _PASSES[shard.software.cross_entropy or EAGER]
    passes = zip(("F", "B"), (forward, backward), launches, strict=True)
    return [stream("cross_entropy", phase, size * logits, n_launch) for phase, size, n_launch in passes if size]


def loss_saved_tensors(
    tokens: float, vocab: float, hidden: float, rows: float, shard: Shard
) -> tuple[SavedTensor, ...]:
    """Returns the tensors that product and loss keep between their forward and backward pass.

    Args:
        rows: tokens of the product's input that are kept.
    """
    kind, element = shard.software.cross_entropy or EAGER, shard.element_bytes
    if kind == LINEAR:  # the backward pass has run: its results wait
        own = SavedTensor("gradient of the head input", element * tokens * hidden)
        return (own, SavedTensor("gradient of the output matrix", element * vocab * hidden)) if shard.trains else (own,)
    read = SavedTensor("head input", element * rows * hidden)
    if kind == CUT:
        return (read, SavedTensor("log-sum-exp of the logits", _FP32_BYTES * tokens))
    if kind == FUSED:
        return (read, SavedTensor("logits, then their gradient", element * tokens * vocab))
    return (read, SavedTensor("fp32 logits", _FP32_BYTES * tokens * vocab))


def loss_peak_bytes(tokens: float, vocab: float, hidden: float, shard: Shard, rules: MemoryOptions) -> float:
    """Returns the bytes held for a moment while the loss is computed, in addition to what is saved."""
    kind = shard.software.cross_entropy or EAGER
    n_chunk = chunk_count(shard.software, tokens, vocab, hidden)
    per_logit = {
        EAGER: (rules.logits_peak_bytes - _FP32_BYTES) / n_chunk,
        COMPILED_LOSS: shard.element_bytes,
        LINEAR: _CHUNK_LOGIT_BYTES / n_chunk,
    }
    return per_logit.get(kind, 0.0) * tokens * vocab
