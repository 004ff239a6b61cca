"""Step time of a network of which nobody knows more than its totals: operations, parameters, tensors.

CM-DARE's features (arXiv 2004.03072), as seconds that add up instead of powers that multiply:

    t = gpu x family x (products + passes + small kernels + fixed)
    products = batch FLOPs / peak,   passes = bytes of activations / bandwidth,   small kernels ~ tensors,   fixed ~ 1

A third of the tensors are taken for convolutions of 3 x 3 of one width, of which FLOPs, parameters and tensors tell the width and
the pixels (as `prism_jax.workload.cnn.architectures`); each has so many passes over its result. All of a step follows the
GPU: what is neither product nor pass runs at the geometric mean of peak and bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from experiments.device_names import device_of_text
from inference.data.checks import texts_of
from inference.data.columns import ModelColumn
from inference.sums import AbstractSums, SumsData, SumTerm, sums_data
from prism_jax.core.errors import DataError, SpecError
from prism_jax.system.hardware import Device

COLUMNS = (
    ModelColumn("model", ("network", "model_temp", "workload"), required=True, text=True),
    ModelColumn("gpu", ("device", "gpu_temp", "gpu_name"), required=True, text=True),
    ModelColumn("step_s", ("duration_s", "step_time"), required=True, positive=True),
    ModelColumn("batch", ("batch_size", "micro_batch"), required=True, positive=True),
    ModelColumn("flops", ("model_flops", "train_flops"), required=True, positive=True),
    ModelColumn("n_params", ("number_of_parameters", "params", "parameters"), required=True, positive=True),
    ModelColumn("n_tensors", ("number_of_tensors", "tensors"), required=True, positive=True),
    ModelColumn("family", ("architecture",), text=True),
)  # fmt: skip
# What terms take at 1: products at the peak, passes at the bandwidth; of the others, on a GPU of 15.7 TFLOP/s and 900 GB/s, a
# tensor's kernels (two to three, some 40 us each) and what a step has whatever its network.
TERMS = (SumTerm("products", 2.7), SumTerm("passes", 2.7), SumTerm("small kernels", 2.7), SumTerm("fixed", 2.7))
N_PASS = (
    17.0  # of a convolution with norm and activation, both ways: reads and writes of 4 bytes (`workload/cnn/spec.py`)
)
KERNELS_S, FIXED_S = 100e-6, 5e-3
REFERENCE = (15.7e12, 900e9)  # V100 SXM2 datasheet: fp32 FLOP/s, bytes/s
_FP32_BYTES, _WINDOW, _PASSES = 4.0, 9.0, 3.0  # 3 x 3; forward, and two products backward
_PER_CONVOLUTION = 3.0  # tensors: weights, scale and shift
GPU_SPREAD = 0.15  # of log seconds, around what the datasheet says
FAMILY_SPREAD = 0.1


class Totals(AbstractSums):
    """The model by the name "totals"."""

    name = "totals"
    no_variability = "a fit of totals describes seconds, not how steps vary."
    seconds = "step_s"
    columns = COLUMNS
    levels: ClassVar[Mapping[str, float]] = {"gpu": GPU_SPREAD, "family": FAMILY_SPREAD}

    def prepare(self, frame: pd.DataFrame) -> SumsData:
        """Cells: a network on a GPU at a batch."""
        return sums_data(frame, self.sizes(frame), self.seconds, TERMS, self.levels, uneven="family")

    def sizes(self, frame: pd.DataFrame) -> np.ndarray:
        """Seconds of products, passes, small kernels and the rest, [row, term].

        Raises:
            DataError: no datasheet of a GPU is known, or it has no fp32.
        """
        batch, flops, n_params, n_tensors = (
            frame[name].to_numpy(dtype=float) for name in ("batch", "flops", "n_params", "n_tensors")
        )
        peak, bandwidth = np.array([_speeds(name) for name in texts_of(frame, "gpu")]).reshape(-1, 2).T
        slowness = np.sqrt(REFERENCE[0] / peak * REFERENCE[1] / bandwidth)
        with np.errstate(over="ignore"):  # what is too large is refused by its cells
            products = batch * flops
            n_bytes = batch * _FP32_BYTES * N_PASS * activations(flops, n_params, n_tensors)
        return np.stack(
            [products / peak, n_bytes / bandwidth, n_tensors * KERNELS_S * slowness, FIXED_S * slowness], axis=1
        )

    def trivial(self, data: SumsData, frame: pd.DataFrame) -> np.ndarray:
        """Products at the median share of the peak."""
        share = np.median(np.exp(data.log_s) / data.size[:, 0])
        return self.sizes(frame)[:, 0] * share


def activations(flops: np.ndarray, n_params: np.ndarray, n_tensors: np.ndarray) -> np.ndarray:
    """Results of all convolutions of a sample, in elements, from totals of equal convolutions."""
    width = np.sqrt(n_params / (_WINDOW * np.maximum(n_tensors / _PER_CONVOLUTION, 1.0)))
    return flops / _PASSES / (2.0 * _WINDOW * width)


def _speeds(name: str) -> tuple[float, float]:
    """Fp32 FLOP/s and bytes/s of the datasheet."""
    try:
        device: Device = device_of_text(name)
        return device.peak("fp32"), device.hbm_bytes_per_s
    except SpecError as error:
        raise DataError(f"gpu {name[:40]}: {error}") from None
