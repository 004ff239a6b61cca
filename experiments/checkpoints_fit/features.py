"""Features in which log seconds of a checkpoint are linear, with what is known of their effects before any measurement.

    log s = log(bytes / bandwidth of the storage) + operation + class + size + writers + sharded + alone + method + source

The bandwidth is that which the storage's text states, else that of its class; the effects say how far both are off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from experiments.checkpoints_fit.storage import (
    BYTES_PER_S,
    CLASSES,
    is_sharded,
    stated_bytes_per_s,
    storage_class,
    writes_alone,
)

OPERATIONS = ("save", "block", "load")
REFERENCE_BYTES = 10e9  # a checkpoint of some GB; only centres the effect of size
# Prior standard deviations of effects on log seconds, around 0.
OPERATION_SD = 0.5
CLASS_SD = 1.0  # a factor of three either way of the class's bandwidth
STATED_SD = 0.4  # a bandwidth that is stated is half as good to twice as good
SIZE_SD = 0.15  # t ~ bytes^(0.7 to 1.3): large checkpoints stream better, or fill caches
WRITERS_MEAN, WRITERS_SD = -0.5, 0.25  # n writers are n to no times as fast
SHARDED_MEAN, SHARDED_SD = (
    -1.0,
    0.7,
)  # every process writes, nobody says how many: 8 of them as above, or a few, or hundreds
SERIAL_BYTES_PER_S = 1e9  # one process pickles and checksums as fast
ALONE_SD = 0.5  # what else it costs that one process gathers and writes everything


@dataclass(frozen=True)
class Observation:
    """What was saved or loaded.

    Attributes:
        operation: save (until the last byte is there), block (what training waits for of it), or load.
        log_bytes: logarithm of its bytes.
        log_writers: of the processes that write or read; 0 where that is not known or one does it alone.
        storage: class of storage.
        log_stated: log of a bandwidth that is stated, in bytes/s; None where none is.
        alone: whether one process writes everything.
        sharded: whether processes of unknown number write their parts.
        method, source: names.
        is_assumed: whether its size was guessed from parameters.
    """

    operation: str
    log_bytes: float
    log_writers: float
    storage: str
    log_stated: float | None
    alone: bool
    sharded: bool
    method: str
    source: str
    is_assumed: bool = False

    @staticmethod
    def of(
        operation: str, n_bytes: float, writers: float, storage: str, method: str, mode: str, source: str
    ) -> Observation:
        """Of texts as tables have them; `writers` is NaN where it is not known."""
        stated = stated_bytes_per_s(storage)
        alone = writes_alone(f"{method} {mode}")
        known = np.isfinite(writers) and writers >= 1.0 and not alone
        return Observation(
            operation=operation,
            log_bytes=float(np.log(n_bytes)),
            log_writers=float(np.log(writers)) if known else 0.0,
            storage=storage_class(storage),
            log_stated=None if stated is None else float(np.log(stated)),
            alone=alone,
            sharded=is_sharded(f"{method} {mode}") and not known and not alone,
            method=method.lower().strip(),
            source=source,
        )

    def assumed(self) -> Observation:
        """The same with a size that was guessed."""
        return replace(self, is_assumed=True)


@dataclass(frozen=True)
class Design:
    """The features of a fit; attributes as in `CheckpointsData`."""

    names: tuple[str, ...]
    level: np.ndarray
    prior_mean: np.ndarray
    prior_sd: np.ndarray

    def matrix(self, rows: Sequence[Observation]) -> np.ndarray:
        """[observation, feature]; a source or method that the fit has not seen has no feature."""
        place = {name: index for index, name in enumerate(self.names)}
        out = np.zeros((len(rows), len(self.names)))
        for index, row in enumerate(rows):
            for name, value in _features(row).items():
                if name in place:
                    out[index, place[name]] = value
        return out

    def offset(self, rows: Sequence[Observation]) -> np.ndarray:
        """log(bytes / bandwidth), [observation]."""
        return np.array([row.log_bytes + np.log(_s_per_byte(row)) for row in rows])


def design_of(rows: Sequence[Observation]) -> Design:
    """The features of these observations."""
    fixed = {
        **{f"operation {name}": (0.0, OPERATION_SD) for name in OPERATIONS},
        **{f"storage {name}": (0.0, CLASS_SD) for name in CLASSES},
        "stated bandwidth": (0.0, STATED_SD),
        "size": (0.0, SIZE_SD),
        "writers": (WRITERS_MEAN, WRITERS_SD),
        "sharded": (SHARDED_MEAN, SHARDED_SD),
        "alone": (0.0, ALONE_SD),
    }
    sources = [f"source {name}" for name in dict.fromkeys(row.source for row in rows)]
    methods = [f"method {name}" for name in dict.fromkeys(row.method for row in rows) if name]
    ways = [f"{row.operation} of {row.source}" for row in rows]
    ways = list(dict.fromkeys(ways))
    rest = len(sources) + len(methods) + len(ways)
    return Design(
        names=(*fixed, *sources, *methods, *ways),
        level=np.array([0] * len(fixed) + [1] * len(sources) + [2] * len(methods) + [3] * len(ways)),
        prior_mean=np.array([mean for mean, _ in fixed.values()] + [0.0] * rest),
        prior_sd=np.array([sd for _, sd in fixed.values()] + [1.0] * rest),
    )


def _s_per_byte(row: Observation) -> float:
    """Of the storage, and of one process that makes a stream of what it writes, or objects of what it reads."""
    of_storage = 1.0 / BYTES_PER_S[row.storage] if row.log_stated is None else float(np.exp(-row.log_stated))
    return of_storage + (1.0 / SERIAL_BYTES_PER_S if row.alone else 0.0)


def _features(row: Observation) -> dict[str, float]:
    storage = "stated bandwidth" if row.log_stated is not None else f"storage {row.storage}"
    return {
        f"operation {row.operation}": 1.0,
        storage: 1.0,
        "size": row.log_bytes - float(np.log(REFERENCE_BYTES)),
        "writers": row.log_writers,
        "sharded": float(row.sharded),
        "alone": float(row.alone),
        f"source {row.source}": 1.0,
        f"method {row.method}": 1.0,
        f"{row.operation} of {row.source}": 1.0,
    }
