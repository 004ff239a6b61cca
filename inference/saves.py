"""Seconds of a checkpoint as a fixed time and bytes over rates, one for each kind of file in it.

    t = source x (t0 + weights / rate + index / rate + meta / rate)

Weights are streamed. Index and meta data hold an entry per tensor or operation, so they stand for what many small writes take.
For tables of several storages and methods, in which a size says less than where it goes, `checkpoints` is the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pandas as pd

from prism_jax.cloud.laws import SaveLaw

from .data.checks import numbers_of
from .data.columns import ModelColumn
from .engine.model import Draws
from .sums import AbstractSums, SumsData, SumTerm, effects_of, sums_data

COLUMNS = (
    ModelColumn("model", ("network", "workload"), required=True, text=True),
    ModelColumn("save_s", ("duration_s", "save_total_s", "seconds"), required=True, positive=True),
    ModelColumn("weights_bytes", ("checkpoint_bytes", "size"), required=True, positive=True),
    ModelColumn("index_bytes", ("index",), positive=True),
    ModelColumn("meta_bytes", ("meta",), positive=True),
    ModelColumn("source", ("storage", "site"), text=True),
)
# Expected at 1, and how far off that may be: one connection to a store, 100 MB/s; entries of some 100 bytes (index) and 5 kB
# (meta) that take a millisecond or two each.
FIXED_S, WEIGHTS_BYTES_PER_S, INDEX_BYTES_PER_S, META_BYTES_PER_S = 1.0, 100e6, 50e3, 5e6
TERMS = (SumTerm("fixed", 5.0), SumTerm("weights", 5.0), SumTerm("index", 5.0), SumTerm("meta", 5.0))
SOURCE_SPREAD = 0.3  # of log seconds


class SavesModel(AbstractSums):
    """The model by the name "saves"."""

    name = "saves"
    no_variability = "a fit of saves describes seconds, not how steps vary."
    seconds = "save_s"
    columns = COLUMNS
    levels: ClassVar[Mapping[str, float]] = {"source": SOURCE_SPREAD}

    def prepare(self, frame: pd.DataFrame) -> SumsData:
        """Cells: checkpoints of one size."""
        blank = sum(name not in frame for name in ("index_bytes", "meta_bytes"))
        notes = ("no sizes of index and meta data: what they take is in the fixed time",) if blank == 2 else ()
        return sums_data(frame, self.sizes(frame), self.seconds, TERMS, self.levels, notes=notes)

    def sizes(self, frame: pd.DataFrame) -> np.ndarray:
        """Seconds of the fixed time, the weights, the index and the meta data, [row, term]."""
        weights, index, meta = (
            np.nan_to_num(numbers_of(frame, f"{name}_bytes")) for name in ("weights", "index", "meta")
        )
        return np.stack(
            [
                np.full(len(frame), FIXED_S),
                weights / WEIGHTS_BYTES_PER_S,
                index / INDEX_BYTES_PER_S,
                meta / META_BYTES_PER_S,
            ],
            axis=1,
        )

    def law(self, data: SumsData, draws: Draws) -> SaveLaw:
        """Seconds by bytes on a storage of those that were measured; what index and meta data take is in the fixed time."""
        effect = effects_of(data, draws) @ data.member.mean(axis=0)  # of the mean cell
        factor = np.exp(np.asarray(draws["log_factor"]) + effect[:, None])
        of_cells = factor @ (data.size * np.array([1.0, 0.0, 1.0, 1.0])).T  # [draw, cell]
        most = float(data.size[:, 1].max()) * WEIGHTS_BYTES_PER_S
        text = f"as {len(data.log_s)} sizes of up to {most / 1e6:.3g} MB were saved"
        return SaveLaw(np.median(of_cells, axis=1), factor[:, 1] / WEIGHTS_BYTES_PER_S, most, text)

    def trivial(self, data: SumsData, frame: pd.DataFrame) -> np.ndarray:
        """The median of all."""
        return np.full(len(frame), np.exp(np.median(data.log_s)))
