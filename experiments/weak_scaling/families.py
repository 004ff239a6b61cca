"""Weak-scaling families of a steps table: one configuration on several numbers of devices with the same batch per device."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.step_tables.records import StepRecord
from prism_jax.validation.score import MeasuredRow

FEWEST_SIZES, LEAST_SPAN = 3, 8.0
_SAME = (
    "source", "model_name", "gpu", "precision", "micro_batch", "tp", "pp", "vpp", "cp", "ep", "sharding", "seq_len", "recompute",
)  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Rows of one family by their number of devices, ascending; a size may have several rows."""

    name: str
    source: str
    rows: dict[int, tuple[MeasuredRow, ...]]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of devices."""
        return tuple(self.rows)

    @property
    def is_expressible(self) -> bool:
        """Whether every row is a job with a measured time."""
        return all(row.model is not None and row.measured_s for rows in self.rows.values() for row in rows)

    def changes(self, seconds: Callable[[MeasuredRow], float]) -> np.ndarray:
        """[size - 1] change of the throughput per device against the smallest size, in points of a per cent."""
        rates = [np.mean([_rate(row, seconds(row)) for row in rows]) for rows in self.rows.values()]
        return 100.0 * (np.array(rates[1:]) / rates[0] - 1.0)


def families_of(records: Sequence[StepRecord], rows: Sequence[MeasuredRow]) -> list[Family]:
    """Families of three sizes or more, the largest eight times the smallest or more; records and rows have the same order."""
    alike: defaultdict[tuple[object, ...], defaultdict[int, list[MeasuredRow]]] = defaultdict(lambda: defaultdict(list))
    for record, row in zip(records, rows, strict=True):
        if record.n_gpus and record.global_batch:
            own = tuple(getattr(record, name) for name in _SAME)
            alike[(*own, round(record.global_batch / record.n_gpus, 6))][record.n_gpus].append(row)
    return [_family(key, sizes) for key, sizes in alike.items() if _spans(sizes)]


def _spans(sizes: dict[int, list[MeasuredRow]]) -> bool:
    return len(sizes) >= FEWEST_SIZES and max(sizes) >= LEAST_SPAN * min(sizes)


def _family(key: tuple[object, ...], sizes: dict[int, list[MeasuredRow]]) -> Family:
    source, model, gpu, precision, micro_batch, tp, pp = key[:7]
    name = f"{model} {gpu} {precision} mb {micro_batch} tp {tp or 1} pp {pp or 1} {key[10] or ''}".rstrip()
    return Family(name, str(source), {n: tuple(sizes[n]) for n in sorted(sizes)})


def _rate(row: MeasuredRow, seconds: float) -> float:
    _, _, plan = row.job
    return plan.global_batch / seconds / plan.n_devices
