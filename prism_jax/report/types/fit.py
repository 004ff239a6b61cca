"""FitReport and KeptFitReport: a model of variability fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..codec import INLINE, WHERE_KNOWN, Json, Key
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True)
class VerdictFacts:
    """Whether a fit may be used, and why; None where a figure does not apply to the method.

    Attributes:
        cause: what failed: chains, divergences or approximation; empty where nothing did.
    """

    ok: bool
    sentence: str
    r_hat: float | None
    min_ess: float | None
    worst: str
    n_diverging: int
    k_hat: float | None
    cause: str = ""


@dataclass(frozen=True)
class RowsRead:
    """What became of the rows of the files.

    Attributes:
        dropped: rule in words -> rows dropped by it.
    """

    n_read: int
    n_kept: int
    dropped: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class FitFacts:
    """What a fit says.

    Attributes:
        what: "fit".
        variance_shares: level -> share of the variance of `variance_of`.
        about: what the model says of itself: parameters with 90 % intervals, notes.
        record: None where none was kept.
    """

    what: Annotated[str, Key("kind")]
    model: str
    method: str
    verdict: VerdictFacts
    variance_of: str
    variance_shares: Mapping[str, float]
    elapsed_s: float
    hygiene: RowsRead
    about: Mapping[str, Json]
    record: Annotated[RunRecord | None, INLINE, WHERE_KNOWN] = None


@dataclass(frozen=True)
class FitReport(Report):
    """A new fit, and how well it predicts what it has not seen.

    Attributes:
        holdout: figures of groups that were left out; absent if none were.
    """

    kind: ClassVar[str] = "fit"

    fit: Annotated[FitFacts, INLINE]
    holdout: Annotated[Mapping[str, Json] | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class KeptFitReport(Report):
    """A fit read from a file.

    Attributes:
        checks: fitted rows against replicated ones; None where the model offers no replication.
        loo: leave-one-out score; absent if not asked for.
    """

    kind: ClassVar[str] = "kept-fit"
    picture: ClassVar[str] = "prism_jax.plot.fit:draw"

    fit: Annotated[FitFacts, INLINE]
    checks: Mapping[str, Json] | None
    loo: Annotated[Mapping[str, Json] | None, WHERE_KNOWN] = None
