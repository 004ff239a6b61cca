"""Data of the steps model: one row per configuration, in coordinates in which runs differ independently.

A *configuration* is what repeats have in common: metric, benchmark, system, release, GPUs. Shapes of runs are rotated (Fisher's
discriminant coordinates) so that repeats of a configuration are uncorrelated and configurations have unit variance,
best-determined coordinate first. The median over a configuration's runs with its sampling variance, and the
spread between its runs, are all that is fitted.

Every coordinate of the shape is a Gaussian process over configurations: how alike two are expected to be is a sum of effects,
each shared by those that agree in its labels. An effect either is constant or bends smoothly with the logarithm of the GPU
count, and is weaker between metrics (a step timed inside, an interval between logs) than within one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import eigh

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.core.robust import MAD_SD

from .runs import LABELS, LEVELS, P95, P99, Run, RunTable, read_runs

Index = NDArray[np.int64]

N_KNOT = LEVELS.size
N_SMOOTH = 4  # coordinates with effects of their own; the rest hold < 5% of what differs between configurations
RUN_SD = 0.2  # of a shape (log excess) between repeats, where there are too few to tell: typical of MLPerf, 0.1-0.35
RUN_DOF = 3.0  # weight, in runs, of the benchmark's typical spread between repeats against a configuration's own
OUTLYING = 2.5  # robust standard deviations from its kind's median beyond which a configuration says less of others
MIN_KIND = 5  # configurations of a kind before one of them can be called outlying
MEDIAN_COST = 1.5  # variance of a median over that of a mean (pi/2 for many Normal values)
# Growth of the log excess per doubling of the GPUs, before data: a step waits for its slowest part, whose delays have tails of
# index 3 to 5 (x ~ n^(1/index)): ln 2 / 3.5 = 0.2 for p99, half for p95, none for the bulk, which is as wide at every scale.
SLOPE = {P95: 0.1, P99: 0.2}
SLOPE_SD = 0.5  # of them
REFERENCE_LOG2_GPUS = 6.0
POOL = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class StepsData:
    """See the module. Axes: unit = configuration, knot, component, kind = (metric, benchmark).

    Attributes:
        units, vocabulary, kinds: keys of configurations; "label=value" of every code; "metric | benchmark".
        codes: index into `vocabulary` by `LABELS`, [unit, label].
        n_gpus, log2_gpus: NaN where unknown, and the reference there, [unit].
        kind: [unit].
        centre, rotation, inverse: shape = centre + rotation @ coordinates, [knot], [knot, component], [component, knot].
        slope: prior growth of the coordinates per doubling of the GPUs, [component].
        value, noise, run_variance: coordinates, their sampling variance and the variance between runs, [unit, component].
        outlying: signed extra standard deviation of configurations far from their kind's, [unit, component].
        n_runs, n_points, n_run_steps: runs; median points and median steps of a run, [unit].
        level_mean, level_sum_sq: of ln(total / schedule) over runs, [unit].
        ar1: median lag-1 correlation, [unit].
        ratios: median measured p95/p50 and p99/p50, [unit, 2].
        step_s: typical step of a run, seconds, geometric mean over runs; NaN where the rows are no steps, [unit].
        is_mean: rows are means over several steps, [unit].
        pool: quantiles at `POOL` of steps over the run median, [kind, prob].
        groups, schedule_group, schedule_step, schedule_s: schedules, rows in the order of groups.
        notes: what was dropped.
        jobs: fields of the job that the head of a log states (`prism_jax.job.logged`), one per unit; none in older fits.
    """

    units: Annotated[tuple[str, ...], "unit"]
    vocabulary: Annotated[tuple[str, ...], "word"]
    kinds: Annotated[tuple[str, ...], "kind"]
    codes: Annotated[Index, f"unit {len(LABELS)} -> word"]
    n_gpus: Annotated[Floats, "unit"]
    log2_gpus: Annotated[Floats, "unit"]
    kind: Annotated[Index, "unit -> kind"]
    centre: Annotated[Floats, f"{N_KNOT}"]
    rotation: Annotated[Floats, f"{N_KNOT} component"]
    inverse: Annotated[Floats, f"component {N_KNOT}"]
    slope: Annotated[Floats, "component"]
    value: Annotated[Floats, "unit component"]
    noise: Annotated[Floats, "unit component"]
    run_variance: Annotated[Floats, "unit component"]
    outlying: Annotated[Floats, "unit component"]
    n_runs: Annotated[Floats, "unit"]
    n_points: Annotated[Floats, "unit"]
    n_run_steps: Annotated[Floats, "unit"]
    level_mean: Annotated[Floats, "unit"]
    level_sum_sq: Annotated[Floats, "unit"]
    ar1: Annotated[Floats, "unit"]
    ratios: Annotated[Floats, "unit 2"]
    step_s: Annotated[Floats, "unit"]
    is_mean: Annotated[NDArray[np.bool_], "unit"]
    pool: Annotated[Floats, f"kind {POOL.size}"]
    groups: Annotated[tuple[str, ...], "group"]
    schedule_group: Annotated[Index, "point -> group"]
    schedule_step: Annotated[Floats, "point"]
    schedule_s: Annotated[Floats, "point"]
    notes: tuple[str, ...]
    jobs: tuple[str, ...] = ()

    @property
    def schedules(self) -> dict[str, pd.Series]:
        """Median duration by step of every group."""
        ends = np.searchsorted(self.schedule_group, np.arange(len(self.groups) + 1))
        return {
            name: pd.Series(self.schedule_s[a:b], index=self.schedule_step[a:b])
            for name, a, b in zip(self.groups, ends[:-1], ends[1:], strict=True)
        }


def key_of(run: Run) -> str:
    """The configuration of a run in one line: what its repeats have in common, joined by " | "."""
    return " | ".join(str(part) for part in run.key)


def kind_of(labels: dict[str, str] | Run) -> str:
    """Kind of a run or of its labels, as "metric | benchmark"."""
    found = labels.labels if isinstance(labels, Run) else labels
    return f"{found['metric']} | {found['benchmark']}"


def steps_data(frame: pd.DataFrame) -> StepsData:
    """The fit's data from a checked table.

    Raises:
        DataError: no run has enough steps.
    """
    return data_of_runs(read_runs(frame))


def data_of_runs(table: RunTable) -> StepsData:
    """The fit's data from runs that were read before."""
    if not table.runs:
        why = "; ".join(table.notes) or "the table is empty"
        raise DataError(f"steps: no run to fit to ({why}). Give longer logs, one row per step or log interval")
    members: dict[str, list[Run]] = {}
    for run in table.runs:
        members.setdefault(key_of(run), []).append(run)
    repeats = list(members.values())
    kinds = sorted({kind_of(run) for run in table.runs})
    kind = np.array([kinds.index(kind_of(runs[0])) for runs in repeats])
    vocabulary, codes = _codes([runs[0] for runs in repeats])
    shapes = [np.array([run.shape for run in runs]) for runs in repeats]
    middle = np.array([np.median(s, axis=0) for s in shapes])
    centre, rotation, inverse = _rotation(shapes, middle, kind)
    coordinates = [(s - centre) @ inverse.T for s in shapes]
    value = (middle - centre) @ inverse.T
    n_runs = np.array([len(runs) for runs in repeats], dtype=float)
    variance = _run_variance(coordinates, value, kind, RUN_SD**2 * (inverse**2).sum(axis=1))
    levels = [np.array([run.level for run in runs]) for runs in repeats]
    growth = np.zeros(N_KNOT)
    growth[list(SLOPE)] = list(SLOPE.values())
    return StepsData(
        units=tuple(members),
        vocabulary=vocabulary,
        kinds=tuple(kinds),
        codes=codes,
        n_gpus=np.array([runs[0].n_gpus for runs in repeats]),
        log2_gpus=np.array([log2_gpus(runs[0].n_gpus) for runs in repeats]),
        kind=kind,
        centre=centre,
        rotation=rotation,
        inverse=inverse,
        slope=inverse @ growth,
        value=value,
        noise=variance * (np.where(n_runs > 2, MEDIAN_COST, 1.0) / n_runs)[:, None],
        run_variance=variance,
        outlying=_outlying(value, kind),
        n_runs=n_runs,
        n_points=np.array([np.median([run.relative.size for run in runs]) for runs in repeats]),
        n_run_steps=np.array([np.median([run.n_steps for run in runs]) for runs in repeats]),
        level_mean=np.array([v.mean() for v in levels]),
        level_sum_sq=np.array([((v - v.mean()) ** 2).sum() for v in levels]),
        ar1=np.array([np.median([run.ar1 for run in runs]) for runs in repeats]),
        ratios=np.array([np.median([run.ratios for run in runs], axis=0) for runs in repeats]),
        step_s=np.array([np.exp(np.mean([np.log(run.step_s) for run in runs])) for runs in repeats]),
        is_mean=np.array([runs[0].is_mean for runs in repeats]),
        pool=_pools(table.runs, kinds),
        notes=table.notes,
        jobs=tuple(runs[0].job for runs in repeats),
        **_flat(table),
    )


