"""step_time and step_quantile: slowdowns of GPUs, links, hardware and work in, times of steps out; pure functions of them all.

What is given is taken as it is, and may be traced by JAX, one or several together. What is not given stands at its mean, or is
drawn from the job's variability where there is a key. Steps are independent: every sample has all replicas, each a column of the
engine; columns are run a few hundred at a time, so that their state stays in the cache, under one key each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import Tracer

from ..core.arrays import Float, Int, Values, namespace
from ..core.errors import DataError
from ..core.kernels import COMPUTE_CLASSES, LINKS, NETWORK_AXES
from ..core.registry import did_you_mean
from ..cost.efficiency import Efficiency
from ..cost.step import StepCost
from ..graph.build import Portion, WorkTerms, work_terms
from ..graph.draws import ScoreChain, chain_of, family_chain, key_words, typed_key
from ..graph.levels import level_table
from ..graph.members import ExplicitMembers
from ..graph.propagate import CommFactors, GraphArrays, WorkFactors, propagate
from ..job.job import Job
from ..plan.plan import device_layout
from ..system.hardware import Cluster
from ..variability.families import Family
from .columns import Chunk, ColumnInputs, KnownLinks, one_chunk
from .inputs import column_inputs, unit_network
from .links import LinkFactors, link_factors
from .predict import CHUNK_COLUMNS, DEFAULT_COLUMNS
from .program import Program, by_class, lower, order_of
from .sensitivity import Numbers, RetimedJob, Spread, StepQuantile, kernel_weights, numbers_of, on_device
from .work import PROBE, Work, with_busier_rank

Slowdown: TypeAlias = Float[Array | np.ndarray, "device sample"]
Given: TypeAlias = Any  # an array, or a mapping of arrays by name
WORK = ("tokens", "attention", "experts")
FEWEST_COLUMNS = 64  # of a chunk of steps without draws, which do not depend on it
POPULARITY = 1 << 16  # number of the stream that draws it


def step_time(
    job: Job,
    slowdown: Slowdown | Mapping[str, Slowdown] | None = None,
    *,
    links: Given = None,
    hardware: Cluster | Numbers | None = None,
    work: Given = None,
    key: Array | int | None = None,
) -> Float[Array, " sample"]:
    """Step time of every sample, seconds, for given slowdowns, links, hardware and work.

    Args:
        job: model, cluster, plan; its variability is used where something is drawn.
        slowdown: [device, sample] factor of every GPU's compute (1 = nominal, 1.05 = 5% slower), or a mapping from kernel class
            (gemm, attention, memory, and others that the model uses) to such an array. Devices count along the plan's axis
            order, the first axis fastest.
        links: [node, sample] factor of the ports of every node to others, or a mapping from nic (these) and link (links within
            the node) to such an array. Communication takes the slowest of the nodes that its group contains.
        hardware: the job's cluster with other peaks, bandwidths and latencies, or such numbers (`numbers_of`).
        work: [replica, micro_batch, sample] factor of the work that a micro-batch holds (1 = mean), with which products and
            memory-bound kernels go, the optimizer does not; or a mapping from tokens, attention (fused scores, which go with
            the sum of squared lengths) and experts ([replica, chunk or 1, micro_batch, sample], of the busiest rank) to such
            arrays. What has none of its own goes with the tokens.
        key: of the draws of all that is not given: residuals, persistent factors, links, network, work and step factors, stalls.
            None: nothing is drawn.

    Raises:
        PlanError: the plan is impossible for the model or the cluster.
        DataError: unknown name, a shape that does not match the job, or a factor that is not a positive number (which cannot be
            seen of one that JAX traces).

    Notes:
        Sample axes are of one length, or of 1, which stands for all. Differentiable in everything that is given; jit, grad and
        vmap give the numbers of a plain call, whichever comes first. Traced hardware is given as `hardware`, not in the job.
    """
    return steps_of(StepGiven(slowdown, links, hardware, work), job, key)


class StepGiven(NamedTuple):
    """Arguments that fix parts of `step_time`'s draws; None where they are drawn."""

    slowdown: Given = None
    links: Given = None
    hardware: Cluster | Numbers | None = None
    work: Given = None

    @property
    def n_sample(self) -> int:
        """Samples of arrays that have more than one; 0 where none has."""
        arrays = jax.tree.leaves((self.slowdown, self.links, self.work))
        return max((own.shape[-1] for own in arrays if np.ndim(own) > 1 and own.shape[-1] > 1), default=0)


