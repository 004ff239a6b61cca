# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Log densities of what systems showed that were left out: of this model, of the exponential law, of independent nodes.

A density is that of a system's whole log, its own parameters unknown: by the chain rule, of every time given those before it.
Independent nodes renew one by one by the law of `of_node`; both are densities of the same thing, which node went when.
"""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd

from ...model import Draws, Score
from . import hierarchy as hierarchy
from .data import GROUPED, QUANTITIES, RepairsData, from_frame

MOST_DRAWS = 400


def scores(data: RepairsData, draws: Draws, left_out: pd.DataFrame, column: str) -> list[Score]:
    """One score per group; figures are nats per event, except those that say which is better (1 or 0)."""
    names = left_out[column].astype(str).to_numpy()
    found = []
    for name in np.unique(names):
        frame = left_out[names == name]
        if (frame["start_time"].to_numpy() > frame["start_time"].min()).any():
            found.append(Score(group=str(name), extra=figures(from_frame(frame), draws)))
    return found


def figures(left_out: RepairsData, draws: Draws) -> dict[str, float]:
    """Figures of systems [system] that were not fitted, added up over them."""
    found = log_probabilities(left_out, draws)
    law, exponential = found.times.sum(axis=1), found.exponential.sum(axis=1)
    width = left_out.log_width.sum(axis=1)
    n_event, n_down = left_out.n_event.sum(), left_out.n_down.sum()
    between, repair, of_node = (law[index] - width[index] for index in range(len(QUANTITIES)))
    gain = {name: float(law[index] - exponential[index]) for index, name in enumerate(QUANTITIES)}
    out = {
        "between_log_density": float(between / n_event),
        "between_gain": gain["between"] / n_event,
        "between_better": float(gain["between"] > 0.0),
        "repair_log_density": float(repair / n_down),
        "repair_gain": gain["repair"] / n_down,
        "repair_better": float(gain["repair"] > 0.0),
    }
    grouped = (left_out.grouped * left_out.n_down).sum() / n_down
    if left_out.named.all() and left_out.n_node.max() > 1.0 and grouped >= GROUPED:
        which = found.sizes.sum() + found.which.sum() + left_out.log_which.sum()
        both = float(between + which - of_node)
        out |= {"groups_gain": both / n_down, "groups_better": float(both > 0.0)}
    return out


def log_probabilities(data: RepairsData, draws: Draws) -> hierarchy.LogProbabilities:
    """Log of the mean over draws of what the systems showed."""
    n_draw = len(draws["share"])
    keep = np.unique(np.linspace(0, n_draw - 1, min(n_draw, MOST_DRAWS)).round().astype(int))
    chosen = {name: np.asarray(value)[keep] for name, value in draws.items()}
    with jax.enable_x64(True):
        found = jax.jit(lambda given: jax.lax.map(lambda draw: hierarchy.log_probabilities(data, draw), given))(chosen)
    means = (np.logaddexp.reduce(np.asarray(part), axis=0) - np.log(len(keep)) for part in found)
    return hierarchy.LogProbabilities(*means)  # pyright: ignore[reportArgumentType]