def log2_gpus(n_gpus: float) -> float:
    """log2 of a number of GPUs; that of the reference size where it is unknown."""
    return float(np.log2(n_gpus)) if np.isfinite(n_gpus) and n_gpus > 0.0 else REFERENCE_LOG2_GPUS


def _codes(runs: list[Run]) -> tuple[tuple[str, ...], Index]:
    words = [[f"{name}={run.labels[name]}" for name in LABELS] for run in runs]
    vocabulary = tuple(sorted({word for row in words for word in row}))
    index = {word: i for i, word in enumerate(vocabulary)}
    return vocabulary, np.array([[index[word] for word in row] for row in words])


def _rotation(shapes: list[Floats], middle: Floats, kind: Index) -> tuple[Floats, Floats, Floats]:
    """Centre [knot], rotation [knot, component] and its inverse: discriminant coordinates of configurations within kinds."""
    apart = np.concatenate(
        [s - m for s, m in zip(shapes, middle, strict=True) if len(s) > 2] or [np.zeros((0, N_KNOT))]
    )
    reach = 3.0 * MAD_SD * np.median(np.abs(apart), axis=0) if len(apart) else np.zeros(N_KNOT)
    apart = np.clip(apart, -reach, reach)
    within = (N_KNOT * RUN_SD**2 * np.eye(N_KNOT) + apart.T @ apart) / (N_KNOT + len(apart))
    means = np.array([middle[kind == k].mean(axis=0) for k in range(kind.max() + 1)])
    offset = middle - means[kind]
    between = (N_KNOT * np.eye(N_KNOT) * RUN_SD**2 + offset.T @ offset) / (N_KNOT + len(offset))
    strength, vectors = eigh(between, within)
    order = np.argsort(strength)[::-1]
    inverse = (vectors[:, order] / np.sqrt(strength[order])).T
    return middle.mean(axis=0), np.linalg.inv(inverse), inverse


