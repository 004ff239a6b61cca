"""How well a step uses its hardware: MFU, HFU, TFLOP/s and tokens/s per GPU, from FLOPs, tokens and a step time in seconds.

Model FLOPs count the mathematics once (6 per parameter and token, plus attention); hardware FLOPs also what is recomputed
(Korthikanti et al., arXiv 2205.05198, section 6; Chowdhery et al., arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

from .system.hardware import Cluster


def flops_per_s_per_gpu(flops: float, step_s: float, n_devices: int) -> float:
    """FLOP/s of one device when `n_devices` do `flops` in `step_s` seconds."""
    return flops / step_s / n_devices


def tflops_per_gpu(model_flops: float, step_s: float, n_devices: int) -> float:
    """10^12 model FLOP/s per device, the unit of the Megatron and Llama papers."""
    return flops_per_s_per_gpu(model_flops, step_s, n_devices) / 1e12


def tokens_per_s_per_gpu(n_tokens: int, step_s: float, n_devices: int) -> float:
    """Tokens per second and device of a step of `n_tokens`."""
    return n_tokens / step_s / n_devices


def mfu(model_flops: float, step_s: float, cluster: Cluster, n_devices: int, dtype: str) -> float:
    """Model FLOP/s over the dense peak of the device in `dtype` (TF32 for fp32, where products run in it), 0-1.

    Raises:
        SpecError: the device has no such dtype.
    """
    return flops_per_s_per_gpu(model_flops, step_s, n_devices) / cluster.device.peak(
        cluster.device.product_dtype(dtype)
    )


def hfu(hardware_flops: float, step_s: float, cluster: Cluster, n_devices: int, dtype: str) -> float:
    """Like `mfu` with the FLOPs that the hardware runs, recomputation included."""
    return mfu(hardware_flops, step_s, cluster, n_devices, dtype)
