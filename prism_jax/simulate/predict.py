"""predict: a job and a key in, the distribution of its step time out; by replica columns, or every GPU of every step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtri

from ..core.arrays import Floats, Positions, Values, namespace
from ..core.errors import DataError
from ..core.processes import Progress, silent
from ..core.together import n_processes
from ..graph.draws import MAX_COLUMNS, host_key, on_host, seed_of, typed_key
from ..job.job import Job
from ..result.distribution import StepTimeDistribution
from ..variability.score_map import NormalScoreMap
from ..variability.tree import Variability
from .columns import Chunk, ColumnInputs, chunks_per_call, gathered, times_of_jobs, times_on_device
from .importance import Design, Proposal, effective_tail, importance_design, lane_shares, proposal
from .inputs import MAX_KNOWN_REPLICAS, KnownGpus, column_inputs, deterministic, regime_factors, shared_of
from .known_replicas import KnownReplicas, every_known_replica, known_times, links_of
from .links import ReplicaLinks
from .program import Program, by_class, lower
from .replica_maximum import (
    Shared,
    before_stalls,
    draw_stalls,
    each_apart,
    maximum_quantile,
    step_samples,
    survival_steps,
    with_stalls,
)

N_COLUMN = 512  # of a chunk: the state of a scan still fits the second-level cache, and draws cost more than levels
N_BATCH = 16
FEWEST_LEVELS = 1024  # of a batch whose stalls are integrated
TAIL_PROB = 0.95  # what lies beyond this quantile is the tail


def brute_force(
    program: Program,
    key: Array,
    n_steps: int,
    known: KnownGpus | None = None,
    progress: Progress = silent,
    *,
    explicit: bool = True,
    steps_per_fleet: int = 1,
) -> StepTimeDistribution:
    """`n_steps` steps of 16 fleets or more, each the maximum over all its replicas' columns.

    Args:
        program: lowered job.
        key: typed PRNG key.
        n_steps: of the sample, rounded up to whole fleets; the error comes from sixteenths of the fleets.
        known: persistent slowdowns of GPUs that were measured; all others are drawn.
        progress: called with the share that is done.
        explicit: draw the residual of every member of however large a group; otherwise large groups draw their maximum directly.
        steps_per_fleet: steps that follow each other on one fleet; with one, all steps are independent.
    """
    n_fleet = max(-(-n_steps // steps_per_fleet), N_BATCH)
    rng = np.random.default_rng(host_key(key).tolist())
    network_u = rng.random((n_fleet, steps_per_fleet))
    core = replica_maxima(program, key, network_u, known, progress, explicit)
    shared = shared_of(program, np.zeros(1), known)
    scores = ndtri(network_u.ravel())
    end_s = shared.end_s[0] * regime_factors(program, scores)[:, -1] / regime_factors(program, np.zeros(1))[0, -1]
    end_s = end_s.reshape(core.shape)
    usable = n_fleet - n_fleet % N_BATCH
    batches = [
        _batch(part, end, shared, rng)
        for part, end in zip(*(x[:usable].reshape(N_BATCH, -1, steps_per_fleet) for x in (core, end_s)), strict=True)
    ]
    samples, unstalled = _sorted_steps(core, end_s, shared, rng)
    return StepTimeDistribution(
        samples_s=samples,
        batches_s=np.stack(batches),
        deterministic_s=deterministic(program),
        method="brute_force",
        n_samples=core.size,
        tail_columns=core.size * (1.0 - TAIL_PROB),
        fleets_s=draw_stalls(unstalled, shared, rng),
    )


def _sorted_steps(core_s: Floats, end_s: Floats, shared: Shared, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Sorted step times [sample], and the same without stalls in their places [fleet, step]."""
    unstalled = before_stalls(core_s, end_s, shared, rng)
    return with_stalls(np.sort(unstalled, axis=None), shared), unstalled


