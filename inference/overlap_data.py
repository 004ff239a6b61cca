"""Data of the overlap model: rows of kernels timed alone and during communication, and their standardised features.

A feature is log(seconds alone) or a hardware counter in percent of its peak. Features are centred and scaled by the rows of the
fit, blanks become the centre, and values outside +-3 standard deviations count as 3: the linear form is not carried further.

Time under communication over time alone: most calls keep their time, some are held up, by how much is wide open.

    log(t_overlapped / t_alone) ~ (1 - p) StudentT(nu, overlap x shift, noise) + p Gamma(shape, mean = overlap x extra)

`p` and `extra` depend on the kernel (its own effect) and its features. Pure functions of site values, for the NumPyro program,
for draws of it, and for the internal leave-one-kernel-out.

Does the overlap model beat "no slowdown" on kernels it has not seen? Asked inside every fit, of the kernels of that fit.

Each kernel is left out in turn, the posterior mode of the very same program is found from the others (all folds at once, Adam),
and the left-out rows are predicted by the factor with the smallest expected relative error. The model has to win by more than two
standard errors over kernels; otherwise kernels that were not measured are predicted without slowdown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.optim import Adam

from prism_jax.core.errors import DataError

from .data.columns import ModelColumn

COUNTERS = (
    ModelColumn("compute_throughput_percent", ("Compute throughput", "compute_throughput", "sm_throughput")),
    ModelColumn("memory_throughput_percent", ("Memory throughput", "memory_throughput")),
    ModelColumn("dram_throughput_percent", ("DRAM throughput", "dram_throughput")),
    ModelColumn("achieved_occupancy_percent", ("Achieved occupancy", "achieved_occupancy", "occupancy")),
    ModelColumn("l1_hit_rate_percent", ("L1 hit rate", "l1_hit_rate")),
    ModelColumn("l2_hit_rate_percent", ("L2 hit rate", "l2_hit_rate")),
)
COLUMNS = (
    # The coarser of the names a profiler gives: templates of one kernel behave alike and must be left out together.
    ModelColumn("kernel", ("kShortName", "Kernel Name", "kernel_name"), required=True, text=True),
    # Echo-slowdown's names (nanoseconds): its "ground_truth" is the time alone, its "duration" the time under overlap.
    ModelColumn("duration_s", ("ground_truth", "alone", "duration_alone", "duration_s"), required=True, positive=True),
    ModelColumn("overlapped_s", ("overlapped", "duration_overlapped", "duration"), required=True, positive=True),
    ModelColumn("overlap_ratio", ("overlap",), required=True),
    ModelColumn("gpu", ("gpu_name", "gpu_model"), text=True),
    *COUNTERS,
)
FEATURES = ("log_duration", *(column.name for column in COUNTERS))
REACH = 3.0  # standard deviations: 1.5 times what a uniform feature spans
REFERENCE_S = 50e-6  # a typical kernel of a transformer layer; only centres the noise's dependence on duration


@dataclass(frozen=True)
class OverlapData:
    """Rows of the likelihood, and what the internal leave-one-kernel-out found.

    Attributes:
        kernels: names, in the order of `kernel`.
        kernel: index into `kernels`, [row].
        log_factor: log(seconds under overlap / seconds alone), [row].
        overlap_ratio: share of the kernel's run during which communication ran, 0-1, [row].
        log_duration: log(seconds alone / 50 us), [row].
        features: standardised, [row, feature].
        centre, spread: what standardised them, [feature].
        used: whether a row enters the likelihood, [row].
        n_judged: kernels that took part in the decision.
        mape_model, mape_none: mean |predicted / measured - 1| of kernels left out, with the model and without slowdown.
        gain, gain_error: their difference and its standard error over kernels.
        beats: whether the model is used for kernels that were not measured.
        gpus: that the kernels were measured on, as far as the table names them.
    """

    kernels: Annotated[tuple[str, ...], "kernel"]
    kernel: Annotated[np.ndarray, "row -> kernel"]
    log_factor: Annotated[np.ndarray, "row"]
    overlap_ratio: Annotated[np.ndarray, "row"]
    log_duration: Annotated[np.ndarray, "row"]
    features: Annotated[np.ndarray, f"row {len(FEATURES)}"]
    centre: Annotated[np.ndarray, f"{len(FEATURES)}"]
    spread: Annotated[np.ndarray, f"{len(FEATURES)}"]
    used: Annotated[np.ndarray, "row"]
    n_judged: int = 0
    mape_model: float = np.nan
    mape_none: float = np.nan
    gain: float = np.nan
    gain_error: float = np.nan
    beats: bool = False
    gpus: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame) -> OverlapData:
    """Rows of a checked table; nothing decided yet.

    Raises:
        DataError: an overlap ratio outside 0-1, or fewer than two kernels.
    """
    ratio = frame["overlap_ratio"].to_numpy(dtype=np.float64)
    if np.any((ratio < 0.0) | (ratio > 1.0)):
        worst = float(ratio[np.argmax(np.abs(ratio - 0.5))])
        raise DataError(
            f"column overlap_ratio: {worst:g} is not within 0-1. It is the share of the kernel that ran at the same time."
        )
    names, kernel = np.unique(frame["kernel"].astype(str).to_numpy(), return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"column kernel: {len(names)} kernel. The overlap model compares kernels; give it at least two."
        )
    alone = frame["duration_s"].to_numpy(dtype=np.float64)
    log_duration = np.log(alone / REFERENCE_S)
    raw = raw_features(log_duration, {c.name: frame[c.name].to_numpy() for c in COUNTERS if c.name in frame})
    centre, spread = _moments(raw)
    return OverlapData(
        kernels=tuple(str(name) for name in names),
        kernel=kernel.astype(np.int64),
        log_factor=np.log(frame["overlapped_s"].to_numpy(dtype=np.float64) / alone),
        overlap_ratio=ratio,
        log_duration=log_duration,
        features=standardised(raw, centre, spread),
        centre=centre,
        spread=spread,
        used=np.ones(len(frame), dtype=bool),
        gpus=_gpus(frame),
    )


def _gpus(frame: pd.DataFrame) -> tuple[str, ...]:
    named = frame["gpu"].dropna().astype(str).unique() if "gpu" in frame else []
    return tuple(sorted(str(name) for name in named if str(name).strip()))


def raw_features(log_duration: np.ndarray, counters: Mapping[str, ArrayLike]) -> np.ndarray:
    """Unscaled features [row, feature]; counters that are not there are NaN."""
    blank = np.full(len(log_duration), np.nan)
    columns = [
        np.broadcast_to(np.asarray(counters.get(c.name, blank), dtype=np.float64), blank.shape) for c in COUNTERS
    ]
    return np.stack([log_duration, *columns], axis=1)


def standardised(raw: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Features in standard deviations from the centre, within +-3; blanks at the centre."""
    return np.clip(np.nan_to_num((raw - centre) / spread, nan=0.0), -REACH, REACH)


