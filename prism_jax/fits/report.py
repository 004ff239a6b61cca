"""Reports a model of variability fitted to measurements, new or read from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from ..core.content import ByContent
from ..core.page import Bar, Bars, Block, Card, Facts, Group, Note, Table, notes
from ..core.readable import counted, duration, some
from ..core.report import INLINE, OR_NULL, WHERE_KNOWN, Json, Key, Report, RunRecord
from .parameters import INTERVALS, SKIPPED, groups, label


@dataclass(frozen=True, eq=False)
class Verdict(ByContent):
    """Whether a fit may be used, and why.

    Attributes:
        sentence: "good: ...", "failed: ...", or what alone is known ("bandwidth only: ..."), for people.
        r_hat: largest split r-hat of the reported sites; NaN for an approximation.
        min_ess: smallest effective sample size of the reported sites.
        worst: the site with the largest r-hat, or the smallest effective sample size.
        n_diverging: divergent transitions.
        k_hat: Pareto shape of the importance weights of an approximation; NaN for sampling.
        cause: what failed: chains, divergences, approximation or law (least squares); empty where nothing did.
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
    """Counts of the rows of the files: `n_read` = `n_kept` + all that were dropped.

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

    def blocks(self) -> list[Block]:
        """Rows read and dropped, most frequent rule first, and notes."""
        dropped = sorted(self.dropped.items(), key=lambda item: -item[1])
        facts = {"read": f"{self.n_read:,} rows", "kept": f"{self.n_kept:,} rows"}
        table = Table("Rows dropped", ("rows", "why"), [(f"{n:,}", rule) for rule, n in dropped])
        return [Facts("Rows", facts), table, *notes(self.notes)]


@dataclass(frozen=True)
class FitFacts:
    """Parameters, variance shares and verdict of a fit.

    Attributes:
        what: "fit".
        variance_shares: level -> share of the variance of `variance_of`.
        about: what the model says of itself: parameters with 90% intervals, notes.
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
    picture: ClassVar[str] = "prism_jax.fits.picture:draw_fit"

    fit: Annotated[FitFacts, INLINE]
    holdout: Annotated[Mapping[str, Json] | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        return fit_card(self.fit, self.holdout, is_new=True)

    def blocks(self) -> Sequence[Block]:
        return (*figures("Groups left out", self.holdout), *fit_blocks(self.fit))


@dataclass(frozen=True)
class CollectiveCurve:
    """Bus bandwidth of one collective at one scale by message size: measured, and as a fit has it.

    Attributes:
        op, n_gpus, n_nodes: which.
        fabric: GPU, network and source, as far as known.
        measured_bytes, measured_bus: message sizes, and bytes per second over a link there.
        n_bytes: sizes at which the curve is given.
        low, middle, high: 5%, median and 95% there, bytes per second.
    """

    op: str
    n_gpus: int
    n_nodes: int
    fabric: str
    measured_bytes: tuple[float, ...]
    measured_bus: tuple[float, ...]
    n_bytes: tuple[float, ...]
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def bus(self) -> tuple[tuple[float, ...], ...]:
        """The three lines."""
        return self.low, self.middle, self.high


@dataclass(frozen=True)
class ReplicatedValues:
    """Measured values and what the model replicates in their place, sorted, for pictures.

    Attributes:
        what: what a value is, with its unit.
        level: share of the values below.
        measured, low, middle, high: at these shares: measured, and 5%, median and 95% of replicated data sets.
    """

    what: str
    level: tuple[float, ...]
    measured: tuple[float, ...]
    low: tuple[float, ...]
    middle: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class KeptFitReport(Report):
    """A fit read from a file.

    Attributes:
        checks: fitted rows against replicated ones; None where the model offers no replication.
        loo: leave-one-out score; absent if not asked for.
        bandwidths: of collectives; replicated: of what has replication; for pictures, absent in reports of versions before 0.2.
    """

    kind: ClassVar[str] = "kept-fit"
    picture: ClassVar[str] = "prism_jax.fits.picture:draw_fit"

    fit: Annotated[FitFacts, INLINE]
    checks: Mapping[str, Json] | None
    loo: Annotated[Mapping[str, Json] | None, WHERE_KNOWN] = None
    bandwidths: Annotated[tuple[CollectiveCurve, ...] | None, WHERE_KNOWN] = None
    replicated: Annotated[ReplicatedValues | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        return fit_card(self.fit, self.loo or self.checks, is_new=False)

    def blocks(self) -> Sequence[Block]:
        return (
            *figures("Fitted rows, replicated", self.checks),
            *figures("Leave one out", self.loo),
            *fit_blocks(self.fit),
        )


MAX_R_HAT = 1.01  # up to which chains agree: then they are too short
SMALLEST_SHARE = 0.0005  # smaller ones would print as 0.0%
KNOWN_TO = 0.03  # half of the 90% interval of a share, above which it is a range and not a number


REMEDY = {  # what failed -> what to do at the command line
    "few draws": "draw more (--draws 2000)",
    "law": "use --method nuts, which lets every size differ from the law, or look at the data (--where keeps one setting)",
    "chains": (
        "the chains disagree, and more draws seldom mend that: the data hold several things at once (machines, libraries, "
        "settings; --where keeps one), or too little to tell them apart (add runs); or try --method map"
    ),
    "divergences": (
        "the sampler does not reach all of the posterior, and more draws do not mend that: look at the data (several machines, "
        "sizes or kernels in one file? --where keeps one), or try --method map"
    ),
    "approximation": "use --method nuts",
}
LEAST_SQUARES = "latency and bandwidth under `least squares` stand whatever the verdict"


def fit_card(fit: FitFacts, checked: Mapping[str, Any] | None, *, is_new: bool) -> Card:
    """Verdict, what varies or the first parameters, and the rows behind them.

    Args:
        checked: figures of what the fit was held against, if there are any.
        is_new: whether it may have to be kept first.
    """
    from ..trace.level_changes import MIXES  # loads NumPy, which lists of reports do without

    rows, about = fit.hygiene, fit.about
    told = (*about.get("notes", ()), *rows.notes)
    mixed = next((note.partition(f": {MIXES}")[0] for note in told if MIXES in note), "")
    unlike = str(about.get("unlike", "")) if fit.verdict.ok else ""
    judged = f"unlike the data: {unlike} ({fit.verdict.why})" if unlike else fit.verdict.sentence
    sentence = f"{judged[:1].upper()}{judged[1:].rstrip('.')}"
    is_good = judged.startswith("good:") and not mixed
    use = "-o FILE keeps it for predict --fit FILE" if is_new else "prism-jax predict JOB --fit FILE"
    return Card(
        f"{fit.model} fitted by {label(fit.method)} in {duration(fit.elapsed_s)}",
        f"{sentence}{', but the steps have several levels' if mixed else ''}.",
        "bad" if not fit.verdict.ok else "good" if is_good else "unsure",
        facts={**(_central(fit) or {"method": label(fit.method)}), "warning": mixed},
        evidence=_rows_behind(fit, checked or {}),
        assumptions=("what is predicted with it varies as these rows do",),
        next_step=use if fit.verdict.ok else f"remedy: {_remedy(fit)}",
    )


def _rows_behind(fit: FitFacts, checked: Mapping[str, Any]) -> str:
    """Rows that the model sees, what they are of, and how much of what was held against it lies in its interval."""
    rows, covered = fit.hygiene, checked.get("coverage_90")
    counts = (counted(fit.about[name], word) for name, word in COUNTED.items() if name in fit.about)
    held = "" if covered is None else f"; {covered:.0%} of what it was held against lies in its 90% interval"
    return f"{', '.join((f'{rows.n_kept:,} of {rows.n_read:,} rows', *counts))}{held}"


COUNTED = {"n_gpus": "GPU", "n_nodes": "node", "n_runs": "run", "n_systems": "system", "n_steps": "step"}
MOST_CENTRAL = 3


def _central(fit: FitFacts) -> dict[str, str]:
    """Shares of variance, and who stands out; of other models the first parameters."""
    shown = sorted(shares_to_show(fit.variance_shares)[0].items(), key=lambda item: -item[1])
    known = fit.about.get(INTERVALS, {})
    shares = some([f"{name} {share_text(share, known.get(name))}" for name, share in shown], MOST_CENTRAL)
    named = [
        f"{'GPU' if one['gpu'] else 'node'} {one['name']} {one['excess']:+.1%} ({one['sigma']:.0f} sigma)"
        for part in fit.about.values()
        if isinstance(part, Mapping)
        for one in part.get("named") or ()
    ]
    found = {"variance": f"of {fit.variance_of}: {shares}" if shown else "", "stands out": some(named, MOST_CENTRAL)}
    found = {name: text for name, text in found.items() if text}
    return found if any(" to " in text for text in found.values()) else found | _first_parameters(fit, bool(found))


def _first_parameters(fit: FitFacts, is_one: bool) -> dict[str, str]:
    """Parameters with an interval, else times and rates; times and rates first."""
    parts = ((title.rpartition(", ")[2], own) for title, own in groups("", fit.about))
    facts = [(f"{part} {name}".strip(), text) for part, own in parts for name, text in own.items() if name != "notes"]
    known = [one for one in facts if " to " in one[1]] or [one for one in facts if one[1].endswith("s")]
    return dict(sorted(known, key=lambda one: not one[1].endswith("s)"))[: 1 if is_one else MOST_CENTRAL])


def fit_blocks(fit: FitFacts) -> list[Block]:
    """Shares of variance, parameters, rows and notes."""
    shown, small = shares_to_show(fit.variance_shares)
    known = fit.about.get(INTERVALS, {})
    bars = [Bar(name, share_text(share, known.get(name)), share) for name, share in shown.items()]
    return [
        Bars(f"Share of the variance of {fit.variance_of}", bars),
        Note(f"under 0.1%: {', '.join(small)}" if small else ""),
        *figures("Parameters (median, 90% interval)", {k: v for k, v in fit.about.items() if k not in SKIPPED}),
        *fit.hygiene.blocks(),
        *notes(fit.about.get("notes", ())),
    ]


def _remedy(fit: FitFacts) -> str:
    verdict = fit.verdict
    few = verdict.cause == "chains" and verdict.r_hat <= MAX_R_HAT
    known = REMEDY.get("few draws" if few else verdict.cause, "fit again, or look at the data")
    has_law = "least_squares" in fit.about and verdict.cause != "law"
    return f"{known}; {LEAST_SQUARES}" if has_law else known


def share_text(share: float, interval: Mapping[str, float] | None) -> str:
    """A share as a number where it is known to `KNOWN_TO`, else as the range that holds it with 90%."""
    if interval is None or interval["p95"] - interval["p5"] <= 2.0 * KNOWN_TO:
        return f"{share:.1%}"
    return f"{100.0 * interval['p5']:.0f} to {interval['p95']:.0%}"


def shares_to_show(shares: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Shares that print as more than 0.0%, and the names of the others."""
    shown = {name: share for name, share in shares.items() if share >= SMALLEST_SHARE}
    return shown, [name for name in shares if name not in shown]


def figures(title: str, values: Mapping[str, Any] | None) -> list[Block]:
    """Figures under a title, each group of them under its own; nothing where there are none."""
    found = [Facts(name, facts) for name, facts in groups("", values or {}) if facts]
    return [Group(title, found)] if any(one.title for one in found) else [Facts(title, one.facts) for one in found]
