"""Ops of a layer that mixes tokens through a state, on one device: projections, convolution, scan in chunks, gated norm.

The scan is several batched products over chunks, with states written between them; its traffic is that of its inputs and outputs,
states of every chunk in fp32, and decays. The backward pass runs it twice over.
"""

from __future__ import annotations

from ....plan.plan import ParallelPlan
from ...kernels import Kernel
from ..mixer import MixerSpec
from ..shard import Shard, gemm, stream
from ..sizes import TransformerSizes
from .elementwise import norm_kernels

_FP32_BYTES = 4.0
_SCAN_LAUNCHES = 5.0  # mamba_ssm: cumulative decays, states, passing, keys against queries, outputs


def mixer_ops(model: TransformerSizes, plan: ParallelPlan, shard: Shard, mixer: MixerSpec) -> list[Kernel]:
    """Everything that stands in the place of attention."""
    tp, tokens = shard.tp, shard.tokens
    ops = gemm("mixer_in", tokens, mixer.in_width / tp, model.hidden, shard)
    conv_bytes = shard.element_bytes * tokens * mixer.conv_width / tp
    ops += [stream("mixer_conv", "F", 2 * conv_bytes), stream("mixer_conv", "B", 4 * conv_bytes, 2.0)]
    ops += _scan(plan, shard, mixer)
    elements = tokens * mixer.width / tp
    ops += norm_kernels("mixer_norm", elements, shard, rms=True)
    gate_bytes = shard.element_bytes * elements
    ops += [stream("mixer_gate", "F", 3 * gate_bytes), stream("mixer_gate", "B", 5 * gate_bytes)]
    return ops + gemm("mixer_out", tokens, model.hidden, mixer.width / tp, shard)


def _scan(plan: ParallelPlan, shard: Shard, mixer: MixerSpec) -> list[Kernel]:
    chunk = min(float(mixer.chunk), plan.seq_len)
    n_chunk = shard.tokens / chunk
    inner = (mixer.width * 2 + mixer.key_width * 2) / shard.tp
    states = 2.0 * _FP32_BYTES * n_chunk * mixer.width * mixer.state / shard.tp
    traffic = shard.element_bytes * shard.tokens * inner + states
    flops = shard.tokens * mixer.scan_flops(plan.seq_len) / shard.tp
    heads = n_chunk * mixer.n_heads / shard.tp
    sizes = {
        "m": chunk,
        "n": float(mixer.head_dim),
        "k": (chunk + 2 * mixer.state) / 2,
        "batch": heads,
        "dtype": "bf16",
    }
    forward = Kernel("mixer_scan", "F", "gemm", flops, traffic, _SCAN_LAUNCHES, **sizes)
    back = {"phase": "B", "flops": 2.0 * flops, "hbm_bytes": 2.5 * traffic, "batch": 2.0 * heads}
    return [forward, forward._replace(n_launch=2.0 * _SCAN_LAUNCHES, **back)]