def _moments(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the values that are there; (0, 1) for a column without any, spread 1 without spread."""
    there = np.isfinite(raw)
    n = np.maximum(there.sum(axis=0), 1)
    centre = np.where(there, raw, 0.0).sum(axis=0) / n
    spread = np.sqrt(np.where(there, (raw - centre) ** 2, 0.0).sum(axis=0) / n)
    return centre, np.where(spread > 1e-9, spread, 1.0)


LONGEST = 4.6  # log of 100: no kernel of the open data was held up by more than 30 times; keeps heavy tails finite


class Terms(NamedTuple):
    """Parameters of the mixture by row; any broadcastable shapes.

    Attributes:
        logit: log odds that the call is held up.
        extra: mean log factor of a call that is held up, fully overlapped.
        shape: of the Gamma distribution, above 1.
        shift: mean log factor of other calls, fully overlapped.
        noise, tail: scale and degrees of freedom of measurement noise.
    """

    logit: Array
    extra: Array
    shape: Array
    shift: Array
    noise: Array
    tail: Array


def terms(site: Mapping[str, Any], features: Any, log_duration: Any, effect_logit: Any, effect_extra: Any) -> Terms:
    """The mixture of rows with these features [row, feature] and standardised kernel effects [row], at one draw."""
    slope_logit = site["slope_logit_scale"] * site["slope_logit_raw"]
    slope_extra = site["slope_extra_scale"] * site["slope_extra_raw"]
    logit = site["base_logit"] + features @ slope_logit + site["kernel_logit_scale"] * effect_logit
    log_extra = site["base_log_extra"] + features @ slope_extra + site["kernel_extra_scale"] * effect_extra
    return Terms(
        logit=logit,
        extra=jnp.exp(jnp.clip(log_extra, -12.0, jnp.log(LONGEST))),
        shape=1.0 + site["shape_above_one"],
        shift=site["shift"],
        noise=jnp.exp(site["log_noise"] + site["noise_slope"] * log_duration),
        tail=1.0 + site["tail_above_one"],
    )


def log_density(log_factor: Array, overlap_ratio: Array, at: Terms) -> Array:
    """Log density of log factors, [row]."""
    beside = overlap_ratio > 0.0
    calm = dist.StudentT(at.tail, overlap_ratio * at.shift, at.noise).log_prob(log_factor)
    mean = jnp.where(beside, overlap_ratio, 1.0) * at.extra
    slower = log_factor > 0.0
    held = dist.Gamma(at.shape, at.shape / mean).log_prob(jnp.where(slower, log_factor, 1.0))
    both = jnp.logaddexp(
        jax.nn.log_sigmoid(-at.logit) + calm, jnp.where(slower, jax.nn.log_sigmoid(at.logit) + held, -jnp.inf)
    )
    return jnp.where(beside, jnp.where(slower, both, jax.nn.log_sigmoid(-at.logit) + calm), calm)


def draw_factor(key: Array, overlap_ratio: Array, at: Terms, shape: tuple[int, ...], noisy: bool) -> Array:
    """Factors t_overlapped / t_alone; without noise never below 1, with it as one measurement would show them."""
    k_held, k_extra, k_noise = jax.random.split(key, 3)
    held = (jax.random.uniform(k_held, shape) < jax.nn.sigmoid(at.logit)) & (overlap_ratio > 0.0)
    gamma = jax.random.gamma(k_extra, jnp.broadcast_to(at.shape, shape))
    log_held = jnp.minimum(overlap_ratio * at.extra * gamma / at.shape, LONGEST)
    log_calm = overlap_ratio * at.shift
    if noisy:
        log_calm = log_calm + at.noise * jax.random.t(k_noise, jnp.broadcast_to(at.tail, shape), shape)
    return jnp.exp(jnp.where(held, log_held, log_calm))


def best_for_mape(factors: np.ndarray) -> np.ndarray:
    """The factor per row with the smallest expected |factor / true - 1| over [draw, row]: a median with weights 1/factor."""
    order = np.sort(np.asarray(factors, dtype=np.float64), axis=0)
    weight = np.cumsum(1.0 / order, axis=0)
    at = np.argmax(weight >= 0.5 * weight[-1], axis=0)
    return np.take_along_axis(order, at[None], axis=0)[0]


N_STEP = 300
STEP_SIZE = 0.03  # unconstrained scale: 300 steps reach 9 away
N_DRAW = 400  # of kernel effects and mixture: a median's standard error of 2.5% in probability
MARGIN = 2.0  # standard errors: chance alone passes in one of forty fits
FEWEST = 5  # kernels: with fewer, a standard error over kernels says nothing

Program = Callable[[OverlapData], None]


def decide(data: OverlapData, program: Program, start: Callable[[OverlapData], dict[str, Any]]) -> OverlapData:
    """`data` with the decision and the figures it rests on; runs in float64 whatever the global setting."""
    beside = data.overlap_ratio > 0.0
    judged = np.unique(data.kernel[beside])
    if len(judged) < FEWEST:
        return replace(data, n_judged=len(judged))
    rows = np.flatnonzero(beside)
    fold = np.searchsorted(judged, data.kernel[rows])
    arrays = {field.name: value for field in fields(data) if isinstance(value := getattr(data, field.name), np.ndarray)}
    used = data.kernel[None, :] != judged[:, None]
    with jax.enable_x64(True):
        predicted = np.asarray(_left_out_points(program, data.kernels, arrays, start(data), used, rows, fold))
    return replace(data, n_judged=len(judged), **_compare(predicted, np.exp(data.log_factor[rows]), fold))


def _compare(predicted: np.ndarray, measured: np.ndarray, fold: np.ndarray) -> dict[str, Any]:
    """Mean relative errors over rows, the gain, and its standard error with kernels as the units."""
    error_model, error_none = np.abs(predicted / measured - 1.0), np.abs(1.0 / measured - 1.0)
    difference = error_none - error_model
    n_fold = int(fold.max()) + 1
    gain = float(difference.mean())
    by_kernel = np.bincount(fold, weights=difference - gain, minlength=n_fold)
    error = float(np.sqrt(n_fold / (n_fold - 1) * np.sum(by_kernel**2)) / len(fold))
    return {
        "mape_model": float(error_model.mean()),
        "mape_none": float(error_none.mean()),
        "gain": gain,
        "gain_error": error,
        "beats": bool(gain > MARGIN * error and gain > 0.0),
    }


@partial(jax.jit, static_argnames=("program", "kernels"))
def _left_out_points(
    program: Program,
    kernels: tuple[str, ...],
    arrays: dict[str, Array],
    start: dict[str, Any],
    used: Array,
    rows: Array,
    fold: Array,
) -> Array:
    """Predicted factors of `rows`, each from the fold without its kernel, [row]; `used` is [fold, row]."""

    def mode(used: Array) -> dict[str, Array]:
        data = OverlapData(kernels, **{**arrays, "used": used})  # pyright: ignore[reportArgumentType]
        energy = partial(potential_energy, program, (data,), {})
        return constrain_fn(program, (data,), {}, _mode(energy, unconstrain_fn(program, (data,), {}, start)))

    site = {name: values[fold] for name, values in jax.vmap(mode)(used).items()}
    features, log_duration, ratio = (arrays[name][rows] for name in ("features", "log_duration", "overlap_ratio"))
    return jax.vmap(_point)(site, features, log_duration, ratio, jax.random.split(jax.random.key(1), len(rows)))


def _mode(energy: Callable[[dict[str, Array]], Any], start: dict[str, Array]) -> dict[str, Array]:
    optimiser = Adam(STEP_SIZE)

    def step(_: int, state: Any) -> Any:
        return optimiser.update(jax.grad(energy)(optimiser.get_params(state)), state)

    return optimiser.get_params(jax.lax.fori_loop(0, N_STEP, step, optimiser.init(start)))


def _point(site: dict[str, Array], features: Array, log_duration: Array, overlap_ratio: Array, key: Array) -> Array:
    """Point prediction of one row as if its kernel were new."""
    k_logit, k_extra, k_factor = jax.random.split(key, 3)
    new = partial(jax.random.normal, shape=(N_DRAW,))
    at = terms(site, features, log_duration, new(k_logit), new(k_extra))
    factors = jnp.sort(draw_factor(k_factor, overlap_ratio, at, (N_DRAW,), noisy=False))
    weight = jnp.cumsum(1.0 / factors)
    return factors[jnp.argmax(weight >= 0.5 * weight[-1])]