def steps_of(
    given: StepGiven, job: Job, key: Array | int | None, n_sample: int | None = None
) -> Float[Array, " sample"]:
    """Step times [sample] of the given inputs, `n_sample` where these have one sample for all; None: as many as are given."""
    lowered, plan = _lowered(lower(job)), job.plan
    classes = lowered.retimed.program.classes
    slowdown = _named("slowdown", "kernel class", given.slowdown, classes)
    links = _named("links", "kind", given.links, LINKS, "nic")
    work = _named("work", "kind", given.work, WORK, "tokens")
    _check("slowdown", slowdown, {"GPU": (plan.n_devices,)})
    _check("links", links, {"node": (-(-plan.n_devices // job.cluster.node_size),)})
    per_micro_batch = {"micro-batch": (plan.n_micro_batch,)}
    _check("work", work, {"replica": (plan.n_replica,), **per_micro_batch}, {"chunk": (1, plan.n_chunk)})
    n_samples = {f"{k}": v.shape[-1] for part in (slowdown, links, work) for k, v in part.items() if v.shape[-1] > 1}
    if len({*n_samples.values(), *([] if n_sample is None else [n_sample])}) > 1:
        raise DataError(f"every input needs as many samples as the others, or one, got {n_samples}")
    if not (slowdown or links or work or n_sample):
        raise DataError("no slowdown, links or work given, so that the number of samples is not known")
    if "experts" in work and getattr(job.model, "moe", None) is None:
        raise DataError(f"work[experts]: model {job.model.name} has no experts")
    arrays, terms = lowered.retimed_by(given.hardware, tuple(name for name in WORK if name in work))
    dtype, absent = arrays.compute_s.dtype, 1.0 if key is None else np.nan
    excess, n = _excess(work, plan.n_chunk, dtype) if work else None, n_sample or max([1, *n_samples.values()])
    words = None if key is None else key_words(typed_key(key))
    if words is not None and excess is None and lowered.retimed.program.work is not None:
        excess, terms = _drawn_work(lowered.retimed.program.work, words, plan.n_replica, n), lowered.inputs.work
    parts = _Parts(
        _by_factor(slowdown, classes, absent, dtype)
        if isinstance(given.slowdown, Mapping)
        else _first(slowdown, dtype),
        _of_links(job, links, dtype) if links else None,
        excess,
        terms,
    )
    inputs = lowered.inputs if key is not None else replace(lowered.inputs, compute=None, comm=None)
    laws = lowered.laws._replace(popularity=None) if work else lowered.laws
    return _steps(replace(inputs, graph=arrays), laws, words, device_layout(plan), parts, n)


@dataclass(frozen=True, eq=False)
class QuantileOfSteps(StepQuantile):
    """A quantile of a job's step time as a function of all that `step_time` takes; made by `step_quantile`."""

    def __call__(
        self,
        cluster: Cluster | None = None,
        eff: Efficiency | None = None,
        *,
        hardware: Cluster | Numbers | None = None,
        slowdown: Given = None,
        links: Given = None,
        work: Given = None,
        spread: Spread | None = None,
    ) -> Float[Array, ""]:
        """Seconds that a fraction `p` of steps does not exceed; differentiable in everything that is given.

        Args:
            cluster: as `hardware`.
            eff: the job's constants with other numbers, with a cluster; None: as calibrated for the job.
            hardware, slowdown, links, work: as in `step_time`; what is not given is drawn, always alike.
            spread: of GPUs and of the network, with hardware alone.

        Raises:
            DataError: another number of tiers than the job's cluster has, a spread with slowdowns, or as `step_time`.
        """
        job, given = self.lowered.job, cluster if hardware is None else hardware
        if given is None or isinstance(given, Cluster):
            given = None if given is None and eff is None else numbers_of(given or job.cluster, eff)
        if slowdown is None and links is None and work is None:
            return self.on(numbers_of(job.cluster) if given is None else given, spread or Spread())
        if spread is not None:
            raise DataError("spread: of GPUs and links that are drawn, not with slowdown, links or work")
        steps = StepGiven(slowdown, links, given, work)
        samples = steps_of(steps, job, self.key, steps.n_sample or self.columns.weight.size)
        return (jnp.sort(samples) * kernel_weights(len(samples), self.p)).sum()


def step_quantile(job: Job, p: float = 0.95, *, key: Array | int, n_samples: int = DEFAULT_COLUMNS) -> QuantileOfSteps:
    """The p-quantile of the step time as a function that JAX can differentiate: of hardware, slowdowns, links and work.

    Args:
        job: as it stands: its schedule, and where columns are put, stay as they are here.
        p: between 0 and 1.
        key: typed PRNG key or an integer seed; with the key of a prediction, its quantile up to the average over neighbours.
        n_samples: replica columns; steps where slowdowns, links or work are given.

    Returns:
        A function of a `Cluster` (and an `Efficiency`), seconds; also of slowdown, links and work, which may have one sample or
        as many as steps are wanted.

    Raises:
        DataError: `p` is not between 0 and 1.
        PlanError: the plan is impossible for the model or the cluster.

    Notes:
        Of the hardware alone by the symmetric method; where `predict` falls back to brute force, this does not.

    Example:
        p95 = step_quantile(job, 0.95, key=jax.random.key(0))

        def seconds(bandwidth):
            return p95(replace(job.cluster, device=replace(job.cluster.device, hbm_bytes_per_s=bandwidth)))

        jax.grad(seconds)(3.35e12)
    """
    return QuantileOfSteps.of(job, p, key, n_samples)


def _named(owner: str, what: str, given: Given, known: Sequence[str], plain: str = "") -> dict[str, Values]:
    """Arrays by name; a single one is called `plain`, or by all names that are known."""
    if given is None:
        return {}
    named = given if isinstance(given, Mapping) else dict.fromkeys([plain] if plain else known, given)
    if not named:
        raise DataError(f"{owner}: no {what} given; give at least one of {', '.join(known)}")
    for name in named:
        if name not in known:
            raise DataError(f"{owner}: unknown {what} {name!r}{did_you_mean(name, known)}")
    xp = namespace(named)
    return {name: xp.asarray(value) for name, value in named.items()}


Axes: TypeAlias = Mapping[str, tuple[int, ...]]  # name -> sizes that it may have


def _check(owner: str, named: Mapping[str, Values], axes: Axes, of_experts: Axes | None = None) -> None:
    """Refuses shapes of other jobs, and factors that nothing has, where they are known."""
    for name, value in named.items():
        own = axes
        if name == "experts":
            (first, sizes), *rest = axes.items()
            own = {first: sizes, **(of_experts or {}), **dict(rest)}
        if value.ndim != len(own) + 1 or any(
            n not in sizes for n, sizes in zip(value.shape, own.values(), strict=False)
        ):
            wanted = ", ".join(f"{axis}: {' or '.join(map(str, sizes))}" for axis, sizes in own.items())
            raise DataError(f"{owner}[{name}] has shape {value.shape}, but the job needs [{wanted}, sample]")
        if not isinstance(value, Tracer):
            _check_positive(owner, name, np.asarray(value), [*own])


def _check_positive(owner: str, name: str, value: np.ndarray, axes: Sequence[str]) -> None:
    wrong = np.argwhere(~((value > 0) & np.isfinite(value)))
    if len(wrong):
        at = tuple(int(index) for index in wrong[0])
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        place = ", ".join(f"{axis} {index}" for axis, index in zip(axes, at, strict=False))
        what = "slowdown" if owner == "slowdown" else f"factor of {owner}"
        raise DataError(
            f"{owner}[{name}]: {float(value[at]):g} of {place} in sample {at[-1]}{more}, but a {what} is a positive number "
            "(1 = nominal, 1.05 = 5% more)"
        )


class _Parts(NamedTuple):
    """The fixed arguments in the engine's form; None where they are not given.

    Attributes:
        slowdown: [factor or 1, device, sample], NaN where it is drawn.
        links: factors of communication; sample last.
        excess: [factor_row, replica, sample] factors of work less one.
        terms: which of these every op goes with.
    """

    slowdown: Values | None
    links: LinkFactors | None
    excess: Values | None
    terms: WorkTerms | None


def _first(slowdown: Mapping[str, Values], dtype: Any) -> Values | None:
    """Slowdowns that all classes share, [1, device, sample]."""
    return next((value.astype(dtype)[None] for value in slowdown.values()), None)


def _by_factor(slowdown: Mapping[str, Values], classes: Sequence[str], absent: float, dtype: Any) -> Values:
    """Slowdowns by class, [class, device, sample]."""
    xp = namespace(slowdown)
    shape = np.broadcast_shapes(*(value.shape for value in slowdown.values()))
    nothing = xp.full(shape, absent, dtype)
    return xp.stack([xp.broadcast_to(slowdown.get(name, nothing).astype(dtype), shape) for name in classes])


def _of_links(job: Job, links: Mapping[str, Values], dtype: Any) -> LinkFactors:
    """Factors of communication [..., sample]; links of a kind that is not given are nominal."""
    xp, node = namespace(links), np.arange(job.plan.n_devices) // job.cluster.node_size
    shape = np.broadcast_shapes(*(value.shape for value in links.values()))
    nominal = xp.ones(shape, dtype)
    return link_factors(job, *(xp.broadcast_to(links.get(name, nominal).astype(dtype), shape)[node] for name in LINKS))


def _excess(work: Mapping[str, Values], n_chunk: int, dtype: Any) -> Values:
    """Factors less one [factor_row, replica, sample], in the order of the rows of `WorkTerms`."""
    xp, rows = namespace(work), []
    n = max(value.shape[-1] for value in work.values())
    for name in (name for name in WORK if name in work):
        value = work[name] if name == "experts" else work[name][:, None]
        n_replica, _, n_micro_batch, _ = value.shape
        shape = n_replica, n_chunk if name == "experts" else 1, n_micro_batch, n
        rows.append(xp.moveaxis(xp.broadcast_to(value.astype(dtype), shape).reshape(n_replica, -1, n), 0, 1))
    return xp.concatenate(rows) - 1.0


def _drawn_work(work: Work, key: Array, n_replica: int, n_sample: int) -> Values:
    """Factors less one [factor_row, replica, sample], drawn on the host."""
    if isinstance(key, Tracer):
        raise DataError("key is traced, but this job's work is drawn on the host. Give work, or a key outside of jit.")
    replica, sample = np.divmod(np.arange(n_replica * n_sample), n_sample)
    excess = work.of_whole_steps(replica, sample, *np.asarray(key).tolist())
    return excess.reshape(-1, n_replica, n_sample)


@dataclass(frozen=True, eq=False)
class _Lowered:
    """A job whose graph is made once, every kernel class a factor of its own; keeps numbers of its own hardware alone.

    Attributes:
        retimed: the job and its program.
        inputs: of its columns.
        laws: of what whole steps draw.
    """

    retimed: RetimedJob
    inputs: ColumnInputs
    laws: _StepLaws

    def retimed_by(
        self, hardware: Cluster | Numbers | None, kinds: tuple[str, ...]
    ) -> tuple[GraphArrays, WorkTerms | None]:
        """The graph on some hardware, and the shares of its ops that go with each of the `kinds` of work."""
        if hardware is not None:
            numbers = numbers_of(hardware) if isinstance(hardware, Cluster) else hardware
            return self._compiled(kinds)(on_device(numbers))
        if kinds not in self._terms:
            self._terms[kinds] = self._terms_of(kinds, self.retimed.program.cost, self._heavier(kinds, {}))
        return self.retimed.program.arrays, self._terms[kinds]

    @cached_property
    def _terms(self) -> dict[tuple[str, ...], WorkTerms | None]:
        """Terms of the job's own hardware by kinds of work."""
        return {}

    @lru_cache(maxsize=8)  # noqa: B019 (lowered jobs are kept as well)
    def _compiled(self, kinds: tuple[str, ...]) -> Callable[[Numbers], tuple[GraphArrays, WorkTerms | None]]:
        def made(numbers: Numbers) -> tuple[GraphArrays, WorkTerms | None]:
            cost = self.retimed.cost(numbers)
            return self.retimed.arrays_of(cost), self._terms_of(kinds, cost, self._heavier(kinds, numbers))

        return jax.jit(made)

    def _heavier(self, kinds: tuple[str, ...], numbers: Numbers) -> StepCost | None:
        """Cost with a busier busiest rank, where that is asked for."""
        if "experts" not in kinds:
            return None
        job: Any = self.retimed.job
        return self.retimed.cost(numbers, with_busier_rank(job.model))

    def _terms_of(self, kinds: tuple[str, ...], cost: StepCost, heavier: StepCost | None) -> WorkTerms | None:
        if not kinds:
            return None
        schedule = order_of(self.retimed.job.plan)
        parts = {"attention": cost.compute_s[..., COMPUTE_CLASSES.index("attention")]}
        if heavier is not None:
            parts["experts"] = (heavier.compute_s - cost.compute_s).sum(axis=-1) / PROBE
        parts["tokens"] = cost.compute_s.sum(axis=-1) - sum(part for name, part in parts.items() if name in kinds)
        portions = [Portion(parts[name], by_chunk=name == "experts") for name in kinds]
        row, share = work_terms(schedule, level_table(schedule), cost, portions)
        return WorkTerms(row, share.astype(self.inputs.graph.compute_s.dtype))


class _StepLaws(NamedTuple):
    """Laws of the draws of whole steps; None where nothing varies.

    Attributes:
        regime: per network axis, factor of the step's network score.
        end_call, step: residual of the communication that ends the step, factor of the whole step.
        popularity: factor of the whole step by the experts that are popular in it.
        stalls: probability and mean, as a share of the step, of every kind.
    """

    regime: tuple[ScoreChain, ...]
    end_call: ScoreChain | None
    step: ScoreChain | None
    popularity: ScoreChain | None
    stalls: tuple[tuple[float, float], ...]


@lru_cache(maxsize=32)
def _lowered(program: Program) -> _Lowered:
    program, job = by_class(program), program.job
    tree = job.variability

    def chain(family: Family) -> ScoreChain | None:
        return family_chain(family) if family.cv > 0 else None

    stalls = tuple((stall.prob(job.plan.n_devices), stall.mean_fraction) for stall in tree.stalls)
    popular = None if program.work is None else program.work.popularity
    factors = chain(program.end_call), chain(tree.step), None if popular is None else chain_of(popular.score_map)
    laws = _StepLaws(tuple(map(family_chain, program.regime)), *factors, stalls)
    inputs = column_inputs(program, np.ones((1, len(NETWORK_AXES))))
    return _Lowered(RetimedJob(job, program, by_class=True), inputs, laws)


@partial(jax.jit, static_argnames="n_sample")
def _steps(
    inputs: ColumnInputs,
    laws: _StepLaws,
    key: Array | None,
    place: Int[Array, "member lane replica"],
    parts: _Parts,
    n_sample: int,
) -> Float[Array, " sample"]:
    """Slowest replica of every sample, and the draws of whole steps; `place` is the device that plays each part."""
    n_member, n_lane, n_replica = place.shape
    n_cell, dtype, axes = n_replica * n_sample, inputs.graph.compute_s.dtype, len(NETWORK_AXES)
    most = CHUNK_COLUMNS if key is not None else max(FEWEST_COLUMNS, 2 * (n_cell // 16))  # few cells need little memory
    width = min(CHUNK_COLUMNS, most, n_cell + n_cell % 2)
    n_chunk = -(-n_cell // width)

    def columns(value: Array) -> Array:
        """Cuts values [..., replica, sample] into chunks [chunk, ..., column]; the last column fills the last chunk."""
        value = jnp.broadcast_to(value, (*value.shape[:-1], n_sample))
        value = jnp.swapaxes(value, -1, -2).reshape(*value.shape[:-2], n_cell)
        value = jnp.pad(value, [(0, 0)] * (value.ndim - 1) + [(0, n_chunk * width - n_cell)], mode="edge")
        return jnp.moveaxis(value.reshape(*value.shape[:-1], n_chunk, width), -2, 0)

    scores = None if key is None else jax.random.normal(jax.random.wrap_key_data(key), (3, n_sample), dtype)
    regime = jnp.ones((axes, 1), dtype) if scores is None else jnp.stack([chain(scores[0]) for chain in laws.regime])
    slowdown = None if parts.slowdown is None else columns(jnp.asarray(parts.slowdown)[:, place])
    links = None if parts.links is None else jax.tree.map(columns, parts.links)
    work = None if parts.excess is None else columns(jnp.asarray(parts.excess))
    of_column = None if key is None else columns(jnp.broadcast_to(regime[:, None], (axes, n_replica, n_sample)))

    def run(x: tuple[Any, ...]) -> Array:
        index, chip, link, excess, regime = x
        # Of what is the same for all chunks JAX would make a table for derivatives, level by level, before the loop.
        _, graph, terms = lax.optimization_barrier((index, inputs.graph, parts.terms))
        factors = None if excess is None or terms is None else WorkFactors(excess, *terms)
        shape = graph.compute_s.shape[-1] - 1, n_member, n_lane, width
        chip = chip if chip is None else jnp.broadcast_to(chip, shape)
        if key is None:
            members = ExplicitMembers(jnp.ones(shape, dtype) if chip is None else chip)
            network = unit_network(n_lane, width, dtype)
            network = network if link is None else CommFactors(link.slowest, network.regime, link.edge)
            return propagate(graph, members, network, None, factors)[0]
        known = None if link is None else KnownLinks(link.slowest, jnp.zeros_like(link.slowest), link.edge)
        chunk = Chunk(index, None, regime, chip, links=known, work=excess)
        return one_chunk(replace(inputs, graph=graph, work=terms), key, chunk, width)[0]

    times = lax.map(run, (jnp.arange(n_chunk), slowdown, links, work, of_column))
    step_s = times.ravel()[:n_cell].reshape(n_sample, n_replica).max(axis=1)
    if key is None or scores is None:
        return step_s
    if laws.end_call is not None:
        step_s = step_s + jnp.asarray(inputs.graph.end_comm_s).max() * regime[-1] * (laws.end_call(scores[1]) - 1.0)
    if laws.step is not None:
        step_s = step_s * laws.step(scores[2])
    if laws.popularity is not None:
        own = jax.random.fold_in(jax.random.wrap_key_data(key), POPULARITY)
        step_s = step_s * laws.popularity(jax.random.normal(own, (n_sample,), dtype))
    for number, (prob, mean) in enumerate(laws.stalls):
        own, length = jax.random.split(jax.random.fold_in(jax.random.wrap_key_data(key), number))
        happens = jax.random.uniform(own, (n_sample,), dtype) < prob
        step_s = step_s * (1.0 + jnp.where(happens, mean * jax.random.exponential(length, (n_sample,), dtype), 0.0))
    return step_s
