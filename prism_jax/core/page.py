"""A report as a page: a card, which is the first screen, and blocks below it; `page_text` and `page_html` print pages.

A kind of report says what stands on its page by `Report.page`; it writes neither text nor HTML. All texts are plain: a printer
escapes them for its medium and breaks lines to the width that it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

T = TypeVar("T")
Tone: TypeAlias = Literal["good", "bad", "unsure", "plain"]
INTERVAL = re.compile(r"±|\d\S*( \w+)? to [-+]?\d| certainty|interval|at least")  # how texts say how sure a figure is


@dataclass(frozen=True)
class Card:
    """The first screen: what was asked about, the answer, how sure it is, and what to do next; at most ten lines of 80 columns.

    Attributes:
        title: what the answer is about.
        verdict: the answer in one sentence.
        tone: of the verdict: its colour.
        facts: name -> central figures with their intervals, the most important first; those without a text are left out.
        evidence: what the answer rests on, and how far it was off elsewhere.
        assumptions: those that matter most, as sentences.
        next_step: what to do next.
    """

    title: str
    verdict: str
    tone: Tone = "plain"
    _: KW_ONLY
    facts: Mapping[str, str]
    evidence: str
    assumptions: tuple[str, ...] = ()
    next_step: str = ""

    @property
    def rows(self) -> Iterator[tuple[str, str]]:
        """Names and texts below the verdict, in the order of reading."""
        assumed = (("assumed", one) for one in self.assumptions)
        rows = (*self.facts.items(), ("evidence", self.evidence), *assumed, ("next", self.next_step))
        yield from ((name, text) for name, text in rows if text)

    def missing(self, *, is_estimate: bool) -> tuple[str, ...]:
        """Returns the parts of a first screen that this one lacks.

        Args:
            is_estimate: whether it answers by an estimate: then an interval or error stands next to a figure, and what is assumed
                is told. What is counted or read has neither.
        """
        parts = {
            "verdict": self.verdict.endswith("."),
            "central figure": any(char.isdigit() for text in (self.verdict, *self.facts.values()) for char in text),
            "interval": not is_estimate or any(map(INTERVAL.search, (self.verdict, *self.facts.values()))),
            "evidence": bool(self.evidence),
            "assumptions": not is_estimate or bool(self.assumptions),
        }
        return tuple(name for name, is_there in parts.items() if not is_there)

    def as_group(self) -> Group:
        """The card among other blocks."""
        rows: dict[str, str] = {}
        for name, text in self.rows:
            rows[name] = f"{rows[name]}; {text}" if name in rows else text
        return Group(self.title, [Note(self.verdict, self.tone), Facts("", rows)])


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Facts:
    """Names and values of one thing; values without a text are left out.

    Attributes:
        has_paragraphs: whether values are descriptions of the package, whose line ends are kept.
    """

    title: str
    facts: Mapping[str, str]
    has_paragraphs: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "facts", {name: text for name, text in self.facts.items() if text})


@dataclass(frozen=True)
class Table:
    """Rows under headings; `title` may be empty."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    @classmethod
    def of(cls, title: str, items: Iterable[T], columns: Mapping[str, Callable[[T], str]]) -> Table:
        """Makes a table with a row for each item.

        Args:
            columns: heading -> text of the cell of an item; a column without any text is left out.
        """
        named = list(items)
        cells = {heading: [text(one) for one in named] for heading, text in columns.items()}
        shown = {heading: own for heading, own in cells.items() if any(own)}
        return cls(title, tuple(shown), list(zip(*shown.values(), strict=True)))

    @classmethod
    def named(
        cls, title: str, heading: str, items: Iterable[tuple[str, T]], columns: Mapping[str, Callable[[T], str]]
    ) -> Table:
        """Makes a table with a row for each item, whose first cell is the item's name; `columns` as in `of`."""

        def of_item(text: Callable[[T], str]) -> Callable[[tuple[str, T]], str]:
            return lambda pair: text(pair[1])

        return cls.of(
            title, items, {heading: lambda pair: pair[0], **{n: of_item(text) for n, text in columns.items()}}
        )

    def is_numeric(self, index: int) -> bool:
        """Whether a column holds numbers, which are aligned right; the first one names the rows."""
        cells = [row[index] for row in self.rows if row[index]]
        return index > 0 and bool(cells) and all(cell[0].isdigit() or cell[0] in "-+" for cell in cells)


@dataclass(frozen=True)
class Bar:
    """One bar: its name, what is written next to it, and its length as a share (0-1) of the longest possible.

    Attributes:
        start: share at which it begins, where bars follow each other as a waterfall; 0: at the left.
    """

    name: str
    text: str
    share: float
    start: float = 0.0


@dataclass(frozen=True)
class Bars:
    """Shares of a whole as bars."""

    title: str
    bars: Sequence[Bar]


def waterfall(bars: Iterable[Bar]) -> list[Bar]:
    """Bars of parts that add up to a whole, each beginning where the one before it ends."""
    found: list[Bar] = []
    start = 0.0
    for one in bars:
        found.append(replace(one, start=start))
        start += one.share
    return found


