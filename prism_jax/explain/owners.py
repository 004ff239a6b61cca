"""Whose variability owns the p95: remove one owner's variability at a time, on the same random numbers.

The same draws (common random numbers) and the same compiled code serve every removal, so differences of a few tenths
of a percent are visible with a few hundred columns. Effects need not add up to the whole: maxima are not additive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jax import Array

from ..kernels import NETWORK_AXES
from ..simulate.predict import DEFAULT_COLUMNS, symmetric
from ..simulate.program import Program, factor_groups, variant
from ..variability.families import CONSTANT
from ..variability.tree import Variability


def p95_owners(program: Program, key: Array, p: float = 0.95) -> Mapping[str, float]:
    """Owner -> seconds by which the p-quantile falls without its variability, largest first."""
    whole = symmetric(program, key, DEFAULT_COLUMNS)
    removed = {
        name: symmetric(variant(program, other), key, DEFAULT_COLUMNS).quantile(p)
        for name, other in removals(program).items()
    }
    falls = {name: whole.quantile(p) - value for name, value in removed.items()}
    return dict(sorted(falls.items(), key=lambda item: -item[1]))


def removals(program: Program) -> Mapping[str, Variability]:
    """Trees with one owner's variability removed; only owners that vary and take time."""
    tree, trees = program.job.variability, {}
    grouped = [[program.classes[i] for i in group] for group in factor_groups(tree, program.classes)]
    loose = [[name] for name in program.classes if not any(name in group for group in grouped)]
    used = sorted({program.cost.collective_of.get(axis, "all_reduce") for axis in _used_axes(program)})
    for names in [*grouped, *loose, *([name] for name in used)]:
        if not all(tree.of(name).is_zero for name in names):
            trees["+".join(names)] = tree.without(*names)
    if tree.step.cv > 0:
        trees["step regime"] = replace(tree, step=CONSTANT)
    if any(stall.mean_fraction > 0 for stall in tree.stalls):
        trees["stalls"] = replace(tree, stalls=())
    return trees


def _used_axes(program: Program) -> list[str]:
    graph = program.graph
    seconds = [*graph.comm_s.sum(axis=(0, 1)), graph.lag_s.sum() + graph.send_s.sum(), graph.end_comm_s.sum()]
    return [axis for axis, value in zip(NETWORK_AXES, seconds, strict=True) if value > 0]
