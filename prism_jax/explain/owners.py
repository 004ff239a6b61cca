"""Sources of the p95's variability: one is removed at a time.

The same draws (common random numbers) and the same compiled code serve every removal, so differences of a few tenths of a percent
are visible with a few hundred columns. What whole steps have in common is made of the same columns. Without lengths or routing
every micro-batch has the mean of their work. Effects need not add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from jax import Array

from ..core.arrays import Floats
from ..core.kernels import NETWORK_AXES
from ..plan.packing import MIXTURE, PACKINGS
from ..result.distribution import INTERPOLATION, StepTimeDistribution
from ..simulate.batches import alike
from ..simulate.inputs import KnownGpus
from ..simulate.known_replicas import KnownReplicas
from ..simulate.predict import DEFAULT_COLUMNS, ReplicaTimes, replica_times, symmetric
from ..simulate.program import Program, by_class, factor_groups, lower, variant
from ..simulate.work import LENGTHS, ROUTING
from ..variability.families import CONSTANT
from ..variability.tree import Variability
from .types import GIVEN, GIVEN_LINKS, Shares


def p95_owners(times: ReplicaTimes, key: Array, p: float = 0.95) -> Shares:
    """Owner -> seconds by which the p-quantile falls without its variability, and their errors, largest first.

    Args:
        times: columns of the job; with known GPUs, of one factor per compute class. Known slowdowns stay when the variability of
            other GPUs is removed, and are an owner of their own: other GPUs, drawn, in their places.
        key: of `times`.
        p: probability of the quantile.
    """
    program, known, whole = times.program, times.known, times.steps()
    trees, n_column = removals(program), times.columns.weight.size
    if known is None:
        programs = [variant(program, tree) for tree in trees.values()]
    else:
        _, *programs = alike([program, *(by_class(program, tree) for tree in trees.values())])
    work = program.work
    even = {} if work is None else {name: replace(program, work=work.without(name)) for name in work.names}
    without = {}
    for name, own in [*zip(trees, programs, strict=True), *even.items()]:
        same = name in OF_WHOLE_STEPS
        without[name] = (replace(times, program=own) if same else replica_times(own, key, n_column, known)).steps()
    for name, rest in () if known is None else _without_given(known):
        without[name] = replica_times(program, key, n_column, rest).steps()
    falls = {name: fall(whole, other, p) for name, other in without.items()}
    ranked = sorted(falls, key=lambda name: -falls[name][0])
    return Shares({name: falls[name][0] for name in ranked}, {name: falls[name][1] for name in ranked})


OF_WHOLE_STEPS = ("step regime", "stalls")
N_BATCH_STUDENT = 1.2  # Student's t of 7 degrees over the normal score, at 97.5%


def fall(before: StepTimeDistribution, after: StepTimeDistribution, p: float) -> tuple[float, float]:
    """Returns the fall of the p-quantile from one prediction to another on the same draws, and its standard error, seconds.

    Notes: the error is that of the differences of the randomisations, and what interpolation between columns leaves in both.
    """
    seconds = before.quantile(p) - after.quantile(p)
    pairs = zip(before.batches_s, after.batches_s, strict=True)
    of_batch = np.array([np.quantile(one_s, p) - np.quantile(other_s, p) for one_s, other_s in pairs])
    return seconds, float(np.hypot(student_error(of_batch), INTERPOLATION * abs(seconds)))


def student_error(values: Floats, axis: int = 0) -> Floats:
    """Standard error of means over independent randomisations, which lie along `axis`."""
    return N_BATCH_STUDENT * values.std(axis=axis, ddof=1) / np.sqrt(values.shape[axis])


def _without_given(known: KnownReplicas) -> Iterator[tuple[str, KnownReplicas | None]]:
    """Sources that are given, with the slowdowns known without each: GPUs, links."""
    gpus, of_gpus = known.gpus, bool(np.isfinite(known.gpus.factor).any())
    unknown = np.full_like(gpus.factor, np.nan)
    if of_gpus:
        yield GIVEN, None if gpus.links is None else replace(known, gpus=KnownGpus(unknown, gpus.links))
    if gpus.links is not None:
        yield GIVEN_LINKS, replace(known, gpus=KnownGpus(gpus.factor)) if of_gpus else None


def removals(program: Program) -> Mapping[str, Variability]:
    """Trees with the variability of one source removed; only of sources that vary and take time."""
    tree, trees = program.job.variability, {}
    grouped = [[program.classes[i] for i in group] for group in factor_groups(tree, program.classes)]
    loose = [[name] for name in program.classes if not any(name in group for group in grouped)]
    for names in [*grouped, *loose, *([name] for name in used_collectives(program))]:
        if not all(tree.of(name).is_zero for name in names):
            trees["+".join(names)] = tree.without(*names)
    if tree.step.cv > 0:
        trees[OF_WHOLE_STEPS[0]] = replace(tree, step=CONSTANT)
    if any(stall.mean_fraction > 0 for stall in tree.stalls):
        trees[OF_WHOLE_STEPS[1]] = replace(tree, stalls=())
    return trees


def used_collectives(program: Program) -> list[str]:
    """Collectives that take time in a job's step, by name."""
    return sorted({program.cost.collective_of.get(axis, "all_reduce") for axis in _used_axes(program)})


def _used_axes(program: Program) -> list[str]:
    graph = program.graph
    seconds = [*graph.comm_s.sum(axis=(0, 1)), graph.lag_s.sum() + graph.send_s.sum(), graph.end_comm_s.sum()]
    return [axis for axis, value in zip(NETWORK_AXES, seconds, strict=True) if value > 0]


EVEN_LOADS = "even loads of experts"


def work_gains(program: Program, key: Array) -> Mapping[str, float]:
    """Returns the gains from other packing rules and from even loads of experts: relative, in tokens per second at the median.

    Args:
        program: lowered job.
        key: typed PRNG key; all jobs see the same draws.

    Notes: replicas that share out their documents are taken to be independent, which hardly moves a median. Rules that pack may
        change what is learned: without a mask attention sees other documents.
    """
    job, work, found = program.job, program.work, dict[str, Program]()
    names = [] if work is None else work.names
    data = job.plan.data
    for rule in PACKINGS if LENGTHS in names or data.packing == "packed" else ():
        if rule not in (MIXTURE, data.packing):
            own = lower(replace(job, plan=replace(job.plan, data=replace(data, packing=rule))))
            if work is not None and own.work is None:
                own = replace(own, work=work.without(LENGTHS))
            found[f"data.packing {rule}"] = own
    if work is not None and ROUTING in names:
        even = lower(replace(job, model=replace(job.model, moe=replace(job.model.moe, routing=None))))  # pyright: ignore
        found[EVEN_LOADS] = replace(even, work=work.without(ROUTING))
    rates = {name: _tokens_per_s(own, key) for name, own in {"": program, **found}.items()}
    gains = {name: rates[name] / rates[""] - 1.0 for name in found}
    return {name: gains[name] for name in sorted(gains, key=lambda name: -gains[name])}


def _tokens_per_s(program: Program, key: Array) -> float:
    """Returns the tokens of documents per second at the median step."""
    return program.job.model.units_per_step(program.job.plan) / symmetric(program, key, DEFAULT_COLUMNS).quantile(0.5)
