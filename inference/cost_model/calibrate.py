"""Fits of the step-time calibration: the mode of the posterior, and a normal law around it with the expected curvature.

The time of a step has kinks (what hides, what is slowest) and rows that are far off bend the density upwards, so that second
differences at the mode say little. The Fisher information is what such rows would say on average, and is never negative:

    H = prior + sum_rows weight (nu + 1) / ((nu + 3) scale^2) J J^T          J = d expected / d parameters

Rows of large sites count as `MAX_ROWS` in all, and a few hundred say what thousands do (`few_of_each`).

For blind scores (`step_folds`) there is one fit for every group of measured steps, to all rows outside of it. The data are an
outline per row, and what stragglers add to its noise-free time. Large sources are thinned once, before anything is fitted, so
that folds differ by the group they lack and by nothing else. In every fold all rows stay in their places; those of the group have
no weight and no measured time, and members of a level that only they belong to stay unknown. What is compiled for one fold then
serves all. Every fit begins at the prior: one that began at the mode of all rows would have seen what it must not know.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray
from scipy.optimize import minimize

from prism_jax.calibration.calibration import Calibration, uncalibrated
from prism_jax.calibration.evidence import width_law
from prism_jax.calibration.surrogate import stack
from prism_jax.core.arrays import Floats
from prism_jax.core.content import content_hash
from prism_jax.core.errors import DataError, FitError
from prism_jax.core.executor import ALONE, Workers, answers_in_order
from prism_jax.core.processes import Progress, part_of, silent
from prism_jax.validation.costed import CostedJob, costed, job_of_row, step_times
from prism_jax.validation.score import MeasuredRow, group_of

from ..engine.diagnostics import one_blas_thread
from ..engine.program import ModelProgram, Sites, constrained, program, traced
from .step_times import (
    EXPECTED,
    MAX_ROWS,
    OF_ROW,
    OF_SCALE,
    SCALE,
    TERMS,
    Assumed,
    StepTimesData,
    StepTimesModel,
    calibration_of,
    field_of,
    known_of,
    step_times_data,
)

MOST = 150


def rows_of(data: StepTimesData, rows: NDArray[np.intp]) -> StepTimesData:
    """Selects some rows; names that none of them has are dropped."""
    arrays = {
        item.name: getattr(data, item.name)[rows]
        for item in fields(data)
        if isinstance(getattr(data, item.name), np.ndarray)
    }
    names = {}
    for level, known in data.names.items():
        field = field_of(level)
        index = arrays[field]
        always = [i for i, name in enumerate(known) if name in known_of(level)]
        used = np.unique([*index[index < len(known)], *always]).astype(int)
        place = np.full(len(known) + 1, len(used))
        place[used] = np.arange(len(used))
        arrays[field] = place[index]
        names[level] = tuple(known[i] for i in used)
    count = np.bincount(arrays["site"], minlength=len(names["site"]))[arrays["site"]]
    return replace(data, **arrays | {"weight": np.minimum(1.0, MAX_ROWS / count)}, names=names)


def few_of_each(owner: NDArray[Any], most: int) -> NDArray[np.intp]:
    """Rows, in order, of which no owner [row] has more than `most`; those of larger ones by chance.

    Which ones depends on the order of the owner's rows; `few_rows` gives them one order.
    """
    rng = np.random.default_rng(0)
    kept = [_some(np.flatnonzero(owner == name), most, rng) for name in np.unique(owner)]
    return np.sort(np.concatenate(kept)) if kept else np.zeros(0, dtype=np.intp)


def _some(rows: NDArray[np.intp], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    return rows if len(rows) <= most else rng.choice(rows, most, replace=False)


N_DRAW = 128
MAX_ITERATION = 400
TOLERANCE = 1e-7  # of the log density, relative


class Calibrator:
    """Fits to rows of one table under several weights: all have the same shapes, so that what is compiled serves every one.

    Args:
        data: all rows, with all names.
        terms: deviations that are fitted; others are zero.
    """

    def __init__(self, data: StepTimesData, terms: tuple[Assumed, ...] = TERMS) -> None:
        self._terms = terms
        with jax.enable_x64(True):
            self._made = program(StepTimesModel(terms), data, jax.random.key(0))  # pyright: ignore[reportArgumentType]

    @one_blas_thread
    def fit(
        self, data: StepTimesData, *, key: jax.Array, n_draw: int = N_DRAW, record: Mapping[str, Any] | None = None
    ) -> Calibration:
        """The calibration that measured steps amount to.

        Args:
            data: the rows of the table under weights of their own; those without weight have no part in it, and members that
                only they belong to stay unknown.
            key: seed of the draws.
            n_draw: draws that are kept; their mean is the mode.

        Raises:
            FitError: no mode is found.
        """
        with jax.enable_x64(True):
            _, draw_key = jax.random.split(key)
            made = self._made.given(traced(data)[0])
            at = _mode(made)
            scale = np.linalg.inv(np.linalg.cholesky(self._information(made, data, at))).T
            noise = np.asarray(jax.random.normal(draw_key, (n_draw, made.n_dim), dtype=float))
            noise = noise - noise.mean(axis=0)
            _, unravel = made.ravel()
            draws = constrained(made, jax.vmap(unravel)(jnp.asarray(at + noise @ scale.T)))
        return calibration_of(data, draws, record or {}, self._terms)

    def _information(self, made: ModelProgram, data: StepTimesData, at: np.ndarray) -> np.ndarray:
        """[parameter, parameter] of the prior and of the rows, at unconstrained parameters."""
        _, unravel = made.ravel()
        (place, width), (log_scale, sites) = self._slopes(jnp.asarray(at), made.arrays)  # [row, parameter]
        weight = np.asarray(data.weight) * OF_ROW
        of_place = np.asarray(place) * np.sqrt(weight / np.exp(2.0 * np.asarray(log_scale)))[:, None]
        of_width = np.asarray(width) * np.sqrt(np.asarray(data.weight) * OF_SCALE)[:, None]
        return of_place.T @ of_place + of_width.T @ of_width + np.diag(_prior(unravel(jnp.asarray(at)), sites))

    @cached_property
    def _slopes(self) -> Callable[..., Any]:
        """(parameters, arrays) -> derivatives of what is expected and of its log scale [row, parameter], and all sites."""
        made = self._made
        _, unravel = made.ravel()

        def law(vector: Any, given: Any) -> tuple[tuple[Any, Any], Any]:
            sites = made.constrain(given, unravel(vector))
            log_scale = jnp.log(sites[SCALE])
            return (sites[EXPECTED], log_scale), (log_scale, sites)  # twice, so that the derivative keeps the value

        return jax.jit(jax.jacfwd(law, has_aux=True))


def _mode(made: ModelProgram) -> np.ndarray:
    flat, _ = made.ravel()
    options = {"maxiter": MAX_ITERATION, "maxcor": 30, "ftol": TOLERANCE}
    found = minimize(made.energy, flat, jac=True, method="L-BFGS-B", options=options)
    if not np.isfinite(found.fun):
        raise FitError(f"the calibration did not converge on these steps ({found.message}); check the measured times.")
    return found.x


def _prior(unconstrained: Sites, sites: Sites) -> np.ndarray:
    """[parameter] curvature of the prior: standard normals, and what hangs on a spread that is itself sampled."""
    given: dict[str, Any] = {name: jnp.ones_like(value) for name, value in unconstrained.items()}
    given |= StepTimesModel.prior_precision(sites)
    flat, _ = ravel_pytree({name: jnp.broadcast_to(given[name], one.shape) for name, one in unconstrained.items()})
    return np.asarray(flat)


def usable(rows: Sequence[MeasuredRow], *, with_defects: bool = False) -> list[MeasuredRow]:
    """Rows that state their whole job and hold a time; those with a known defect or with assumptions only if asked for."""
    known = [row for row in rows if row.model is not None and row.measured_s]
    return known if with_defects else [row for row in known if not row.defect and not row.assumed]


def row_data(rows: Sequence[MeasuredRow], progress: Progress = silent) -> StepTimesData:
    """Outlines and memberships of usable rows.

    Args:
        progress: called with the share that is done.
    """
    jobs = []
    for done, row in enumerate(rows, 1):
        jobs.append(costed(job_of_row(row, uncalibrated())))
        progress(0.5 * done / len(rows))
    return step_times_data(
        stack([one.outline for one in jobs]),
        [row.measured_s or np.nan for row in rows],
        stragglers(jobs, part_of(progress, 0.5, 1.0)),
        [row.job[0].has_experts for row in rows],
        [one.setting for one in jobs],
        [site_of(row) for row in rows],
        [one.job.open_fields for one in jobs],
    )


def site_of(row: MeasuredRow) -> str:
    """A source on one generation of devices: what a publication has of two is two clusters, each with its own software."""
    return f"{row.source} on {row.job[1].device.generation}"


def stragglers(jobs: Sequence[CostedJob], progress: Progress = silent) -> Floats:
    """[job] logarithm of the median step over the noise-free one, under the default variability of the device."""
    steps = step_times(jobs, progress=progress)
    return np.log(steps.typical_s / steps.noise_free_s)


PREPARED = 0.15  # share of the work that outlines and stragglers are


def step_folds(
    rows: Sequence[MeasuredRow],
    by: str,
    *,
    key: jax.Array,
    progress: Progress = silent,
    only: Collection[str] | None = None,
    workers: Workers = ALONE,
) -> dict[str, Calibration]:
    """Group -> the calibration that its rows have had no part in; groups are those of all rows that can be simulated.

    Args:
        rows: measured rows; those with a known defect are not fitted, but have a group.
        by: source, gpu or model.
        key: of the draws, the same for every fold.
        progress: called with the share that is done.
        only: groups to fit without; None: every one of them.
        workers: those of an executor share the groups; on this host alone, threads do, for which one program is compiled.

    Raises:
        DataError: nothing remains outside of a group.
        FitError: no mode is found.
    """
    kept = in_one_order(thinned_rows(usable(rows)))
    if not kept:
        raise DataError("no row can be simulated, has a time and is free of known defects: nothing to calibrate with")
    owner = np.array([group_of(row, by) for row in kept])
    groups = sorted({group_of(row, by) for row in usable(rows, with_defects=True)})
    if only is not None:
        groups = [group for group in groups if group in only]
    if len(groups) == 1 and only is None:
        raise DataError(
            f"all rows are of one {by}, {groups[0]}: nothing remains to calibrate with. Leave out another way."
        )
    fitted = [group for group in groups if (owner == group).any()]
    if any((owner == group).all() for group in fitted):
        raise DataError(f"all usable rows are of {owner[0]}: nothing remains to calibrate with. Leave out another way.")
    data = row_data(kept, part_of(progress, 0.0, PREPARED))
    needed = [*fitted, *([""] if len(fitted) < len(groups) else [])]  # the last: groups none of whose rows is fitted
    told = part_of(progress, PREPARED, 1.0)
    if workers.executor is not None:
        alone = partial(_fold_alone, data=data, content=content_hash(data), owner=owner, key=key)
        shared = dict(zip(needed, answers_in_order(alone, needed, workers, told), strict=True))
        return {group: shared.get(group) or shared[""] for group in groups}
    fit = partial(_fold, Calibrator(data), data, owner, key=key)
    found = {
        needed[0]: fit(needed[0])
    }  # alone: NumPyro cannot trace a model in two threads, and what is compiled serves all
    told(1.0 / len(needed))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for group, made in zip(needed[1:], pool.map(fit, needed[1:]), strict=True):
            found[group] = made
            told(len(found) / len(needed))
    return {group: found.get(group) or found[""] for group in groups}


def thinned_rows(rows: Sequence[MeasuredRow], most: int = MOST) -> list[MeasuredRow]:
    """Selects at most `most` rows of every source, in the order given; which ones does not depend on it."""
    return [rows[index] for index in few_rows(rows, most)]


def few_rows(rows: Sequence[MeasuredRow], most: int = MOST) -> NDArray[np.intp]:
    """Places of the rows of `thinned_rows`: by chance from those of a source in the order of their ids.

    Rows of one id are in the order of what they say. So the choice is that from a table sorted by its ids.
    """
    times = Counter(row.id for row in rows)

    def key(index: int) -> tuple[str, str, float]:
        row = rows[index]
        return row.id, content_hash(*row.job) if times[row.id] > 1 else "", row.measured_s or 0.0

    order = np.array(sorted(range(len(rows)), key=key), dtype=np.intp)
    owner = np.array([rows[index].source for index in order])
    return np.sort(order[few_of_each(owner, most)])


def in_one_order(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """The rows by what they say, not by their places in a table: an optimiser magnifies the rounding of sums."""
    return sorted(rows, key=lambda row: (row.source, content_hash(*row.job), row.measured_s or 0.0))


def without(data: StepTimesData, left_out: NDArray[np.bool_]) -> StepTimesData:
    """Data with the same rows in the same places; those that are left out [row] have no weight and no measured time."""
    n_site = len(data.names["site"])
    count = np.bincount(data.site[~left_out], minlength=n_site)[data.site]
    weight = np.where(left_out, 0.0, np.minimum(1.0, MAX_ROWS / np.maximum(count, 1)))
    return replace(data, weight=weight, log_measured=np.where(left_out, 0.0, data.log_measured))


_COMPILED: dict[str, Calibrator] = {}  # of the data that a worker saw last


def _fold_alone(
    group: str, *, data: StepTimesData, content: str, owner: NDArray[np.str_], key: jax.Array
) -> Calibration:
    """`_fold` in a worker, which compiles once for all groups of the same data."""
    if content not in _COMPILED:
        _COMPILED.clear()
        _COMPILED[content] = Calibrator(data)
    return _fold(_COMPILED[content], data, owner, group, key)


def _fold(
    calibrator: Calibrator, data: StepTimesData, owner: NDArray[np.str_], group: str, key: jax.Array
) -> Calibration:
    left_out = owner == group
    record = {"left_out": group, "rows": int((~left_out).sum())}
    made = calibrator.fit(without(data, left_out), key=key, record=record)
    return replace(made, width=width_law(group))
