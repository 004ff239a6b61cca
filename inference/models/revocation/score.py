# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Log densities of the spells of zones that were left out, under every family and under the one that the rest would choose.

A density is that of a zone's whole record, its own parameters unknown: by the chain rule, of every spell given those before it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from prism_jax.errors import DataError

from ...model import Draws, Score
from .choice import by_draw, chosen
from .data import QUANTITIES, RevocationData, from_frame
from .laws import FAMILIES


def scores(data: RevocationData, draws: Draws, left_out: pd.DataFrame, column: str) -> list[Score]:
    """One score per group of rows; figures are nats per spell, except those that say which is better (1 or 0)."""
    names = left_out[column].astype(str).to_numpy()
    family = chosen(data, draws).family
    found = []
    for name in np.unique(names):
        try:
            there = from_frame(left_out[names == name])
        except DataError:  # nothing ended in it
            continue
        found.append(Score(group=str(name), extra=figures(there, draws, family)))
    return found


def figures(left_out: RevocationData, draws: Draws, family: np.ndarray) -> dict[str, float]:
    """Figures of groups that were not fitted, added up over them."""
    logs = by_draw(left_out, draws)
    total = np.logaddexp.reduce(logs.sum(axis=-1), axis=0) - np.log(len(logs))  # [family, quantity]
    out = {}
    for index, quantity in enumerate(QUANTITIES):
        n = max(float(left_out.n_spell[index].sum()), 1.0)
        own = float(total[family[index], index])
        out[f"{quantity}_log_density"] = (own - float(left_out.log_width[index].sum())) / n
        for number, name in enumerate(FAMILIES):
            gain = own - float(total[number, index])
            out[f"{quantity}_gain_over_{name}"] = gain / n
            out[f"{quantity}_better_than_{name}"] = float(gain > 0.0)
    return out