def excess_bars(title: str, values: Mapping[str, tuple[str, float]], best: float, digits: int) -> Bars:
    """Bars of how far values lie above the best one, relatively; none where no per cent with `digits` decimals shows it.

    Args:
        values: name -> its value as text, and as a number.
        best: value that the others are compared with.
        digits: decimals of the per cent.
    """
    excess = {name: value / best - 1.0 for name, (_, value) in values.items()}
    largest = max(excess.values())
    length = largest if largest >= 0.5 * 10.0 ** -(digits + 2) else float("inf")
    texts = {name: f"{text} {excess[name]:>+7.{digits}%}" for name, (text, _) in values.items()}
    return Bars(title, [Bar(name, texts[name], excess[name] / length) for name in values])


@dataclass(frozen=True)
class Code:
    """Text of a file or a command, as it is."""

    title: str
    text: str


@dataclass(frozen=True)
class Group:
    """Blocks that belong together, under a title."""

    title: str
    blocks: Sequence[Block]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _filled(self.blocks))


Block: TypeAlias = Note | Facts | Table | Bars | Code | Group


@dataclass(frozen=True)
class Page:
    """Report as a person sees it.

    Attributes:
        card: the first screen; None where the blocks are short or a list is all that was asked for.
        blocks: what follows: printed with `--details`, or where there is no card; those that hold nothing are left out.
        is_short: whether text is the card alone.
    """

    card: Card | None
    blocks: Sequence[Block]
    is_short: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", _filled(self.blocks))

    @property
    def n_notes(self) -> int:
        """How many notes and warnings are among the blocks."""
        return sum(isinstance(one, Note) and one.text.startswith(("note: ", "warning: ")) for one in self.blocks)


SURE, UNLIKELY = 0.9, 0.5  # probabilities of a promise that is kept, or missed
HELD = ("text", "facts", "rows", "bars", "blocks")  # parts of a block that are more than its title


def _filled(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Blocks that hold a text, a row or a bar."""
    return tuple(one for one in blocks if any(vars(one).get(part) for part in HELD))


def tone_of_chance(prob: float) -> Tone:
    """The tone of a promise that is kept with probability `prob`."""
    return "good" if prob >= SURE else "unsure" if prob >= UNLIKELY else "bad"


def notes(texts: Iterable[str], word: str = "note") -> list[Note]:
    """Notes on a report, each behind the word for its kind."""
    return [Note(f"{word}: {text}") for text in texts]


def left_out(n: int, most: int, what: str, where: str = "--json lists them") -> Note:
    """Note on how many of `n` things are not among the `most` that a table lists, and where; empty where all are."""
    return Note(f"and {n - most:,} more {what} ({where})" if n > most else "")


MOST_ROWS = 200  # of a table that no kind of report has laid out
WITHOUT = ("schema", "record", "elapsed_s")  # keys that say how a report was made


def page_of_data(data: Mapping[str, Any]) -> Page:
    """The page of a report whose kind lays out none: numbers and texts as facts, lists of objects as tables.

    Args:
        data: of `Report.to_dict`.
    """
    return Page(None, tuple(_blocks({name: value for name, value in data.items() if name not in WITHOUT}, "")))


def _blocks(data: Mapping[str, Any], title: str) -> Iterator[Block]:
    plain = {name: cell(value) for name, value in data.items() if not isinstance(value, (Mapping, list))}
    plain |= {name: ", ".join(map(cell, value)) for name, value in data.items() if _is_short(value)}
    if plain:
        yield Facts(title, {name: text for name, text in plain.items() if text})
    for name, value in data.items():
        below = f"{title}.{name}" if title else name
        if isinstance(value, Mapping):
            yield from _blocks(value, below)
        elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
            columns = list(
                dict.fromkeys(key for one in value for key, own in one.items() if not isinstance(own, Mapping))
            )
            yield Table(below, columns, [[cell(one.get(key)) for key in columns] for one in value[:MOST_ROWS]])


MOST_POINTS, MOST_CURVES = 41, 6  # of what a picture draws: rows of a table, and tables


def curve_tables(data: Mapping[str, Any]) -> list[Table]:
    """Tables of the curves inside a report, which its picture draws and its blocks leave out: evenly spaced points, both ends.

    Args:
        data: of `Report.to_dict`. A curve is an object with two or more lists of numbers of one length.
    """
    return list(islice(_curves(data, ()), MOST_CURVES))


def _curves(data: Any, place: tuple[str, ...]) -> Iterator[Table]:
    if isinstance(data, list):
        named = data if any(isinstance(one, Mapping) for one in data) else ()
        for number, one in enumerate(named, 1):
            yield from _curves(one, (*place, str(number)))
    if not isinstance(data, Mapping):
        return
    lists = {name: value for name, value in data.items() if isinstance(value, list) and all(map(_is_number, value))}
    length = max(map(len, lists.values()), default=0)
    columns = [name for name, value in lists.items() if len(value) == length]
    if length > 2 and len(columns) > 1:
        step = max(1.0, (length - 1) / (MOST_POINTS - 1))
        points = dict.fromkeys(min(length - 1, round(step * k)) for k in range(MOST_POINTS))
        rows = [[cell(lists[name][at]) for name in columns] for at in points]
        yield Table(" ".join(place) or "curve", columns, rows)
    for name, value in data.items():
        yield from _curves(value, (*place, name.replace("_", " ")))


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_short(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(one, (Mapping, list)) for one in value) and len(value) <= 20


def cell(value: Any) -> str:
    """A plain value as people read it; nothing for None."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)