def _batch(core_s: Floats, end_s: Floats, shared: Shared, rng: np.random.Generator) -> Floats:
    """Sorted step times of a few steps; where stalls are integrated at more levels than there are steps."""
    steps_s = np.sort(before_stalls(core_s, end_s, shared, rng), axis=None)
    finer = -(-FEWEST_LEVELS // steps_s.size) if shared.stalls else 1
    return with_stalls(np.repeat(steps_s, finer), shared)


def replica_maxima(
    program: Program, key: Array, network_u: Floats, known: KnownGpus | None, progress: Progress, explicit: bool
) -> Floats:
    """Slowest replica of every step, seconds [fleet, step]; `network_u` is the step's network score as a probability.

    Columns are replicas of fleets, side by side in blocks; chunks are a block at one step, blocks counting fastest.
    """
    n_fleet, n_step = network_u.shape
    n_cell = n_fleet * program.n_replica
    n_block = -(-n_cell // N_COLUMN)
    n_chunk = n_block * n_step
    share = max(2, n_processes())
    per_call = -(-min(chunks_per_call(N_COLUMN), n_chunk) // share) * share
    factors = _regime(program, network_u) if program.varying_regime else None
    inputs = column_inputs(program, np.ones((1, len(program.regime))), explicit=explicit)
    times = []
    for first in range(0, n_chunk, per_call):
        index = np.arange(first, first + per_call)
        step, block = np.minimum(index // n_block, n_step - 1), index % n_block
        cell = block[:, None] * N_COLUMN + np.arange(N_COLUMN)
        fleet = np.minimum(cell // program.n_replica, n_fleet - 1)
        regime = None if factors is None else on_host(factors[fleet, step[:, None]].transpose(0, 2, 1))
        of_fleet = None if n_step == 1 else block
        replica = cell % program.n_replica
        links = None if known is None else links_of(program, known, replica)
        work = _work_columns(program, replica, fleet * n_step + step[:, None], host_key(key), index)
        chunks = Chunk(index, None, regime, _known_columns(program, known, replica), of_fleet, links, work)
        times.append(times_on_device(inputs, key, chunks, N_COLUMN))
        jax.block_until_ready(times[-2:-1])  # one call runs and one waits
        progress(min(1.0, (first + per_call) / n_chunk))
    if n_processes() > 1:
        times = [gathered(own) for own in times]
    of_step = namespace(times).concatenate(times)[:n_chunk].reshape(n_step, -1)[:, :n_cell]
    return gathered(of_step.reshape(n_step, n_fleet, program.n_replica).max(axis=-1)).T


def _regime(program: Program, network_u: Floats) -> Floats:
    """Regime factors [fleet, step, axis] of network scores that are given as probabilities [fleet, step]."""
    scores = ndtri(np.clip(network_u, 1e-12, 1 - 1e-12))
    return regime_factors(program, scores.ravel()).reshape(*scores.shape, -1)


def _known_columns(program: Program, known: KnownGpus | None, replica: NDArray[np.int64]) -> np.ndarray | None:
    """Known factors [chunk, class, member, lane, column] of the replicas [chunk, column]."""
    if known is None:
        return None
    return on_host(np.moveaxis(known.by_replica(program.job.plan)[..., replica], -2, 0))


def _work_columns(
    program: Program, replica: Positions, step: Positions, words: NDArray[np.uint32], index: Positions
) -> np.ndarray | None:
    """Work [chunk, row, column] of the replicas [chunk, column] of the steps [chunk, column]."""
    work = program.work
    if work is None:
        return None
    each = zip(replica, step, index.tolist(), strict=True)
    return np.stack([work.of_whole_steps(*own, *words.tolist(), k) for *own, k in each])


assert N_COLUMN <= MAX_COLUMNS


METHODS = ("symmetric", "brute_force")
N_RANDOMISATION = 8
DEFAULT_COLUMNS = 512  # p50 to p99 of 16,384 GPUs within 0.03% (benchmarks/accuracy.py)
REGIME_SCORES = np.array([-2.5, -0.7, 0.7, 2.0, 3.3])  # network scores a column is evaluated at
N_STEP_SAMPLES = 1 << 14
# Effective columns beyond the p95 of the replicas' maximum, per TAIL_REFERENCE_COLUMNS: a design that works leaves 12 or
# more, plain columns of 64 replicas 1.
MIN_TAIL_COLUMNS = 5.0
TAIL_REFERENCE_COLUMNS = 1024
MORE_COLUMNS = 4  # times as many, where few columns reach the tail
CHUNK_COLUMNS = 256  # the state of a scan stays in the second-level cache
MIN_CHUNKS = 4  # at least, so that as many devices share the work
FALLBACK_STEPS = 1000
MANY_KNOWN = (
    f"more than {MAX_KNOWN_REPLICAS} replicas hold known GPUs: {FALLBACK_STEPS} steps were simulated in full "
    "(brute force)"
)
BALANCED = (
    "data.packing = balanced: replicas share out the documents of a step, so that none is independent of the others: "
    f"{FALLBACK_STEPS} steps were simulated in full (brute force)"
)
FLEETS_NEED = 'or more with method="brute_force": the symmetric method draws another fleet with every column'


def predict(
    job: Job,
    *,
    key: Array | int,
    n_samples: int = DEFAULT_COLUMNS,
    method: str = "symmetric",
    known: KnownGpus | None = None,
    steps_per_fleet: int = 1,
    pad: bool = False,
    progress: Progress = silent,
) -> StepTimeDistribution:
    """Distribution of the step time of `job` over fleets (which GPUs it gets) and over steps.

    Args:
        job: model, cluster, plan and variability.
        key: typed PRNG key (`jax.random.key(seed)`) or an integer seed; the same key gives the same answer on any number of
            devices.
        n_samples: replica columns (symmetric; rounded up to a power of two per randomisation) or steps (brute force).
        method: "symmetric" simulates replica columns and raises their distribution to the number of replicas;
            "brute_force" draws every GPU of every replica.
        known: persistent slowdowns of GPUs that were measured; all others are drawn.
        steps_per_fleet: steps that follow each other on one fleet, for sums over steps (`by_fleet_s`); more than one needs
            "brute_force", since the symmetric method draws another fleet with every column.
        pad: pad the graph to a common shape, for sweeps over many jobs: fewer compilations, the same numbers.
        progress: called with the share that is done while brute force runs.

    Raises:
        DataError: unknown method, what is no key, or several steps per fleet of a method that cannot tell fleets apart.

    Notes:
        Where too few weighted columns reach the tail, the symmetric method takes more, and where these are too few it falls back
        to brute force and says so: importance sampling shifts persistent factors, so it is unreliable where something else
        makes the tail.
    """
    if method not in METHODS:
        raise DataError(f"method = {method!r} is unknown; it must be one of {', '.join(METHODS)}")
    if steps_per_fleet < 1 or (steps_per_fleet > 1 and method != "brute_force"):
        raise DataError(f"steps_per_fleet = {steps_per_fleet}, but it must be 1, {FLEETS_NEED}")
    key = typed_key(key)
    program = lower(job, pad) if known is None else by_class(lower(job, pad))
    many = known is not None and len(known.replicas(job.plan)) > MAX_KNOWN_REPLICAS
    if method == "brute_force":
        return brute_force(program, key, n_samples, known, progress, steps_per_fleet=steps_per_fleet)
    if many:
        return replace(_in_full(program, key, known, progress), notes=(MANY_KNOWN,))
    return columns_or_full(program, key, n_samples, known, progress)


def columns_or_full(
    program: Program, key: Array, n_samples: int, known: KnownGpus | None = None, progress: Progress = silent
) -> StepTimeDistribution:
    """The symmetric method, or brute force where too few of its columns reach the tail; arguments as those of `predict`."""
    if program.work is not None and program.work.of_steps is not None:
        return replace(_in_full(program, key, known, progress), notes=(BALANCED,))
    own = None if known is None else every_known_replica(known, program.job.plan)
    return _or_full(replica_times(program, key, n_samples, own), key, n_samples, known, progress)


def columns_or_full_of_jobs(programs: Sequence[Program], key: Array, n_samples: int) -> Iterator[StepTimeDistribution]:
    """Returns the distributions of programs of one shape by `columns_or_full`; an accelerator runs them together."""
    if any(program.work is not None for program in programs):  # some of these need all replicas, or more columns
        return (columns_or_full(program, key, n_samples) for program in programs)
    return (_or_full(times, key, n_samples) for times in replica_times_of_jobs(programs, key, n_samples))


def _or_full(
    times: ReplicaTimes, key: Array, n_samples: int, known: KnownGpus | None = None, progress: Progress = silent
) -> StepTimeDistribution:
    result, program = times.steps(), times.program
    if not _reaches_tail(result):  # of few columns one of great weight may hide the others, and work needs more of them
        result = symmetric(program, key, MORE_COLUMNS * n_samples, times.known)
    if _reaches_tail(result):
        return result
    note = (
        f"only {result.tail_columns:.1f} effective columns lie beyond the p95 of the step time: the tail does not come from slow "
        f"GPUs, so importance sampling is unreliable for this job; fell back to {FALLBACK_STEPS} brute-force steps"
    )
    return replace(_in_full(program, key, known, progress), notes=(note,))


def _reaches_tail(result: StepTimeDistribution) -> bool:
    """Whether enough columns lie in the tail."""
    return result.tail_columns >= MIN_TAIL_COLUMNS * min(1.0, result.n_samples / TAIL_REFERENCE_COLUMNS)


def _in_full(program: Program, key: Array, known: KnownGpus | None, progress: Progress) -> StepTimeDistribution:
    """Every replica of every step, where the symmetric method does not serve."""
    return brute_force(program, key, FALLBACK_STEPS, known, progress, explicit=False)


def symmetric(program: Program, key: Array, n_samples: int, known: KnownReplicas | None = None) -> StepTimeDistribution:
    """Replica columns by importance-sampled Sobol points, raised to the number of replicas."""
    return replica_times(program, key, n_samples, known).steps()


@dataclass(frozen=True, eq=False)
class ReplicaTimes:
    """Times of the columns of the symmetric method, of which steps are made.

    Attributes:
        program: lowered job.
        columns: draws for the replicas that are all alike.
        time_s: [randomisation, score, column] of them.
        known: replicas with columns of their own; None where no GPU is known.
        known_s: [replica, score, column] of these; no replica where none is known.
    """

    program: Program
    columns: ReplicaColumns
    time_s: Floats
    known: KnownReplicas | None
    known_s: Floats

    @property
    def n_alike(self) -> int:
        """Number of replicas without known GPUs."""
        return self.program.n_replica - (0 if self.known is None else self.known.n_known)

    def steps(self) -> StepTimeDistribution:
        """Distribution of the slowest replica's time, with the parts that the replicas of a step share."""
        columns, time_s, known_s, n_alike = self.columns, self.time_s, self.known_s, self.n_alike
        gpus = None if self.known is None else self.known.gpus
        shared, rng = shared_of(self.program, columns.scores, gpus), np.random.default_rng(columns.seed)
        samples = step_samples(
            columns.pooled(time_s), columns.weight.ravel(), n_alike, shared, N_STEP_SAMPLES, rng, each_apart(known_s)
        )
        n_step = N_STEP_SAMPLES // N_RANDOMISATION
        batches = np.stack([
            step_samples(
                t, w, n_alike, shared, n_step, rng, each_apart(known_s[..., i::N_RANDOMISATION]), survival_steps
            )
            for i, (t, w) in enumerate(zip(time_s, columns.weight, strict=True))
        ])  # fmt: skip
        weight, middle = columns.weight.ravel(), time_s[:, len(columns.scores) // 2].ravel()
        return StepTimeDistribution(
            samples_s=samples,
            batches_s=batches,
            deterministic_s=deterministic(self.program),
            method="symmetric",
            n_samples=columns.weight.size,
            tail_columns=_tail_columns(weight, middle, max(n_alike, 1)),
        )


def _tail_columns(weight: Floats, time_s: Floats, n: int) -> float:
    """Effective number of columns beyond the p95 of the slowest of `n` replicas.

    Notes: a count of few hangs on whether a heavy column is among them. Where columns beyond the median, which are more, count no
        more than plain ones would, the design does not lead to the tail: the count falls like the probability from there on.
    """
    levels = np.array([0.5, TAIL_PROB])
    middle, tail = (effective_tail(weight, time_s, at_s) for at_s in maximum_quantile(time_s, weight, n, levels))
    prob_middle, prob_tail = (-np.expm1(np.log(levels) / n)).tolist()
    return tail if middle > weight.size * prob_middle else min(tail, middle * prob_tail / prob_middle)


def replica_times(program: Program, key: Array, n_samples: int, known: KnownReplicas | None = None) -> ReplicaTimes:
    """Columns of a program and their times, `n_samples` rounded up to a power of two per randomisation."""
    links = None if known is None else known.gpus.links
    (times,) = replica_times_of_jobs([program], key, n_samples, links)
    if known is None:
        return times
    return replace(times, known=known, known_s=known_times(program, known, key, times.columns.scores))


def replica_times_of_jobs(
    programs: Sequence[Program], key: Array, n_samples: int, links: Floats | None = None
) -> Iterator[ReplicaTimes]:
    """Yields the columns and times of programs of one shape, without known replicas; `links` of the others where some are
    known.
    """
    columns = [replica_columns(program, key, n_samples, links) for program in programs]
    every = times_of_jobs([own.inputs for own in columns], key, [own.chunks for own in columns], columns[0].width)
    for program, own, time_s in zip(programs, columns, every, strict=True):
        yield ReplicaTimes(program, own, own.by_randomisation(time_s), None, np.zeros((0, len(own.scores), 0)))


@dataclass(frozen=True, eq=False)
class ReplicaColumns:
    """Columns of the symmetric method: their draws, and the weight of every column.

    Attributes:
        inputs: lowered job.
        chunks: columns of several randomisations each, or several chunks per randomisation.
        width: columns of a chunk.
        scores: network scores that every column carries.
        weight: [randomisation, column] importance weights.
        seed: of the strata of the steps.
    """

    inputs: ColumnInputs
    chunks: Chunk
    width: int
    scores: Floats
    weight: Floats
    seed: int

    def by_randomisation(self, time_s: Values) -> Values:
        """Times [randomisation, score, column] of those of the chunks [chunk, score, column]."""
        flat = time_s.transpose(1, 0, 2).reshape(len(self.scores), *self.weight.shape)
        return flat.transpose(1, 0, 2)

    def pooled(self, time_s: Values) -> Values:
        """Times [score, column] of all randomisations together, of [randomisation, score, column]."""
        return time_s.transpose(1, 0, 2).reshape(len(self.scores), -1)


def replica_columns(program: Program, key: Array, n_samples: int, links: Floats | None = None) -> ReplicaColumns:
    """Importance-sampled columns of a program, `n_samples` rounded up to a power of two per randomisation.

    Args:
        links: [2, device] known factors of links, of which all replicas see the slowest at the end of the step.
    """
    n_column = max(16, 1 << int(np.ceil(np.log2(max(n_samples / N_RANDOMISATION, 1.0)))))
    seed = seed_of(key)
    design = column_design(program, n_column, seed)
    scores = REGIME_SCORES if program.varying_regime else np.zeros(1)
    width = min(CHUNK_COLUMNS, design.weight.size // MIN_CHUNKS)
    peak = None
    if program.has_persistent:
        flat = np.moveaxis(on_host(design.peak_score), 0, -2)
        peak = np.moveaxis(flat.reshape(*flat.shape[:-2], -1, width), -2, 0)
    work = None
    if design.work is not None:
        flat = np.moveaxis(design.work, 0, -2)
        work = np.moveaxis(flat.reshape(len(flat), -1, width), -2, 0)
    index = np.arange(design.weight.size // width)
    known = None if links is None else ReplicaLinks.of(program, links).alike(len(index), width, program.n_node)
    return ReplicaColumns(
        inputs=column_inputs(program, regime_factors(program, scores)),
        chunks=Chunk(index, peak, links=known, work=work),
        width=width,
        scores=scores,
        weight=design.weight,
        seed=seed,
    )


def column_design(program: Program, n_column: int, seed: int) -> Design:
    """Importance design of a program; without persistent factors every column is nominal."""
    shape, direction, shares = _of_design(program, n_column)
    design = importance_design(*shape, direction, shares, seed, program.work)
    idle = ((0, 0), (0, 0), (0, program.n_lane - program.n_stage), (0, 0))
    return replace(design, peak_score=np.pad(design.peak_score, idle))


def persistent_proposal(program: Program, n_column: int, seed: int) -> Proposal:
    """Columns of the importance design of a program before their work is drawn, `N_RANDOMISATION` sets of them."""
    shape, direction, shares = _of_design(program, n_column)
    return proposal(*shape, direction, shares, seed)


def _of_design(program: Program, n_column: int) -> tuple[tuple[int, int, int, int], Floats, Floats]:
    """Sizes of the design, the direction in which GPUs and nodes lengthen ops, and the share of every lane."""
    busy = program.graph.compute_s.sum(axis=(0, 2))[: program.n_stage]
    direction = np.zeros(2)
    if program.has_persistent:
        direction = persistent_spread(
            program.job.variability, program.graph.compute_s.sum(axis=(0, 1)), program.classes
        )
    return (N_RANDOMISATION, n_column, program.n_stage, program.n_replica), direction, lane_shares(busy)


def persistent_spread(tree: Variability, class_seconds: Floats, classes: Sequence[str]) -> Floats:
    """Change of the slowest GPU's and of its node's factor per unit of score, [2], over a mix of compute classes [class]."""
    share = class_seconds / class_seconds.sum()
    maps = [[NormalScoreMap.from_family(getattr(tree.of(n), part)) for n in classes] for part in ("gpu", "node")]
    slope = [sum(s * (m(3.0) - m(1.5)) / 1.5 for s, m in zip(share, row, strict=True)) for row in maps]
    return np.array(slope, dtype=np.float64)
