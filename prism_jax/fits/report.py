"""Reports a model of variability fitted to measurements, new or read from a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from ..core.content import ByContent
from ..core.report import INLINE, OR_NULL, WHERE_KNOWN, Json, Key, Report, RunRecord
from ..core.text_table import bar
from ..core.units import format_s


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
        return [*fit_lines(self.fit), *scores("groups left out", self.holdout)]


@dataclass(frozen=True)
class KeptFitReport(Report):
    """A fit read from a file.

    Attributes:
        checks: fitted rows against replicated ones; None where the model offers no replication.
        loo: leave-one-out score; absent if not asked for.
    """

    kind: ClassVar[str] = "kept-fit"
    picture: ClassVar[str] = "prism_jax.fits.picture:draw_fit"

    fit: Annotated[FitFacts, INLINE]
    checks: Mapping[str, Json] | None
    loo: Annotated[Mapping[str, Json] | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        return [
            *fit_lines(self.fit),
            *scores("fitted rows, replicated", self.checks),
            *scores("leave one out", self.loo),
        ]


MAX_R_HAT = 1.01  # up to which chains agree: then they are too short
SMALLEST_SHARE = 0.0005  # smaller ones would print as 0.0 %
KNOWN_TO = 0.03  # half of the 90 % interval of a share, above which it is a range and not a number
INTERVALS = "variance_share_intervals"  # in what a model says of itself: level -> median, p5, p95
SKIPPED = ("variance_of", "variance_shares", INTERVALS, "notes")


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
LEAST_SQUARES = "the latency and bandwidth under `least squares` need no sampling and stand whatever the verdict"


def fit_lines(fit: FitFacts) -> list[str]:
    """Verdict, rows, shares of variance and parameters."""
    verdict = fit.verdict
    remedy = [] if verdict.ok else [f"remedy: {_remedy(fit)}"]
    found = [
        f"{fit.model} fitted by {fit.method} in {fit.elapsed_s:.1f} s: {verdict.sentence}",
        *remedy,
        *fit.hygiene.lines(),
    ]
    if fit.variance_shares:
        found += ["", f"share of the variance of {fit.variance_of}"]
        width = max(12, *map(len, fit.variance_shares))
        shown, small = shares_to_show(fit.variance_shares)
        texts = {name: share_text(share, fit.about.get(INTERVALS, {}).get(name)) for name, share in shown.items()}
        wide = max([6, *map(len, texts.values())])
        for name, share in shown.items():
            found.append(f"  {name:<{width}} {texts[name]:>{wide}}  {bar(share)}")
        found += [f"  under 0.1 %: {', '.join(small)}"] if small else []
    found += ["", "parameters (median, 90 % interval)"]
    found += [f"  {line}" for line in _tree({k: v for k, v in fit.about.items() if k not in SKIPPED})]
    return found + [f"note: {note}" for note in fit.about.get("notes", ())]


def _remedy(fit: FitFacts) -> str:
    verdict = fit.verdict
    few = verdict.cause == "chains" and verdict.r_hat <= MAX_R_HAT
    known = REMEDY.get("few draws" if few else verdict.cause, "fit again, or look at the data")
    has_law = "least_squares" in fit.about and verdict.cause != "law"
    return f"{known}; {LEAST_SQUARES}" if has_law else known


def share_text(share: float, interval: Mapping[str, float] | None) -> str:
    """A share as a number where it is known to `KNOWN_TO`, else as the range that holds it with 90 %."""
    if interval is None or interval["p95"] - interval["p5"] <= 2.0 * KNOWN_TO:
        return f"{share:.1%}"
    return f"{100.0 * interval['p5']:.0f} to {interval['p95']:.0%}"


def shares_to_show(shares: Mapping[str, float]) -> tuple[dict[str, float], list[str]]:
    """Shares that print as more than 0.0 %, and the names of the others."""
    shown = {name: share for name, share in shares.items() if share >= SMALLEST_SHARE}
    return shown, [name for name in shares if name not in shown]


def scores(title: str, figures: Mapping[str, Any] | None) -> list[str]:
    """Figures under a title; nothing where there are none."""
    return ["", title, *(f"  {line}" for line in _tree(figures))] if figures else []


def _tree(value: Mapping[str, Any]) -> Iterator[str]:
    """Nested values, indented; an interval on one line."""
    for name, part in value.items():
        label, text = _label(str(name)), _seconds if _is_time(str(name)) else _number
        if isinstance(part, Mapping) and set(part) == {"median", "p5", "p95"}:
            yield f"{label:<28} {text(part['median'])}   ({text(part['p5'])} to {text(part['p95'])})"
        elif name == "variance_shares":
            continue  # with their intervals
        elif isinstance(part, Mapping):
            yield label
            yield from (f"  {line}" for line in _tree(part))
        elif isinstance(part, (list, tuple)) and (not part or isinstance(part[0], Mapping)):
            continue  # notes tell of members that are named
        elif isinstance(part, (list, tuple)):
            yield f"{label:<28} {', '.join(text(item) for item in part)}"
        elif part is not None:
            yield f"{label:<28} {text(part)}"


def _is_time(name: str) -> bool:
    return name.endswith("_s") and not name.endswith("_per_s") and not name.startswith("log_")


def _label(name: str) -> str:
    """Plain words of a name; a time has its unit in its value."""
    words = name.removesuffix("_s") if _is_time(name) else name
    return words.replace("_", " ")


def _seconds(value: Any) -> str:
    return format_s(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _number(value)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "unknown" if value is None else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
