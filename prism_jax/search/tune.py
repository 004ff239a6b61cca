"""Tunes what is continuous by pathwise gradients of a quantile of the step time: bandwidths, power limits, layers, checkpoints.

All fields move together, as logarithms of their change, by Adam (Optax) on draws that stay as they are; budgets are kept at every
step. What is found is rounded to what can be run. Coarse fields (whole layers) are then moved by one unit at a time while that
helps, each candidate evaluated by the cost model itself and not by the line through it, and only splits whose memory fits.

The gain over the job as it stands is that on draws that the search has not seen, both settings on the same, with an interval.
Where rounding leaves nothing of the gain, the job stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ..core.arrays import Floats, Values
from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..core.registry import did_you_mean
from ..core.use_case import NOT_TYPED, UNRECORDED, Option, use_case
from ..graph.propagate import GraphArrays
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..placement.optimisers import descend
from ..placement.splits import layers_fit, with_layers
from ..result.distribution import check_prob
from ..simulate.columns import column_times
from ..simulate.inputs import regime_factors, shared_of
from ..simulate.predict import N_STEP_SAMPLES, replica_columns
from ..simulate.replica_maximum import step_samples
from ..simulate.sensitivity import RetimedJob, StepQuantile, exchange_s, kernel_weights, on_device
from .racing import N_SEEDS, half_width
from .report import TunedNumber, TuneReport
from .tuned_fields import FIELDS, Setting, TunedAxis, TuneLimits, cost_of, own_setting

N_STEP = 80
RATE = 0.03  # of Adam, in logarithms; falls to nothing
N_COLUMN = 256  # of the search
N_FRESH = 2048  # of each set of fresh draws
MOVES = 12  # of one unit
N_DONOR, N_RECEIVER = 3, 3
FRESH_SEEDS = 70_000  # away from what else is derived from a key


@use_case()
def tune(
    job: JobFile,
    fields: Annotated[Sequence[str], Option(key="continuous", recorded_as=list)],
    *,
    p: float = 0.95,
    limits: Annotated[TuneLimits, NOT_TYPED] = TuneLimits(),
    seed: int = 0,
    progress: Progress = silent,
) -> TuneReport:
    """The values of continuous `fields` that make the p-quantile of the step time smallest, and what they gain on fresh draws.

    Args:
        job: a Job, a job file, or the name of a shipped example; its values are the start, and what gains are measured against.
        fields: of `tuned_fields.FIELDS`: bandwidth, power, layers, checkpoint.
        p: between 0 and 1.
        limits: budgets, prices, and how often the job is interrupted.
        seed: same seed, same answer.
        progress: called with the fraction done of what is being done.

    Raises:
        DataError: an unknown field, one that the job has nothing of, or a budget out of reach.
        PlanError: the plan is impossible for the model or the cluster.

    Example:
        >>> print(tune("llama3_405b_16384", ["bandwidth", "layers"]))  # doctest: +SKIP
    """
    started = time.perf_counter()
    if not 0.0 < check_prob(p) < 1.0:
        raise DataError(f"p = {p}, but a quantile needs a probability between 0 and 1")
    own = loaded(job, ())
    tuning = Tuning(own, axes_of(own, fields, limits), p, seed)
    best = tuning.rounded(tuning.descended(progress))
    progress(1.0, "gain on fresh draws")
    pairs = np.array([[tuning.fresh(values, k) for values in (tuning.start, best)] for k in range(N_SEEDS)])
    gains = 1.0 - pairs[:, 1] / pairs[:, 0]
    middle, half = float(gains.mean()), half_width(gains)
    base_s, best_s = (float(value) for value in pairs.mean(axis=0))
    return TuneReport(
        job=own.name,
        p=p,
        numbers=tuple(_numbers(tuning.axes, tuning.parts(tuning.start), tuning.parts(best))),
        base_s=base_s,
        best_s=best_s,
        gain=middle,
        gain_interval=(middle - half, middle + half),
        elapsed_s=time.perf_counter() - started,
        notes=tuple(axis.note for axis in tuning.axes if axis.note),
        record=UNRECORDED,
    )


def axes_of(job: Job, fields: Sequence[str], limits: TuneLimits) -> tuple[TunedAxis, ...]:
    """Numbers of every field.

    Raises:
        DataError: an unknown or repeated field, or one that the job has nothing of.
    """
    if not fields or len(set(fields)) < len(fields):
        raise DataError(f"fields to tune: {', '.join(fields) or 'none'}, but different ones are needed, one at least")
    found = []
    for name in fields:
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS)
            raise DataError(f"--continuous: {name!r} is no field that can be tuned{hint}")
        axis = FIELDS[name].axis(job, limits)
        if axis is None:
            raise DataError(f"--continuous {name}: {job.name} has nothing to choose there ({FIELDS[name].about})")
        found.append(axis)
    return tuple(found)


def _numbers(axes: Sequence[TunedAxis], before: Sequence[Floats], after: Sequence[Floats]) -> list[TunedNumber]:
    return [
        TunedNumber(axis.field, label, axis.unit, float(old) / axis.scale, float(new) / axis.scale)
        for axis, own, found in zip(axes, before, after, strict=True)
        for label, old, new in zip(axis.labels, own, found, strict=True)
    ]


class _Best(NamedTuple):
    value: float
    values: Floats


@dataclass(frozen=True, eq=False)
class Tuning:
    """The quantile of a job's step time as a function of the numbers of some fields, side by side [number].

    Attributes:
        job, axes, p, seed: as `tune` has them.
    """

    job: Job
    axes: tuple[TunedAxis, ...]
    p: float
    seed: int

    @cached_property
    def start(self) -> Floats:
        """The job's own numbers."""
        return np.concatenate([axis.start for axis in self.axes])

    def parts(self, values: Values) -> list[Values]:
        """Of every axis."""
        edges = np.cumsum([0, *(len(axis.start) for axis in self.axes)])
        return [values[low:high] for low, high in pairwise(edges)]

    def setting(self, values: Values) -> Setting:
        """What the numbers change."""
        found = own_setting(self.job)
        for axis, own in zip(self.axes, self.parts(values), strict=True):
            found = axis.enter(found, own)
        return found

    @property
    def _layers_move(self) -> bool:
        return any(axis.field == "layers" for axis in self.axes)

    @cached_property
    def _lowered(self) -> RetimedJob:
        return RetimedJob.of(self.job)

    @cached_property
    def _on_search(self) -> StepQuantile:
        key = jax.random.key(self.seed)
        return StepQuantile(self._lowered, replica_columns(self._lowered.program, key, N_COLUMN), self.p, key)

    def prepare(self) -> None:
        """Makes what must not be made while a function is traced."""
        _ = self._on_search

    def values_of(self, change: Array) -> Array:
        """Numbers at logarithms of their change, inside bounds and budgets."""
        parts = zip(self.axes, self.parts(change), strict=True)
        return jnp.concatenate([jnp.asarray(axis.values(own)) for axis, own in parts])

    def smooth(self, values: Array) -> Array:
        """The quantile on the draws of the search, seconds; may be differentiated."""
        setting = self.setting(values)
        setting = setting._replace(numbers=on_device(setting.numbers))
        cost = cost_of(self.job, setting, layers_move=self._layers_move)
        quantile = self._on_search
        return quantile.quantile(*quantile.times_of(self._lowered.arrays_of(cost, setting.slower))) * setting.times

    def descended(self, progress: Progress = silent) -> Floats:
        """Where gradients lead from the job's own numbers, inside bounds and budgets; the best of the way."""
        best: list[_Best] = []
        self.prepare()
        slope = jax.jit(jax.value_and_grad(lambda change: jnp.log(self.smooth(self.values_of(change)))))

        def gradient(change: Array, step: int) -> Array:
            progress(step / N_STEP, "gradients")
            value, found = slope(change)
            if not best or float(value) < best[0].value:
                best[:] = [_Best(float(value), np.asarray(self.values_of(change), np.float64))]
            return found

        descend(gradient, jnp.zeros(len(self.start)), N_STEP, optax.cosine_decay_schedule(RATE, N_STEP))
        return best[0].values

    def rounded(self, values: Floats) -> Floats:
        """What can be run near `values`; the job's own numbers where that is no better."""
        near = np.concatenate([
            axis.rounded(own) for axis, own in zip(self.axes, self.parts(values), strict=True)
        ])  # fmt: skip
        candidates = [own for own in (self.start, near, self._with_own_layers(near)) if self._fits(own)]
        known = {own.tobytes(): self.on_search(own) for own in candidates}
        best = min(candidates or [self.start], key=lambda own: known.get(own.tobytes(), np.inf))
        return self._polished(best, known.get(best.tobytes(), np.inf)) if self._layers_move else best

    def _with_own_layers(self, values: Floats) -> Floats:
        parts = zip(self.axes, self.parts(values), strict=True)
        return np.concatenate([axis.start if axis.field == "layers" else own for axis, own in parts])

    def _polished(self, values: Floats, best_s: float) -> Floats:
        """Moves of one layer between chunks while they help; from those that hurt most to those that hurt least."""
        number = [axis.field for axis in self.axes].index("layers")
        edges = np.cumsum([0, *(len(axis.start) for axis in self.axes)])
        low, high = int(edges[number]), int(edges[number + 1])
        slope = jax.jit(jax.grad(self.smooth))
        for _ in range(MOVES):
            order = low + np.argsort(np.asarray(slope(jnp.asarray(values, float)))[low:high], kind="stable")
            donors = [at for at in order[::-1] if values[at] > self.axes[number].low[at - low] + 0.5][:N_DONOR]
            moves = [(a, b) for a in donors for b in order[:N_RECEIVER] if a != b]
            near = [values + _unit(len(values), b) - _unit(len(values), a) for a, b in moves]
            found = [(self.on_search(own), index) for index, own in enumerate(near) if self._fits(own)]
            if not found or min(found)[0] >= best_s:
                return values
            best_s, index = min(found)
            values = near[index]
        return values

    def _fits(self, values: Floats) -> bool:
        """Whether the layers are possible and fit into memory, or need no more than the job's own."""
        layers = self._layers(values)
        return layers is None or layers_fit(self.job, layers, self.job.plan.n_micro_batch)

    def _layers(self, values: Floats) -> tuple[int, ...] | None:
        for axis, own in zip(self.axes, self.parts(values), strict=True):
            if axis.field == "layers":
                return tuple(round(float(n)) for n in own)
        return None

    def on_search(self, values: Floats) -> float:
        """The quantile of what can be run, by the cost model itself, on the draws of the search; seconds."""
        quantile = self._on_search
        samples = self._samples(values, quantile.key, N_COLUMN)
        return float(samples @ kernel_weights(len(samples), self.p))

    def fresh(self, values: Floats, number: int) -> float:
        """The quantile of what can be run, on draws `number` that the search has not seen, seconds."""
        key = jax.random.fold_in(jax.random.key(self.seed), FRESH_SEEDS + number)  # no set is that of another seed
        samples = self._samples(values, key, N_FRESH)
        return float(np.quantile(samples, self.p))

    def _samples(self, values: Floats, key: Array, n_column: int) -> Floats:
        """Equally likely step times, seconds, sorted; columns stay where those of the job as it stands are."""
        program, setting = self._lowered.program, self.setting(values)
        columns = replica_columns(program, key, n_column)
        graph = self._exact(values, setting)
        inputs = replace(columns.inputs, graph=graph)
        time_s = columns.by_randomisation(column_times(inputs, key, columns.chunks, columns.width))
        end_s = float(exchange_s(graph)) * regime_factors(program, columns.scores)[:, -1]
        shared = replace(shared_of(program, columns.scores), end_s=end_s)
        rng = np.random.default_rng(columns.seed)
        pooled_s, weight = columns.pooled(time_s), columns.weight.ravel()
        samples = step_samples(pooled_s, weight, program.n_replica, shared, N_STEP_SAMPLES, rng)
        return np.asarray(samples * float(setting.times))

    def _exact(self, values: Floats, setting: Setting) -> GraphArrays:
        """The graph under whole layers."""
        layers = self._layers(values)
        job = self.job if layers is None else with_layers(self.job, layers)
        return self._lowered.arrays_of(cost_of(job, setting, layers_move=False), setting.slower)


def _unit(n: int, at: int) -> Floats:
    found = np.zeros(n)
    found[at] = 1.0
    return found
