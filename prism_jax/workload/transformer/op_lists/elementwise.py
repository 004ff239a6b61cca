"""Memory-bound kernels of a layer, fused or as the separate operations that eager code runs: bytes and launches of each.

Bytes per element of an activation that is `e` bytes wide; an operation reads its inputs and writes its output, in 4 bytes where
eager code works in fp32.

| | fused | separate operations (eager) |
|---|---|---|
| RMSNorm, forward | 2e | cast e+4, square 8, mean 4, scale 8, cast 4+e, weight 2e: 4e + 28 |
| RMSNorm, backward | 4e | weight and its gradient 4e, cast e+4, products 20, square and mean 12, sum 12, cast 4+e: 6e + 52 |
| rotary embedding, each way | 2e | two halves 2e, join 2e, two products 4e, sum 3e: 11e |
| gated activation, forward | 3e | SiLU 2e, product 3e: 5e |
| gated activation, backward | 5e | product 5e, SiLU 3e, join 2e: 10e |
| plain activation, forward, backward | 2e, 3e | bias 2e more, each |
| cross entropy, forward, backward | 6 read and written once in fp32, 4 | 18, 14: see `cross_entropy` |

LayerNorm is one kernel in PyTorch, too. Source: the operations of Hugging Face transformers' `LlamaRMSNorm`,
`apply_rotary_pos_emb` and `LlamaMLP`, counted; fused kernels as in Apex, Transformer Engine and Liger.
"""

from __future__ import annotations

from ...kernels import Kernel
from ..shard import Shard, stream

HOST_SHARE = (
    0.25  # host time of one operation of a chain over that of a listed kernel, which stands for several launches
)


def norm_kernels(name: str, elements: float, shard: Shard, *, rms: bool, count: float = 1.0) -> list[Kernel]:
    """`count` norms over `elements` activations each."""
    e = shard.element_bytes
    if not (rms and shard.software.is_eager("norm")):
        return [
            stream(name, "F", count * 2 * e * elements, count),
            stream(name, "B", count * 4 * e * elements, 2 * count),
        ]
    return [
        _chain(name, "F", count * (4 * e + 28) * elements, 6 * count),
        _chain(name, "B", count * (6 * e + 52) * elements, 12 * count),
    ]


def rope_kernels(elements: float, shard: Shard) -> list[Kernel]:
    """Rotary embedding of queries and keys, `elements` of both together."""
    e = shard.element_bytes
    if not shard.software.is_eager("rope"):
        return [stream("rope", phase, 2 * e * elements, 2.0) for phase in ("F", "B")]
    return [_chain("rope", phase, 11 * e * elements, 12.0) for phase in ("F", "B")]


def activation_kernels(name: str, elements: float, shard: Shard, *, gated: bool) -> list[Kernel]:
    """Activation of an MLP with `elements` inner values."""
    e = shard.element_bytes
    forward, backward = (3 * e, 5 * e) if gated else (2 * e, 3 * e)
    if not shard.software.is_eager("activation"):
        return [stream(name, "F", forward * elements), stream(name, "B", backward * elements)]
    more = (2 * e, 5 * e, 2.0, 4.0) if gated else (2 * e, 2 * e, 2.0, 2.0)
    return [
        _chain(name, "F", (forward + more[0]) * elements, more[2]),
        _chain(name, "B", (backward + more[1]) * elements, more[3]),
    ]


def cross_entropy_kernels(logits: float, shard: Shard) -> list[Kernel]:
    """Loss over `logits` of this device.

    Notes:
        Apart: cast to fp32, maximum, exponential and sum; the backward pass reads the exponentials and writes the gradient.
        Fused: one pass that reads 16 bits and leaves the gradient in their place.
    """
    if shard.software.cross_entropy == "fused":
        return [stream("cross_entropy", "F", 6 * logits, 2.0), stream("cross_entropy", "B", 4 * logits, 1.0)]
    return [
        stream("cross_entropy", "F", (2 + 4 + 4 + 4 + 4) * logits, 6.0),
        stream("cross_entropy", "B", (4 + 4 + 4 + 2) * logits, 3.0),
    ]


def _chain(name: str, phase: str, hbm_bytes: float, n_launch: float) -> Kernel:
    """Operations one after another, each with a launch of its own."""
    return stream(name, phase, hbm_bytes, n_launch)._replace(host_share=HOST_SHARE)
