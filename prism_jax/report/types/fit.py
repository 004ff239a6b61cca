"""FitReport and KeptFitReport: a model of variability fitted to measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ..._core.content import ByContent
from ..codec import INLINE, OR_NULL, WHERE_KNOWN, Json, Key
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True, eq=False)
class Verdict(ByContent):
    """Whether a fit may be used, and why.

    Attributes:
        sentence: "good: ..." or "failed: ...", for people.
        r_hat: largest split r-hat of the reported sites; NaN for an approximation.
        min_ess: smallest effective sample size of the reported sites.
        worst: the site with the largest r-hat, or the smallest effective sample size.
        n_diverging: divergent transitions.
        k_hat: Pareto shape of the importance weights of an approximation; NaN for sampling.
        cause: what failed: chains, divergences or approximation; empty where nothing did.
    """

    ok: bool
    sentence: str
    r_hat: Annotated[float, OR_NULL]
    min_ess: Annotated[float, OR_NULL]
    worst: str
    n_diverging: int
    k_hat: Annotated[float, OR_NULL]
    cause: str = ""

    @property
    def why(self) -> str:
        """The sentence without its first word."""
        return self.sentence.partition(": ")[2] or self.sentence


@dataclass(frozen=True)
class CleaningReport:
    """Where the rows of the files went: `n_read` = `n_kept` + all that were dropped.

    Attributes:
        n_read: rows in the files.
        n_kept: rows that the model sees.
        dropped: rule in words -> rows dropped by it; a row counts under the first rule that it breaks.
        notes: what was assumed, joined or found suspicious.
    """

    n_read: int
    n_kept: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """As text, most frequent rule first."""
        dropped = sorted(self.dropped.items(), key=lambda item: -item[1])
        return [
            f"{self.n_read:,} rows read, {self.n_kept:,} kept",
            *(f"  {n:,} dropped: {rule}" for rule, n in dropped),
            *(f"note: {note}" for note in self.notes),
        ]


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
    verdict: Verdict
    variance_of: str
    variance_shares: Mapping[str, float]
    elapsed_s: float
    hygiene: CleaningReport
    about: Mapping[str, Json]
    record: Annotated[RunRecord | None, INLINE, OR_NULL, WHERE_KNOWN] = None


@dataclass(frozen=True)
class FitReport(Report):
    """A new fit, and how well it predicts what it has not seen.

    Attributes:
        holdout: figures of groups that were left out; absent if none were.
    """

    kind: ClassVar[str] = "fit"

    fit: Annotated[FitFacts, INLINE]
    holdout: Annotated[Mapping[str, Json] | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        from ..text.fit import lines

        return lines(self)


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

    def lines(self) -> list[str]:
        from ..text.kept_fit import lines

        return lines(self)