def _run_variance(coordinates: list[Floats], value: Floats, kind: Index, fallback: Floats) -> Floats:
    """Variance between runs: a configuration's own, pulled to its kind's typical one; [unit, component]."""
    sum_sq = np.array([((c - v) ** 2).sum(axis=0) for c, v in zip(coordinates, value, strict=True)])
    freedom = np.array([len(c) - 1.0 for c in coordinates])[:, None]
    own = np.where(freedom > 0.0, sum_sq / np.maximum(freedom, 1.0), np.nan)
    typical = np.ones(value.shape) * _typical(own, fallback)
    for k in np.unique(kind):
        typical[kind == k] = _typical(own[kind == k], typical[kind == k][0])
    return (RUN_DOF * typical + sum_sq) / (RUN_DOF + freedom)


def _typical(own: Floats, fallback: Floats) -> Floats:
    known = own[np.isfinite(own).all(axis=1)]
    return np.maximum(np.median(known, axis=0), 1e-6) if len(known) else fallback


def _outlying(value: Floats, kind: Index) -> Floats:
    """Extra standard deviation, with the sign of the deviation, that brings outlying values to `OUTLYING`; [unit, component]."""
    extra = np.zeros_like(value)
    for k in np.unique(kind):
        apart = value[kind == k] - np.median(value[kind == k], axis=0)
        sd = np.maximum(MAD_SD * np.median(np.abs(apart), axis=0), 1e-9)
        size = np.sqrt(np.maximum((apart / sd / OUTLYING) ** 2 - 1.0, 0.0)) * sd
        extra[kind == k] = np.sign(apart) * size if (kind == k).sum() > MIN_KIND else 0.0
    return extra


def _pools(runs: tuple[Run, ...], kinds: list[str]) -> Floats:
    return np.array([np.quantile(np.concatenate([r.relative for r in runs if kind_of(r) == k]), POOL) for k in kinds])


def _flat(table: RunTable) -> dict[str, Any]:
    groups = tuple(sorted(table.schedules))
    parts = [table.schedules[name] for name in groups]
    counts = Counter({i: len(part) for i, part in enumerate(parts)})
    return {
        "groups": groups,
        "schedule_group": np.repeat(np.arange(len(groups)), [counts[i] for i in range(len(groups))]).astype(np.int64),
        "schedule_step": np.concatenate([p.index.to_numpy(float) for p in parts] or [np.zeros(0)]),
        "schedule_s": np.concatenate([p.to_numpy(float) for p in parts] or [np.zeros(0)]),
    }


