"""Log densities of what systems showed that were left out: of this model, of the exponential law, of independent nodes.

A density is that of a system's whole log, its own parameters unknown: by the chain rule, of every time given those before it.
Independent nodes renew one by one by the law of `of_node`; both are densities of the same thing, which node went when.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
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
            found.append(Score(group=str(name), extra=figures(from_frame(frame, data.laws), draws)))
    return found


def figures(left_out: RepairsData, draws: Draws) -> dict[str, float]:
    """Figures of systems [system] that were not fitted, added up over them."""
    law, exponential, sizes = (part.sum(axis=-1) for part in log_probabilities(left_out, draws))
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
        both = float(between + sizes + left_out.log_which.sum() - of_node)
        out |= {"groups_gain": both / n_down, "groups_better": float(both > 0.0)}
    return out


def log_probabilities(data: RepairsData, draws: Draws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of times under the laws [quantity, system], under the exponential law, and of sizes [system]; means over draws."""
    n_draw = len(draws["share"])
    keep = np.unique(np.linspace(0, n_draw - 1, min(n_draw, MOST_DRAWS)).round().astype(int))
    chosen = {name: np.asarray(value)[keep] for name, value in draws.items()}
    with jax.enable_x64(True):
        each = jax.jit(lambda given: jax.lax.map(lambda draw: _of_draw(data, draw), given))
        law, exponential, sizes = (np.asarray(part) for part in each(chosen))
    n_keep = np.log(len(keep))
    return tuple(np.logaddexp.reduce(part, axis=0) - n_keep for part in (law, exponential, sizes))  # pyright: ignore


def _of_draw(data: RepairsData, draw: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
    mean = jnp.stack([draw["location"], draw["log_shape"]], axis=-1)
    sd = jnp.stack([draw["between_sd"], draw["shape_sd"]], axis=-1)
    law = hierarchy.of_pairs(jnp.asarray(data.theta), jnp.asarray(data.log_weight), mean, sd)
    exponential = hierarchy.of_line(
        jnp.asarray(data.scale), jnp.asarray(data.scale_log_weight), draw["exponential_location"], draw["exponential_sd"]
    )
    shares = hierarchy.of_shares(
        jnp.asarray(data.n_multi), jnp.asarray(data.n_event), draw["share"], draw["concentration"]
    )
    sizes = hierarchy.of_line(
        jnp.asarray(data.exponent), jnp.asarray(data.exponent_log_weight), draw["exponent"], draw["exponent_sd"]
    )
    return law, exponential, jnp.where(jnp.asarray(data.n_node) > 1.0, shares + sizes, 0.0)
