"""Finds the labelled numbers of a line of text: "step:  5", "'loss': 2.3", "dt: 2500.06ms", "209,710 tok/s", "| 2.01s/it".

A number belongs to the label before it, as far back as a separator; of several words the longest known ending counts ("INFO step"
is a step, "data time" is nothing). Its unit stands in the label, behind the number, or nowhere. A bar of tqdm counts steps, tells
the rate and the time since the start, wherever it stands in the line. What torchrun, Slurm, mpirun, Ray and loggers put in front
says the rank and the time of day.

Every pattern is bounded, so that a hostile line costs time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from math import isnan
from typing import NamedTuple

from .log_entries import timestamp
from .quantities import NOT_TRAINING, UNITS, QuantityKind, kind_of, meaning

LONGEST_LINE = 2**15  # characters that are looked at
COLOUR = re.compile(
    r"(?:\x1b|\^\[|#033)?\[[0-9;]{1,12}m"
)  # as it is, or as tools write it that show or drop the escape
NUMBER = re.compile(
    r"(?<![\w.,])[-+]?(?:\d{1,3}(?:,\d{3}){1,6}(?![\d,])|\d{1,18})(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?(?![\d.]|_)"
    r"|(?<![\w.,])[-+]?(?:[nN]a[nN]|[iI]nf)(?!\w)"
)
_NUMPY = re.compile(r"\bnp\.float\d\d\(([^()]{1,40})\)")  # as Python prints a number of NumPy
_UNIT = re.compile(r" {0,2}([A-Za-zµ]{1,12}(?:(?: ?/ ?| per )[A-Za-z]{1,12}){0,2})")
_OF = re.compile(r" {0,8}/ {0,8}\d{1,15}(?![\d.]) {0,2}([a-z]{2,10})?| of \d{1,15}\b")
_FRONT = 160  # characters in which rank and time stand
_RANK = re.compile(
    r"\[(?:default|rank ?|RANK ?|Rank )(\d{1,6})\]|^\s{0,4}(\d{1,6}): |^\[\d{1,6},(\d{1,6})\]<std|\b[Rr]ank[ :=]{1,2}(\d{1,6})\b"
    r"|\(\w{1,40} pid=(\d{1,9})|^([\w.-]{1,60}-\d{1,6})(?: \||:) "
)
_BAR = re.compile(
    r"(?<![\d.])(\d{1,12})(?:/(\d{1,12}|\?)|(?:it|step|batch|ba|ex)?) {0,2}"
    r"\[(?:(\d{1,3}):)?(\d{1,3}):(\d\d)(?:<[^,\]]{0,20})?(?:, {0,8}"
    r"(?:(\d{1,9}(?:\.\d{1,6})?)|\?) {0,2}(s/it|it/s|s/step|steps?/s|s/batch|batch(?:es)?/s|s/ba|ba/s)|[,\]])"
)
_OTHER_FORMS = re.compile(  # bars of rich (Lightning) and of tqdm_loggable (Levanter)
    r"(?<![\d.])(\d{1,12})/(\d{1,12}) (?:(\d{1,3}):)?(\d{1,3}):(\d\d) \u2022 [-\d:]{1,12} (\d{1,9}(?:\.\d{1,6})?) ?(it/s|s/it)"
    r"|Progress on:[\w ]{1,40} (\d{1,12})(?:\.\d)?it/[\d.?]{1,14}(?:it)? rate:(\d{1,9}(?:\.\d{1,6})?)(it/s|s/it)"
)
_ELAPSED = re.compile(
    r"['\"]?\b(elapsed(?:_time)?|time[ _]elapsed)['\"]?[ :=]{1,3}['\"]?"
    r"(?:(\d{1,3})d ?)?(?:(\d{1,4})h ?)?(?:(\d{1,2})m ?)?(?:(\d{1,2})s\b)?"
    r"(?:(\d{1,4}):(\d\d):(\d\d))?"
)
_OTHER_BARS = re.compile(
    r"sanity|load|download|map|filter|tokeniz|pack|fetch|generat|sampl|sav|writ|eval|val|test|predict|read|process|shard|compil|captur|warm"
    r"|resolv|extract|split|concat|group|convert|export|init",
    re.IGNORECASE,
)
_NOT_OF_STEP = frozenset(
    [
        "micro", "eval", "evaluation", "val", "validation", "test", "valid", "sanity", "forward", "backward", "fwd",
        "bwd", "data", "load", "loading", "dataloader", "optimizer", "optim", "comm", "communication", "checkpoint",
        "save", "saving", "wait", "waiting", "idle", "bubble", "gen", "generation", "generate", "rollout",
        "inference", "decode", "prefill", "min", "minimum", "remaining", "left", "eta", "warmup", "warm-up",
        "compile", "next", "until", "every", "per", "last", "prev", "previous", "total", "max", "of", "each", "in",
        "to", "from", "iter_per", "substep", "ppo", "inner",
    ]
)  # fmt: skip
_SPLITS = re.compile(r"[|,;{}\t:]| {2,}| - |\]|[()](?=[^()]{0,60}$)|>")
_TRAILING = " \t\"':=|[(<>{-#~@*\u2022\u25b8"
NO_LABEL, FRACTION, UNLABELLED = "", "[i/n]", "number in "
BAR_STEP, BAR_RATE, BAR_CLOCK = "bar step", "bar rate", "bar clock"
_SAVES = re.compile(r"checkpoint|\bsav(?:e|ed|ing)\b|\bevaluat|\bvalidat|\bgarbage", re.IGNORECASE)
_SUFFIX_WORDS = 6


class LabelledNumber(NamedTuple):
    """A number of a line that says something of a step.

    Attributes:
        name: its label, as `quantities` reads it.
        kind: of the label, or of the unit behind the number.
        value: as written; a step as a whole number.
        unit_s: seconds of the unit of a time or of the time in a rate; None where nothing says it.
        start: in the line.
    """

    name: str
    kind: QuantityKind
    value: float
    unit_s: float | None
    start: int


class Line(NamedTuple):
    """Numbers, clock and rank in a line of a log.

    Attributes:
        found: its numbers.
        clock_s, resolution_s: time of day; NaN where there is none.
        rank: as the front of the line names it; empty where it does not.
        series: counter that a bar belongs to: what it is called, and its total; empty where there is no bar.
        goes_on: whether it goes on with the lines before it: it is indented, or a row of a drawn table.
    """

    found: tuple[LabelledNumber, ...]
    clock_s: float
    resolution_s: float
    rank: str
    series: str
    goes_on: bool


NOTHING = Line((), float("nan"), 0.0, "", "", False)
OTHER_BAR = NOTHING._replace(series="other")


@lru_cache(maxsize=1024)  # what is printed over and over is read once
def read_line(text: str) -> Line:
    """Reads the numbers that a line of a log states of a step."""
    text = text[:LONGEST_LINE]
    if "[" in text or "\x1b" in text:
        text = COLOUR.sub("", text)
    if "np.float" in text:
        text = _NUMPY.sub(r"\1", text)
    found: list[LabelledNumber] = []
    bar = _bar(text, found) if "[" in text and "/" in text else ("", 0)
    if bar is not None and not bar[0] and "it" in text:
        bar = _other_bar(text, found)
    if bar is None:
        return OTHER_BAR
    series, bar_end = bar
    front = text[:_FRONT]
    found += _labelled(text, bar_end)
    if not found:
        return NOTHING
    if not series and _is_no_training(text, found):
        return NOTHING
    clock = timestamp(front, min(_of_step(found), _FRONT)) or _elapsed(text) or (float("nan"), 0.0)
    if series and isnan(clock[0]):
        clock = next(one.value for one in found if one.name == BAR_CLOCK), 1.0
    rank = _RANK.search(front)
    named = "" if rank is None else next(group for group in rank.groups() if group is not None)
    begin = 0 if rank is None or rank.start() > 0 else rank.end()
    return Line(tuple(found), *clock, named, series, text[begin : begin + 1] in (" ", "\t", "|", ""))


def _is_no_training(text: str, found: list[LabelledNumber]) -> bool:
    """Whether a line is about an evaluation or a checkpoint: words before its step, or before a time with a plain name."""
    begin = _of_step(found)
    if NOT_TRAINING.search(text[:begin]) or _SAVES.search(text[:begin]):
        return True
    plain = [one.start for one in found if one.kind == QuantityKind.PLAIN_TIME]
    return bool(plain) and _SAVES.search(text[begin : max(plain)]) is not None


def _of_step(found: list[LabelledNumber]) -> int:
    """Index of the number of the step, else of the first number."""
    return next((one.start for one in found if one.kind == QuantityKind.STEP), found[0].start)


def _bar(text: str, found: list[LabelledNumber]) -> tuple[str, int] | None:
    """Reads the last bar of tqdm that is one of training: which one it is, and where it ends; None where all are others."""
    last: re.Match[str] | None = None
    begins = 0
    title = ""
    for one in _BAR.finditer(text):
        words, begins = text[begins : one.start()], one.end()
        if not _OTHER_BARS.search(words[-80:].partition("%|")[0]):
            last, title = one, words
    if last is None:
        return None if begins else ("", 0)
    n, total, hours, minutes, seconds, rate, unit = last.groups()
    elapsed_s = 3600.0 * int(hours or 0) + 60.0 * int(minutes) + int(seconds)
    found += _of_bar(last.start(), float(n), elapsed_s, float(rate or 0.0), str(unit))
    return f"{re.sub(r'[^A-Za-z]{1,400}', ' ', title[-120:]).strip()[:40]} {total or 'open'}", last.end()


def _other_bar(text: str, found: list[LabelledNumber]) -> tuple[str, int]:
    """Reads a bar that is not drawn by tqdm."""
    one = _OTHER_FORMS.search(text)
    if one is None or _OTHER_BARS.search(text[max(one.start() - 80, 0) : one.start()]):
        return "", 0
    n, total, hours, minutes, seconds, rate, unit = (
        one.groups()[:7] if one[1] else (one[8], "", 0, 0, 0, one[9], one[10])
    )
    clock_s = 3600.0 * int(hours or 0) + 60.0 * int(minutes) + int(seconds) if total else float("nan")
    found += _of_bar(one.start(), float(n), clock_s, float(rate), str(unit))
    return f"bar {total or 'open'}", one.end()


def _of_bar(start: int, n: float, clock_s: float, rate: float, unit: str) -> Iterator[LabelledNumber]:
    """The numbers of a bar: the step, the time since the start and, if it is said, the rate."""
    yield LabelledNumber(BAR_STEP, QuantityKind.STEP, n, None, start)
    yield LabelledNumber(BAR_CLOCK, QuantityKind.CLOCK, clock_s, 1.0, start)
    if rate > 0.0:
        kind = QuantityKind.TIME if unit.startswith("s/") else QuantityKind.STEP_RATE
        yield LabelledNumber(BAR_RATE, kind, rate, 1.0, start)


def _elapsed(text: str) -> tuple[float, float] | None:
    """The time since the start as text: "0:01:40", "1m 40s"; and how finely it is written."""
    found = _ELAPSED.search(text) if "lapsed" in text else None
    if found is None or not any(found.groups()[1:]):
        return None
    days, hours, minutes, seconds, h, m, s = (int(part or 0) for part in found.groups()[1:])
    return 86_400.0 * days + 3600.0 * (hours + h) + 60.0 * (minutes + m) + seconds + s, 1.0


def _labelled(text: str, begin: int) -> list[LabelledNumber]:
    found: list[LabelledNumber] = []
    end = begin or _date_end(text)
    for number in NUMBER.finditer(text, end):
        start = number.start()
        left = text[max(end, start - 80) : start]
        end = number.end()
        of = _OF.match(text, end)
        if of is not None and number[0].isdigit():
            end = of.end()
        unit = _UNIT.match(text, end) if of is None else None
        if unit is not None and unit[1] == "s" and _MINUTES.search(text, max(start - 6, 0), start):
            continue  # "3m 18s" is no 18 s
        about = _label(left)
        known = None if about is None else _with_unit(about, "" if unit is None else unit[1], of)
        if known is None:
            continue
        name, kind, unit_s = known
        if unit is not None and (kind != QuantityKind.STEP or unit_s is not None):
            end = unit.end()
        value = _value(number[0], kind)
        if value is not None:
            found.append(LabelledNumber(name, kind, value, unit_s, start))
    return found


def _date_end(text: str) -> int:
    """End of the date in front of a line, whose numbers are not read."""
    front = _DATES.match(text)
    return 0 if front is None else front.end()


_MINUTES = re.compile(r"\d ?[mh] ?$")
_DATES = re.compile(
    r"[^\d]{0,80}?(?:(?:19|20)\d\d[-/]?\d\d[-/]?\d\d|\d\d[-/]\d\d(?:[-/](?:20)?\d\d)?)[T _-]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
    r"(?:Z|[+-]\d\d:?\d\d)?|[^\d]{0,20}?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\b"
)


def _value(text: str, kind: QuantityKind) -> float | None:
    """The number, without separators of thousands; None for a step that is no whole number."""
    digits = text.replace(",", "")
    return None if kind == QuantityKind.STEP and not digits.isdigit() else float(digits)


class _Label(NamedTuple):
    name: str
    kind: QuantityKind | None
    bracket: bool


@lru_cache(maxsize=50_000)
def _label(left: str) -> _Label | None:
    """Name of a number in the text between it and the one before; a name of no kind where the text has none."""
    stripped = left.rstrip(_TRAILING)
    tail = left[len(stripped) :]
    if tail == "" and stripped:
        return None  # no separator: part of a word
    cut = 0
    for one in _SPLITS.finditer(stripped):
        if one[0] == ")" or (one[0] == "(" and ")" in stripped[one.start() :]):
            continue
        cut = one.end()
    words = stripped[cut:].strip(" \t\"'[<-*#=~>.\u2022\u25b8").split(" ")
    words = [word for word in words if word]
    if not words:
        return _Label(NO_LABEL, None, "[" in tail)
    for first in range(max(len(words) - _SUFFIX_WORDS, 0), len(words)):
        name = " ".join(words[first:]).strip("\"'")
        kind = kind_of(name)
        if kind is None or (kind == QuantityKind.PLAIN_TIME and meaning(name).base == "" and first > 0):
            continue
        before = words[first - 1].lower().strip("\"'") if first > 0 else ""
        if NOT_TRAINING.search(name) or before in _NOT_OF_STEP or before.endswith(("_time", "-time")):
            return None
        if (
            kind == QuantityKind.PLAIN_TIME
            and first > 0
            and before not in ("train", "training", "step", "iteration", "batch")
        ):
            return None
        return _Label(name, kind, False)
    return _Label(" ".join(words)[-40:], None, False)


@lru_cache(maxsize=50_000)
def _of_unit(unit: str) -> tuple[QuantityKind, float] | None:
    """Kind of quantity by the unit behind a number: a time, a rate of steps or of work."""
    if unit in UNITS:
        return QuantityKind.PLAIN_TIME, UNITS[unit]
    if "/" not in unit and " per " not in unit:
        return None
    found = meaning(unit.replace(" per ", "/").replace(" ", ""))
    if found.items:
        return (QuantityKind.STEP_RATE if found.items == "steps" else QuantityKind.WORK_RATE), found.unit_s or 1.0
    return (QuantityKind.TIME, found.unit_s) if found.base.startswith("per_") and found.unit_s else None


def _with_unit(label: _Label, unit: str, of: re.Match[str] | None) -> tuple[str, QuantityKind, float | None] | None:
    """Name, kind and unit of a number with this label, this unit behind it and, if so, "/ 100" behind it."""
    name, kind, bracket = label
    if kind == QuantityKind.STEP:
        return name, kind, None
    if of is not None:
        counted = of[1] in ("batches", "steps", "iterations", "iters", "updates", "it")
        return (
            (FRACTION, QuantityKind.STEP, None) if kind is None and name == NO_LABEL and (bracket or counted) else None
        )
    if kind is not None:
        return name, *_known(name, kind, unit)
    if unit == "batch" and name == NO_LABEL:
        return FRACTION, QuantityKind.STEP, None
    said = _of_unit(unit) if unit else None
    if said is None or (said[0] == QuantityKind.PLAIN_TIME and name != NO_LABEL):
        return None
    return (f"{UNLABELLED}{unit}" if name == NO_LABEL else f"{name} {unit}"), said[0], said[1]


def _known(name: str, kind: QuantityKind, unit: str) -> tuple[QuantityKind, float | None]:
    """Kind and unit of a number whose label is known: the unit behind it counts more than that of the label."""
    own = meaning(name).unit_s
    if kind in (QuantityKind.STEP_RATE, QuantityKind.WORK_RATE):
        return kind, own
    said = _of_unit(unit) if unit else None
    if said is not None and said[0] == QuantityKind.PLAIN_TIME:
        return kind, said[1]
    if said is not None and said[0] in (QuantityKind.TIME, QuantityKind.STEP_RATE):
        return said
    letters = {"K": 1e3, "M": 1e6, "k": 1e3}.get(unit)
    return kind, own * letters if letters and own else own
