"""Tunes continuous fields by pathwise gradients of a quantile of the step time: bandwidths, power, layers, batch, checkpoints.

All fields move together, as logarithms of their change, by Adam (Optax) on draws that stay as they are; budgets are kept at every
step. What is found is rounded to what can be run. Whole layers and whole micro-batches are then moved from number to number while
that helps, each candidate evaluated by the cost model itself and not by the line through it, and only splits whose memory fits;
the other fields descend once more next to them.

The gain over the job as it stands is that on draws that the search has not seen, both settings on the same, with an interval.
Where rounding leaves nothing of the gain, the job stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..placement.optimisers import descend
from ..placement.splits import even_splits, layers_fit, with_layers, with_micro_batches
from ..result.distribution import check_prob
from ..simulate.inputs import regime_factors, shared_of
from ..simulate.predict import N_STEP_SAMPLES, replica_columns
from ..simulate.replica_maximum import AlikeReplicas, step_samples
from ..simulate.sensitivity import RetimedJob, StepQuantile, kernel_weights, on_device
from .racing import N_SEEDS, half_width
from .report import TunedNumber, TuneReport
from .stated_fleet import KnownColumns, StatedFleet
from .tuned_fields import FIELDS, Setting, TunedAxis, TuneLimits, cost_of, own_setting

N_STEP = 80
RATE = 0.03  # of Adam, in logarithms; falls to nothing
N_COLUMN = 256  # of the search
N_FRESH = 2048  # of each set of fresh draws
N_KNOWN = (
    (16, 64),
    (64, 1024),
)  # columns of a kind of replicas with known GPUs, between; of the search, and of fresh draws
MOST_KNOWN = 1024, 8192  # of all kinds together, where each has no more than the least
MOVES = 12  # between two numbers
N_DONOR, N_RECEIVER = 3, 16  # numbers that a move is tried between: slopes do not tell which whole unit helps
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
    """Returns the values of continuous `fields` that minimise the p-quantile of the step time, and their gain on fresh draws.

    Args:
        job: a Job, a job file, or the name of a shipped example; its values are the start, and what gains are measured against.
        fields: of `tuned_fields.FIELDS`: bandwidth, power, layers, share, checkpoint.
        p: between 0 and 1.
        limits: budgets, prices, slowdowns of GPUs, and how often the job is interrupted.
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
    tuning = Tuning.of(own, fields, p, seed, limits)
    best = tuning.best(progress)
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
    """Makes the axes of the numbers of every field.

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
        fleet: stated slowdowns of the job's GPUs.
    """

    job: Job
    axes: tuple[TunedAxis, ...]
    p: float
    seed: int
    fleet: StatedFleet

    @classmethod
    def of(cls, job: Job, fields: Sequence[str], p: float, seed: int, limits: TuneLimits) -> Tuning:
        """Makes the tuning of the numbers of the fields.

        Raises:
            DataError: as `axes_of`, or slowdowns of what the job does not have.
        """
        return cls(job, axes_of(job, fields, limits), p, seed, StatedFleet.of(job, limits.slowdowns))

    @cached_property
    def start(self) -> Floats:
        """The job's own numbers."""
        return np.concatenate([axis.start for axis in self.axes])

    def parts(self, values: Values) -> list[Values]:
        """Splits the values into those of each axis."""
        edges = np.cumsum([0, *(len(axis.start) for axis in self.axes)])
        return [values[low:high] for low, high in pairwise(edges)]

    def setting(self, values: Values) -> Setting:
        """Returns the setting that the numbers give."""
        found = own_setting(self.job)
        for axis, own in zip(self.axes, self.parts(values), strict=True):
            found = axis.enter(found, own)
        return found

    def _moves(self, field: str) -> bool:
        return any(axis.field == field for axis in self.axes)

    @property
    def _lowered(self) -> RetimedJob:
        return self.fleet.lowered(self.job.plan.n_micro_batch)

    @cached_property
    def _on_search(self) -> StepQuantile:
        key, program = jax.random.key(self.seed), self._lowered.program
        columns = replica_columns(program, key, N_COLUMN, self.fleet.links)
        return StepQuantile(self._lowered, columns, self.p, key)

    @cached_property
    def _known(self) -> KnownColumns | None:
        return self.fleet.columns(self._n_known(0), jax.random.key(self.seed))

    def _n_known(self, fresh: int) -> int:
        each = MOST_KNOWN[fresh] // max(len(self.fleet.others), 1)
        return 1 << int(np.clip(each, *N_KNOWN[fresh])).bit_length() - 1

    def values_of(self, change: Array) -> Array:
        """Numbers at logarithms of their change, inside bounds and budgets."""
        parts = zip(self.axes, self.parts(change), strict=True)
        return jnp.concatenate([jnp.asarray(axis.values(own)) for axis, own in parts])

    def smooth(self, values: Array) -> Array:
        """The quantile on the draws of the search, seconds; may be differentiated."""
        setting = self.setting(values)
        setting = setting._replace(numbers=on_device(setting.numbers))
        cost, quantile, fleet = (
            cost_of(self.job, setting, layers_move=self._moves("layers")),
            self._on_search,
            self.fleet,
        )
        grown = 1.0 + fleet.growth * (setting.share - 1.0) if self._moves("share") else np.ones(len(fleet.n_of_kind))
        drawn = 0 if fleet.drawn is None else fleet.drawn
        of_lane, _ = fleet.slower(setting.slower)
        time_s, end_s = quantile.times_of(
            self._lowered.arrays_of(cost, of_lane[drawn]), fleet.late(self._lowered.program)
        )
        others: list[AlikeReplicas] = []
        if self._known is not None:
            known_s = fleet.traced(self._known, cost, setting.slower, quantile.columns.scores)
            each = zip(fleet.others, known_s, strict=True)
            weight = np.ones(self._known.width)
            others = [AlikeReplicas(own_s * grown[k], weight, int(fleet.n_of_kind[k])) for k, own_s in each]
        return quantile.quantile(time_s * grown[drawn], end_s, others) * setting.times

    @cached_property
    def slope(self) -> Callable[[Values], tuple[Array, Array]]:
        """Returns the quantile on the draws of the search, seconds, and its derivatives; compiled once for all searches."""
        _ = self._on_search, self._known, self.fleet.growth if self._moves("share") else None  # not while it is traced
        return jax.jit(jax.value_and_grad(self.smooth))

    def best(self, progress: Progress = silent) -> Floats:
        """Returns the best numbers that can be run.

        Shares between whole layers are not to be had, and what else was found next to them (power of a stage with 5.6 layers) is
        not best for whole ones. So a second descent moves the rest alone, next to the splits that can be run.
        """
        found = self.rounded(self.descended(progress))
        split = np.concatenate([np.full(len(axis.start), axis.is_split) for axis in self.axes])
        if split.all() or not split.any():
            return found
        again = self.rounded(self.descended(progress, np.where(split, found, np.nan)))
        return min(found, again, key=self.on_search)

    def descended(self, progress: Progress = silent, held: Floats | None = None) -> Floats:
        """Descends along gradients from the job's own numbers, inside bounds and budgets; returns the best numbers of the way.

        Args:
            held: numbers that stay, NaN for those that move; None: all move.
        """
        best: list[_Best] = []
        stays = np.full(len(self.start), np.nan) if held is None else held

        def at(change: Array) -> Array:
            return jnp.where(np.isnan(stays), self.values_of(change), np.nan_to_num(stays))

        values_at, by_change = jax.jit(at), jax.jit(lambda change, slope: jax.vjp(at, change)[1](slope)[0])

        def gradient(change: Array, step: int) -> Array:
            progress(step / N_STEP, "gradients")
            value, slope = self.slope(values := values_at(change))
            if not best or float(value) < best[0].value:
                best[:] = [_Best(float(value), np.asarray(values, np.float64))]
            return by_change(change, slope / value)  # of the logarithm

        descend(gradient, jnp.zeros(len(self.start)), N_STEP, optax.cosine_decay_schedule(RATE, N_STEP))
        return best[0].values

    def rounded(self, values: Floats) -> Floats:
        """Returns numbers near `values` that can be run; the job's own numbers where those are no better."""
        near = np.concatenate([
            axis.rounded(own) for axis, own in zip(self.axes, self.parts(values), strict=True)
        ])  # fmt: skip
        candidates = [own for own in (self.start, near, self._with_own_splits(near)) if self._fits(own)]
        known = {own.tobytes(): self.on_search(own) for own in candidates}
        best = min(candidates or [self.start], key=lambda own: known.get(own.tobytes(), np.inf))
        best_s = known.get(best.tobytes(), np.inf)
        for number, axis in enumerate(self.axes):
            if axis.is_split:
                best, best_s = self._polished(number, best, best_s)
        return best

    def _with_own_splits(self, values: Floats) -> Floats:
        parts = zip(self.axes, self.parts(values), strict=True)
        return np.concatenate([axis.start if axis.is_split else own for axis, own in parts])

    def _polished(self, number: int, values: Floats, best_s: float) -> tuple[Floats, float]:
        """Moves of units between numbers of an axis while they help; from those that hurt most to those that hurt least."""
        axis, edges = self.axes[number], np.cumsum([0, *(len(axis.start) for axis in self.axes)])
        own, grain = slice(int(edges[number]), int(edges[number + 1])), np.broadcast_to(axis.grain, axis.start.shape)
        unit = np.diag(grain)
        for _ in range(MOVES):
            order = np.arange(len(grain))
            if len(order) > N_DONOR:
                order = np.argsort(np.asarray(self.slope(values)[1])[own] * grain, kind="stable")
            donors = [a for a in order[::-1] if values[own][a] - grain[a] >= axis.least[a] - 1e-9][:N_DONOR]
            near = []
            for a, b in ((a, b) for a in donors for b in order[:N_RECEIVER] if a != b):
                for n in axis.units(values[own], int(a), int(b)):
                    near.append(values.copy())
                    near[-1][own] += n * (unit[b] - unit[a])
            found = [(self.on_search(own), index) for index, own in enumerate(near) if self._fits(own)]
            if not found or min(found)[0] >= best_s:
                break
            best_s, index = min(found)
            values = near[index]
        return values, best_s

    def _fits(self, values: Floats) -> bool:
        """Whether the splits are possible and fit into memory, or need no more than the job's own."""
        if not any(axis.is_split for axis in self.axes):
            return True
        layers = self._layers(values) or even_splits(self.job, 1).layers
        most = max(part.micro_batches for part in self.fleet.parts(self.setting(values).share))
        return layers_fit(self.job, layers, most)

    def _layers(self, values: Floats) -> tuple[int, ...] | None:
        for axis, own in zip(self.axes, self.parts(values), strict=True):
            if axis.field == "layers":
                return tuple(round(float(n)) for n in own)
        return None

    def on_search(self, values: Floats) -> float:
        """Quantile at numbers that can be run, by the cost model itself, on the draws of the search; seconds."""
        quantile = self._on_search
        samples = self._samples(values, quantile.key, N_COLUMN, self._n_known(0))
        return float(samples @ kernel_weights(len(samples), self.p))

    def fresh(self, values: Floats, number: int) -> float:
        """Quantile at numbers that can be run, on draws `number` that the search has not seen, seconds."""
        key = jax.random.fold_in(jax.random.key(self.seed), FRESH_SEEDS + number)  # no set is that of another seed
        samples = self._samples(values, key, N_FRESH, self._n_known(1))
        return float(np.quantile(samples, self.p))

    def _samples(self, values: Floats, key: Array, n_column: int, n_known: int) -> Floats:
        """Equally likely step times, seconds, sorted; columns stay where those of the job as it stands are."""
        program, setting, fleet = self._lowered.program, self.setting(values), self.fleet
        columns, layers = replica_columns(program, key, n_column, fleet.links), self._layers(values)
        job = self.job if layers is None else with_layers(self.job, layers)
        made: list[AlikeReplicas] = []
        for part in sorted(fleet.parts(setting.share), key=lambda part: part.kind != fleet.drawn):
            cost = cost_of(with_micro_batches(job, part.micro_batches), setting, layers_move=False)
            made.append(fleet.exact(part, cost, setting.slower, key, columns, n_known))
        first = made.pop(0) if fleet.drawn is not None else made[0]._replace(n=0)
        end_s = float((cost.end_comm_s * fleet.late(program)).max()) * regime_factors(program, columns.scores)[:, -1]
        shared = replace(shared_of(program, columns.scores), end_s=end_s)
        rng = np.random.default_rng(columns.seed)
        samples = step_samples(*first, shared, N_STEP_SAMPLES, rng, made)
        return np.asarray(samples * float(setting.times))
