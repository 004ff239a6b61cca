"""How far a prediction moves with what is not known: quantiles under draws of the variability, all with the same key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array

from ...graph.score import ScoreChain
from ...job import Job
from ...progress import Progress, silent
from ...variability.tree import Variability
from ..predict import columns_or_full
from ..program import Program, lower

LEVEL = 0.9
CHAINS = ("gpu", "node", "link")
RESIDUALS = ("compute_residual", "comm_residual")
OUT_OF_REACH = 1e6  # normal score of a bend that is none


def epistemic_band(
    job: Job,
    draws: Sequence[Variability],
    quantiles: Mapping[str, float],
    *,
    key: Array,
    n_samples: int,
    progress: Progress = silent,
) -> dict[str, tuple[float, float]]:
    """90 % interval of each quantile of the step time, seconds, over `draws` of the job's variability.

    Args:
        draws: posterior draws; 20 or more for an interval that means something.
        quantiles: name -> probability.
        key: one for all draws, so that Monte Carlo error hardly widens the band.
        progress: called with the share that is done.
    """
    found = []
    for index, program in enumerate(alike([lower(replace(job, variability=draw)) for draw in draws])):
        distribution = columns_or_full(program, key, n_samples)
        found.append([distribution.quantile(p) for p in quantiles.values()])
        progress((index + 1) / len(draws))
    low, high = np.quantile(np.array(found), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(quantiles)}


def alike(programs: Sequence[Program]) -> list[Program]:
    """The same programs with score chains of equal length, so that what is compiled for one draw serves the next."""
    longest: dict[tuple[str, int], int] = {}
    for program in programs:
        for place, chain in _chains(program).items():
            longest[place] = max(longest.get(place, 0), len(chain.knots))
    return [_with_chains(p, {at: _longer(chain, longest[at]) for at, chain in _chains(p).items()}) for p in programs]


def _chains(program: Program) -> dict[tuple[str, int], ScoreChain]:
    """Field and position -> chain."""
    several = {(name, i): chain for name in CHAINS for i, chain in enumerate(getattr(program, name))}
    single = {(name, 0): getattr(program, name) for name in RESIDUALS if getattr(program, name) is not None}
    return several | single


def _with_chains(program: Program, chains: Mapping[tuple[str, int], ScoreChain]) -> Program:
    several = {name: tuple(chains[name, i] for i in range(len(getattr(program, name)))) for name in CHAINS}
    return replace(program, **several, **{name: chains.get((name, 0)) for name in RESIDUALS})


def _longer(chain: ScoreChain, n_knot: int) -> ScoreChain:
    """The same function with bends of nothing behind its last one."""
    more = n_knot - len(chain.knots)
    knots = jnp.pad(chain.knots, (0, more), constant_values=OUT_OF_REACH)
    return ScoreChain(chain.offset, chain.slope, knots, jnp.pad(chain.bends, (0, more)))
