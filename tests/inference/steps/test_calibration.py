"""The steps model is calibrated: truths drawn from its priors have uniform ranks among the draws of fits."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from inference.engine.program import Settings
from inference.steps.data import EFFECTS, LEVEL_SD, N_SMOOTH, REFERENCE_LOG2_GPUS, SLOPE_SD, StepsData
from inference.steps.model import LEVEL_FLOOR, StepsModel
from inference.steps.runs import LABELS
from tests.inference.calibration import Calibration, Sites, calibrate

N_SYSTEM, N_REPEAT, N_STEP = 12, 3, 60
N_FIT = 60
CHAIN = Settings(n_chain=1, n_warmup=300, n_draw=400)


def skeleton() -> StepsData:
    """Systems of two submitters, benchmarks and GPU models, on 8 to 256 GPUs, every run logged in two metrics."""
    rng = np.random.default_rng(0)
    parts = []
    for system in range(N_SYSTEM):
        for metric in ("step_s", "log_dt_ms"):
            for repeat in range(N_REPEAT):
                labels = {
                    "run": f"{metric}-{system}-{repeat}",
                    "metric": metric,
                    "system": f"s{system:02d}",
                    "submitter": "uv"[system % 2],
                    "benchmark": "ab"[system // 2 % 2],
                    "gpu": ("A100", "H100")[system // 4 % 2],
                    "round": ("v1", "v2")[system // 3 % 2],
                    "n_gpus": 8.0 * 2 ** (system % 6),
                }
                log_s = 0.01 * np.exp(0.5 * rng.standard_normal()) * rng.standard_t(4.0, N_STEP)
                parts.append(pd.DataFrame({**labels, "step": np.arange(N_STEP), "duration_s": np.exp(log_s)}))
    return StepsModel().prepare(pd.concat(parts, ignore_index=True))


def measured(data: StepsData, true: Sites, rng: np.random.Generator) -> StepsData:
    """Coordinates effect by effect, the others around their kind's mean, and sums of squares of totals."""
    n = len(data.units)
    ramp = data.log2_gpus - REFERENCE_LOG2_GPUS
    variance = data.noise + data.outlying**2
    value = np.sqrt(variance) * rng.standard_normal(data.value.shape)
    metrics = np.unique(data.codes[:, LABELS.index("metric")], return_inverse=True)[1]
    for c in range(N_SMOOTH):
        value[:, c] += LEVEL_SD * rng.standard_normal(2)[metrics] + true["own"][c] * rng.standard_normal(n)
        value[:, c] += data.slope[c] * (1.0 + SLOPE_SD * rng.standard_normal()) * ramp
        for i, effect in enumerate(EFFECTS):
            factor = np.linalg.cholesky(alike(data, effect.labels, effect.reach, true) + 1e-9 * np.eye(n))
            value[:, c] += true["effect"][i] * true["size"][c] * (factor @ rng.standard_normal(n))
    n_rest = value.shape[1] - N_SMOOTH
    value[:, N_SMOOTH:] += LEVEL_SD * rng.standard_normal((len(data.kinds), n_rest))[data.kind]
    value[:, N_SMOOTH:] += true["rest"] * rng.standard_normal((n, n_rest))
    more, dof = data.n_runs - 1.0, float(true["level_dof"])
    spread_sq = dof * true["level_scale"][data.kind] ** 2 / rng.chisquare(dof, n)
    return replace(
        data, value=value, level_sum_sq=np.maximum(spread_sq * rng.chisquare(more) - LEVEL_FLOOR * more, 0.0)
    )


def alike(data: StepsData, labels: tuple[str, ...], reach: float, true: Sites) -> np.ndarray:
    """Correlation of one effect between configurations."""
    code = {name: data.codes[:, i] for i, name in enumerate(LABELS)}
    found = np.where(np.equal.outer(code["metric"], code["metric"]), 1.0, float(true["coupling"]))
    for name in labels:
        found *= np.equal.outer(code[name], code[name])
    if reach:
        gap = np.subtract.outer(data.log2_gpus, data.log2_gpus)
        found *= np.exp(-0.5 * (gap / (reach * float(true["length"]))) ** 2)
    return found


def run(n_fit: int = N_FIT) -> Calibration:
    data = skeleton()
    return calibrate(
        StepsModel(), data, lambda true, rng: measured(data, true, rng), n_fit=n_fit, seed=25, settings=CHAIN
    )


@pytest.mark.slow
def test_ranks_of_true_values_are_uniform() -> None:
    """Thirty numbers or so, each with a false-alarm rate of 1e-4: 3e-3 in all."""
    run().assert_uniform(StepsModel.reported, max_failed=0.2)
