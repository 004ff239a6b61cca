"""A job lowered once, and its seconds computed again from other numbers of the same hardware, traced or not.

What the schedule decides stays as it is: levels, predecessors, signatures of ops, which axes communicate. So do decisions that
the job as it stands has made for the sampler: where columns are put, and the shape of the residuals' mix. What follows the
hardware is every second of every op, and how much of it varies.

How a quantile of the step time answers to the hardware: a differentiable function of peaks, bandwidths and latencies.

    q(hardware) = sum_i k_i T_(i)(hardware)

T_(i) are the sorted step times of the symmetric method, on random numbers and importance weights that stay as they are for the
job as it stands; k_i weighs the samples around the wanted probability (Epanechnikov's kernel). One order statistic alone would
give the derivative of one or two columns; the average over its neighbours differs from it by a few parts in ten thousand, and its
derivative by far less Monte Carlo error. The derivative is exact for q: columns are piecewise smooth in every duration, and the
weights of the sorted columns do not move with the hardware. Nor do they with the spreads of GPUs and of the network (`Spread`),
which multiply what factors deviate from one.

hardware_sensitivity: what one per cent more of a peak, a bandwidth or a latency does to a quantile of the step time.

The quantile is that of `step_time.step_quantile`. There are few fields, so its derivatives are taken forwards; the Monte Carlo
error is the spread of the derivatives over independent randomisations of the columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..core.arrays import Float, Floats, Values
from ..core.errors import DataError
from ..cost.efficiency import CostCorrection, Efficiency
from ..cost.step import StepCost, step_cost
from ..graph.build import GraphSeconds, LevelTable, Signatures, graph_seconds, level_table, signatures
from ..graph.draws import ScoreChain, typed_key
from ..graph.propagate import GraphArrays
from ..job.job import Job
from ..result.distribution import check_prob
from ..system.hardware import Cluster
from ..workload.base.workload import Workload
from .columns import ColumnInputs, one_chunk
from .inputs import regime_factors, shared_of, unit_step
from .predict import DEFAULT_COLUMNS, N_RANDOMISATION, N_STEP_SAMPLES, ReplicaColumns, replica_columns
from .program import (
    Program,
    by_class,
    by_factor,
    comm_families,
    compute_families,
    end_by_class,
    factor_groups,
    lower,
    op_sd,
    order_of,
)
from .replica_maximum import AlikeReplicas, step_samples

Numbers = Mapping[str, Any]
"""Numbers of hardware by field name, nested as the types are; a pytree."""


@dataclass(frozen=True, eq=False)
class RetimedJob:
    """Job whose graph is made once and filled with the seconds of other hardware.

    Attributes:
        job: as it stands; its own hardware is nominal.
        program: the job lowered with that hardware.
        by_class: whether every kernel class is a factor of its own.
    """

    job: Job
    program: Program
    by_class: bool = False

    @classmethod
    def of(cls, job: Job, *, every_class: bool = False) -> RetimedJob:
        """Lowers `job`; with `every_class`, every kernel class is a factor of its own, as known GPUs need it.

        Raises:
            PlanError: the plan is impossible for the model or the cluster.
            SpecError: no constants for the device.
        """
        program = lower(job)
        return cls(job, by_class(program), by_class=True) if every_class else cls(job, program)

    def arrays(self, numbers: Numbers) -> GraphArrays:
        """The graph on the device with the seconds that these numbers give; as `numbers_of`."""
        return self.arrays_of(self.cost(numbers))

    def cost(self, numbers: Numbers, model: Workload | None = None) -> StepCost:
        """Cost of the step with these numbers, of no numbers as they are; of another `model` of the same shape."""
        cluster, eff = self.job.cluster, self.job.efficiency
        if numbers:
            cluster, eff = with_numbers(cluster, eff, numbers)
        return step_cost(model or self.job.model, cluster, self.job.plan, eff)

    def arrays_of(self, cost: StepCost, slower: Values | None = None) -> GraphArrays:
        """The graph on the device with the seconds of `cost`, compute of every lane `slower` [lane, compute class] times."""
        seconds = graph_seconds(cost, *self._places)
        end_s = end_by_class(seconds.end_compute_s, seconds.compute_s.shape[-1])
        if slower is None:
            return self._placed(seconds, end_s)
        return self._placed(seconds._replace(compute_s=seconds.compute_s * slower[None]), end_s * slower)

    @cached_property
    def _places(self) -> tuple[Signatures, LevelTable]:
        order = order_of(self.job.plan)
        table = level_table(order)
        return signatures(order, table), table

    def _placed(self, seconds: GraphSeconds, end_s: Values) -> GraphArrays:
        """Device form of the seconds, one factor per group of kernel classes; compute that ends the step [lane, class] apart."""
        program, tree = self.program, self.job.variability
        groups = factor_groups(tree, program.classes)
        if self.by_class:
            groups = [[index] for index in range(len(program.classes))]
        comm_s = jnp.concatenate([seconds.comm_s, seconds.send_s[..., None]], axis=-1)
        own = {
            "compute_s": by_factor(seconds.compute_s, groups),
            "call_sd": op_sd(compute_families(tree, program.cost), seconds.compute_s),
            "comm_s": comm_s[..., np.array(program.arrays.axes, dtype=int)],
            "comm_sd": op_sd(comm_families(tree, program.cost), comm_s),
            "lag_s": seconds.lag_s,
            "end_compute_s": by_factor(end_s, groups),
            "end_comm_s": seconds.end_comm_s,
        }
        return replace(program.arrays, **{name: jnp.asarray(value, float) for name, value in own.items()})


def numbers_of(cluster: Cluster, eff: Efficiency | None = None) -> Numbers:
    """Every number of the hardware that time depends on; those of `eff` where it is given.

    Args:
        cluster: its peaks, bandwidths and latencies may be traced.
        eff: constants of the device, which may be traced.
    """
    device = cluster.device
    found: dict[str, Any] = {
        "peak_flops_per_s": dict(device.peak_flops_per_s),
        "hbm_bytes_per_s": device.hbm_bytes_per_s,
        "tiers": [{name: getattr(tier, name) for name in _TIER} for tier in cluster.tiers],
    }
    if eff is not None:
        found["efficiency"] = {name: getattr(eff, name) for name in _EFFICIENCY}
        found["correction"] = {name: getattr(eff.correction, name) for name in _CORRECTION}
    return found


def on_device(numbers: Numbers) -> Numbers:
    """Returns the numbers as arrays of JAX, so that a compiled function does not depend on their values."""
    return jax.tree.map(lambda value: jnp.asarray(value, float), numbers)


def with_numbers(cluster: Cluster, eff: Efficiency, numbers: Numbers) -> tuple[Cluster, Efficiency]:
    """Returns the hardware with other numbers; those that `numbers` leaves out stay.

    Raises:
        DataError: another number of tiers than the cluster has.
    """
    tiers = numbers["tiers"]
    if len(tiers) != len(cluster.tiers):
        raise DataError(f"the hardware has {len(tiers)} tiers, but the job was lowered on {len(cluster.tiers)}")
    device = replace(
        cluster.device, peak_flops_per_s=numbers["peak_flops_per_s"], hbm_bytes_per_s=numbers["hbm_bytes_per_s"]
    )
    changed = tuple(replace(tier, **own) for tier, own in zip(cluster.tiers, tiers, strict=True))
    if "efficiency" in numbers:
        eff = replace(eff, correction=CostCorrection(**numbers["correction"]), **numbers["efficiency"])
    return replace(cluster, device=device, tiers=changed), eff


_TIER = ("bytes_per_s", "latency_s", "oversubscription")
_CORRECTION = tuple(item.name for item in fields(CostCorrection))
_EFFICIENCY = tuple(
    item.name
    for item in fields(Efficiency)
    if item.name not in ("gemm_tiles", "gemm_recipes", "attention_kernels", "correction")
)


def exchange_s(arrays: GraphArrays, late: Values = np.ones(1)) -> Values:
    """Exposed communication that ends the step, of the busiest lane, seconds; `late` [lane] times as long by slow links."""
    return (arrays.end_comm_s * late).max()


class Spread(NamedTuple):
    """Factors by which deviations from the mean grow; 1: as the job's variability has them, 0: none. May be traced.

    Attributes:
        clock: of persistent factors of GPUs and of nodes, in all compute classes.
        network: of links, of the network's state in a step, and of the residuals of communication from call to call.
    """

    clock: Values | float = 1.0
    network: Values | float = 1.0

    def of(self, inputs: ColumnInputs) -> ColumnInputs:
        """Returns inputs of columns whose factors vary as much; the same scores have the same ranks."""
        graph = inputs.graph
        calm = replace(graph, comm_sd=graph.comm_sd * self.network, p2p_sd=graph.p2p_sd * self.network)
        return replace(
            inputs,
            graph=calm,
            gpu=tuple(_stretched(chain, self.clock) for chain in inputs.gpu),
            node=tuple(_stretched(chain, self.clock) for chain in inputs.node),
            link=tuple(_stretched(chain, self.network) for chain in inputs.link),
            regime=1.0 + self.network * (inputs.regime - 1.0),
        )


def _stretched(chain: ScoreChain, factor: Values | float) -> ScoreChain:
    """A factor of mean one whose deviations are `factor` times as large."""
    return ScoreChain(1.0 + factor * (chain.offset - 1.0), chain.slope * factor, chain.knots, chain.bends * factor)


Q = TypeVar("Q", bound="StepQuantile")
HALF_WIDTH = 0.02  # in probability, of the samples that a quantile averages over


@dataclass(frozen=True, eq=False)
class StepQuantile:
    """A quantile of a job's step time as a function of the hardware.

    Attributes:
        lowered: the job, its graph made once.
        columns: replica columns as the job stands.
        p: probability of the quantile.
        key: of the draws.
    """

    lowered: RetimedJob
    columns: ReplicaColumns
    p: float
    key: Array

    @classmethod
    def of(cls: type[Q], job: Job, p: float, key: Array | int, n_samples: int = DEFAULT_COLUMNS) -> Q:
        """Lowers `job` and draws its columns.

        Raises:
            DataError: `p` is not between 0 and 1.
            PlanError: the plan is impossible for the model or the cluster.
        """
        if not 0.0 < check_prob(p) < 1.0:
            raise DataError(f"p = {p}, but a quantile needs a probability between 0 and 1")
        lowered, key = RetimedJob.of(job), typed_key(key)
        return cls(lowered, replica_columns(lowered.program, key, n_samples), p, key)

    def on(self, numbers: Numbers, spread: Spread = Spread()) -> Float[Array, ""]:
        """Seconds that a fraction `p` of steps does not exceed on hardware with these numbers and spreads, which may be traced.

        Raises:
            DataError: another number of tiers than the job's cluster has.
        """
        return self._compiled(on_device(numbers), Spread(*(jnp.asarray(own, float) for own in spread)))

    @cached_property
    def _compiled(self) -> Callable[[Numbers, Spread], Float[Array, ""]]:
        return jax.jit(lambda numbers, spread: self.quantile(*self.column_times(numbers, spread)))

    def column_times(
        self, numbers: Numbers, spread: Spread | None = None
    ) -> tuple[Float[Array, "batch score column"], Float[Array, " score"]]:
        """Times of the columns of every randomisation, and the exchange that ends the step, seconds.

        Args:
            numbers: of the hardware, as in `numbers_of`.
            spread: None: as the job's variability has it.
        """
        return self.times_of(self.lowered.arrays(numbers), spread=spread)

    def times_of(
        self, arrays: GraphArrays, late: Values = np.ones(1), spread: Spread | None = None
    ) -> tuple[Float[Array, "batch score column"], Float[Array, " score"]]:
        """Times of the columns of every randomisation, and the exchange that ends the step, of a graph with changed seconds.

        Args:
            arrays: of the graph.
            late: [lane] factor by which slow links lengthen the end of the step.
            spread: None: as the job's variability has it.

        Notes: of the end of the step only its residual is drawn later, which is why that is stretched here.
        """
        program, columns = self.lowered.program, self.columns
        inputs = replace(columns.inputs, graph=arrays)
        regime = regime_factors(program, columns.scores)[:, -1]
        if spread is not None:
            inputs, regime = spread.of(inputs), (1.0 + spread.network * (regime - 1.0)) * spread.network
        times = lax.map(lambda chunk: one_chunk(inputs, self.key, chunk, columns.width), columns.chunks)
        time_s = columns.by_randomisation(times)
        return time_s, exchange_s(arrays, late) * regime

    def quantile(
        self,
        time_s: Float[Array, "batch score column"],
        end_s: Float[Array, " score"],
        others: Sequence[AlikeReplicas] = (),
    ) -> Float[Array, ""]:
        """The quantile from the columns of all randomisations together, seconds; some replicas may be `others`."""
        pooled_s, weight = self.columns.pooled(time_s), self.columns.weight.ravel()
        return self._quantile(pooled_s, weight, end_s, N_STEP_SAMPLES, others)

    def quantiles(
        self, time_s: Float[Array, "batch score column"], end_s: Float[Array, " score"]
    ) -> Float[Array, " batch"]:
        """The quantile from the columns of each randomisation, seconds; for the Monte Carlo error."""
        one = functools.partial(self._quantile, end_s=end_s, n=N_STEP_SAMPLES // N_RANDOMISATION)
        return jax.vmap(one)(time_s, jnp.asarray(self.columns.weight, float))

    def _quantile(
        self, time_s: Values, weight: Values, end_s: Values, n: int, others: Sequence[AlikeReplicas] = ()
    ) -> Values:
        """Quantile of columns [score, column] by `n` steps, drawn alike in every call."""
        shared = replace(shared_of(self.lowered.program, self.columns.scores), end_s=end_s)
        rng, n_replica = np.random.default_rng(self.columns.seed), self.lowered.program.n_replica
        n_alike = n_replica - sum(own.n for own in others)
        samples = step_samples(time_s, weight, n_alike, shared, n, rng, others)
        return (samples * kernel_weights(n, self.p)).sum()


def noise_free_step(job: Job) -> Callable[..., Float[Array, ""]]:
    """The step time without any variability as a function of the hardware that JAX can differentiate.

    Args:
        job: as it stands; its schedule stays as it is here.

    Returns:
        A function of a `Cluster` (and an `Efficiency`), seconds.

    Raises:
        PlanError: the plan is impossible for the model or the cluster.
    """
    lowered = RetimedJob.of(job)
    seconds = jax.jit(lambda numbers: unit_step(lowered.arrays(numbers)))
    return lambda cluster, eff=None: seconds(on_device(numbers_of(cluster, eff)))


def kernel_weights(n: int, p: float) -> Floats:
    """Weights of n sorted samples around probability `p`, that sum to one, [sample]; narrower near the ends."""
    width = max(min(HALF_WIDTH, 0.5 * p, 0.5 * (1.0 - p)), 1.0 / n)
    weight = np.maximum(1.0 - (((np.arange(n) + 0.5) / n - p) / width) ** 2, 0.0)
    return weight / weight.sum()


PROBED = 0.01  # change of a field that tells whether the step depends on it at all


@dataclass(frozen=True)
class FieldSensitivity:
    """Effect of one number of the hardware on a quantile of the step time.

    Attributes:
        change: d log(quantile) / d log(field): -0.3 says that 1% more shortens the step by 0.3%.
        error: Monte Carlo standard error of it.
    """

    change: float
    error: float


def hardware_sensitivity(
    job: Job, p: float = 0.95, *, key: Array | int, n_samples: int = DEFAULT_COLUMNS
) -> dict[str, FieldSensitivity]:
    """Returns the sensitivity of the p-quantile of the step time to each number of the hardware, largest first.

    Args:
        job: model, cluster, plan and variability.
        p: between 0 and 1.
        key: typed PRNG key.
        n_samples: replica columns.

    Returns:
        field -> sensitivity, for the peaks in use ("peak bf16"), the device memory's bandwidth ("hbm"), and the bandwidth and
        latency of every tier ("nvlink bandwidth", "nvlink latency"). Fields that the step does not depend on are left out.

    Raises:
        DataError: `p` is not between 0 and 1.
        PlanError: the plan is impossible for the model or the cluster.
    """
    quantile = StepQuantile.of(job, p, key, n_samples)
    fields = [(name, path) for name, path in _fields(job.cluster) if matters(job, path)]
    if not fields:
        return {}

    def log_quantiles(log_factor: Array) -> Array:
        numbers = on_device(numbers_of(job.cluster))
        for (_, path), own in zip(fields, log_factor, strict=True):
            numbers = _scaled(numbers, path, jnp.exp(own))
        times = quantile.column_times(numbers)
        return jnp.log(jnp.append(quantile.quantiles(*times), quantile.quantile(*times)))

    slopes = np.asarray(jax.jit(jax.jacfwd(log_quantiles))(jnp.zeros(len(fields))), dtype=np.float64)
    errors = slopes[:-1].std(axis=0, ddof=1) / np.sqrt(N_RANDOMISATION)
    found = {
        name: FieldSensitivity(float(change), float(error))
        for (name, _), change, error in zip(fields, slopes[-1], errors, strict=True)
    }
    return dict(sorted(found.items(), key=lambda item: -abs(item[1].change)))


Path = tuple[str | int, ...]
"""Where one number of the hardware stands in `Numbers`."""


def _scaled(value: Any, path: Path, factor: Any) -> Any:
    """Numbers with the one at `path` times `factor`."""
    if not path:
        return value * factor
    own: Any = dict(value) if isinstance(value, Mapping) else list(value)
    own[path[0]] = _scaled(own[path[0]], path[1:], factor)
    return own


def _fields(cluster: Cluster) -> Iterator[tuple[str, Path]]:
    """Names for people, which tiers may share, and where their numbers stand."""
    for dtype in cluster.device.peak_flops_per_s:
        yield f"peak {dtype}", ("peak_flops_per_s", dtype)
    yield "hbm", ("hbm_bytes_per_s",)
    for index, tier in enumerate(cluster.tiers):
        for name, field in (("bandwidth", "bytes_per_s"), ("latency", "latency_s")):
            yield f"{tier.name} {name}", ("tiers", index, field)


def matters(job: Job, path: Path) -> bool:
    """Whether any second of the step changes with a number of the hardware, by the cost on the host."""
    numbers, costs = numbers_of(job.cluster), []
    for own in (numbers, _scaled(numbers, path, 1.0 + PROBED)):
        cluster, eff = with_numbers(job.cluster, job.efficiency, own)
        cost = step_cost(job.model, cluster, job.plan, eff)
        costs.append((cost.compute_s, cost.comm_s, cost.p2p_s, cost.end_compute_s, cost.end_comm_s))
    return any(np.any(a != b) for a, b in zip(*costs, strict=True))