@dataclass(frozen=True)
class Effect:
    """Shared by configurations that agree in `labels`; bends over `reach` times the length, 0 = constant."""

    name: str
    labels: tuple[str, ...]
    reach: float = 0.0


EFFECTS = (
    Effect("scale", (), 2.0),
    Effect("benchmark", ("benchmark",)),
    Effect("benchmark and scale", ("benchmark",), 2.0),
    Effect("GPU and scale", ("gpu",), 1.0),
    Effect("benchmark, GPU and scale", ("benchmark", "gpu"), 1.0),
    Effect("release", ("benchmark", "gpu", "round"), 1.0),
    Effect("submitter", ("submitter",)),
    Effect("submitter, GPU and scale", ("submitter", "gpu"), 1.0),
    Effect("system", ("benchmark", "system")),
)
METRIC = LABELS.index("metric")
LEVEL_SD = 3.0  # of a metric's mean coordinate; configurations within a benchmark have sd 1


@dataclass(frozen=True)
class Configurations:
    """Configurations to compare: codes [place, label], log2 of GPUs [place], index of the fitted configuration or -1 [place]."""

    codes: Any
    log2_gpus: Any
    unit: Any

    @staticmethod
    def of(data: StepsData) -> Configurations:
        """The configurations that were fitted."""
        return Configurations(data.codes, data.log2_gpus, np.arange(len(data.units)))


def covariance(
    amplitude: Any,
    own: Any,
    length: Any,
    coupling: Any,
    slope: Any,
    a: Configurations,
    b: Configurations,
    xp: Any = jnp,
) -> Any:
    """Prior covariance of the coordinates, [component, place a, place b].

    Args:
        amplitude: standard deviation of every effect, [component, effect].
        own: of what is a configuration's own, [component].
        length: doublings of the GPU count over which effects bend.
        coupling: correlation of effects between metrics, 0 to 1.
        slope: prior growth per doubling, [component].
        xp: `jax.numpy` in the program, `numpy` in predictions.
    """
    alike = shared(length, coupling, a, b, xp)
    n_effect, n_a, n_b = alike.shape
    # One product: the fit's inner loop.
    total = (amplitude**2 @ alike.reshape(n_effect, n_a * n_b)).reshape(-1, n_a, n_b)
    same_metric = _same(a.codes[:, METRIC], b.codes[:, METRIC], xp)
    total = total + LEVEL_SD**2 * same_metric + own[:, None, None] ** 2 * _same(a.unit, b.unit, xp)
    ramp = growth(a.log2_gpus)[:, None] * growth(b.log2_gpus)[None, :]
    return total + (SLOPE_SD * slope)[:, None, None] ** 2 * ramp


def prior_variance(amplitude: Any, own: Any, slope: Any, places: Configurations) -> Any:
    """Prior variance of the coordinates of single places, whether or not their labels are known; [component, place]."""
    constant = LEVEL_SD**2 + own**2 + (amplitude**2).sum(axis=1)
    return constant[:, None] + (SLOPE_SD * slope[:, None] * growth(places.log2_gpus)[None]) ** 2


def shared(length: Any, coupling: Any, a: Configurations, b: Configurations, xp: Any = jnp) -> Any:
    """Correlation of every effect between places, [effect, place a, place b]."""
    same = {name: _same(a.codes[:, i], b.codes[:, i], xp) for i, name in enumerate(LABELS)}
    between = same["metric"] + (1.0 - same["metric"]) * coupling
    gap = a.log2_gpus[:, None] - b.log2_gpus[None, :]
    parts = []
    for effect in EFFECTS:
        alike = between
        for name in effect.labels:
            alike = alike * same[name]
        parts.append(alike * xp.exp(-0.5 * (gap / (effect.reach * length)) ** 2) if effect.reach else alike)
    return xp.stack(parts)


def growth(log2_gpus: Any) -> Any:
    """Doublings of the GPU count above the reference; [place]."""
    return log2_gpus - REFERENCE_LOG2_GPUS


def _same(a: Any, b: Any, xp: Any) -> Any:
    """1 where labels are known and equal; [place a, place b]."""
    a, b = a[:, None], b[None, :]
    return xp.where((a == b) & (a >= 0), 1.0, 0.0)
