"""Prints pages as text, to a width: sentences and cells are wrapped, a table that is too wide is split into groups of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from .errors import printable, printable_lines
from .page import Bars, Block, Card, Code, Facts, Group, Note, Page, Table, Tone
from .readable import bar, counted

WIDTH = 100  # columns, where nobody looks: sentences of a pipe or a file; tables stay whole there
NARROWEST = 20  # columns of a text, however little is left
WIDEST_NAME = 32
WIDEST_OF_CARD = 24  # texts of other rows stand behind a longer name as they are, so that the others keep their room
SPACE = "   "  # between columns
COLOURS: dict[Tone, str] = {"good": "32", "bad": "31", "unsure": "33"}  # ANSI


def page_lines(page: Page, width: int | None = None, *, colour: bool = False) -> list[str]:
    """A page as lines.

    Args:
        width: columns; None: sentences of `WIDTH`, tables as wide as they are.
        colour: whether verdicts have their colour, by ANSI codes.
    """
    parts = [] if page.card is None else [_card(_with_rest(page.card, page.n_notes), width, colour)]
    if page.card is None or not page.is_short:
        parts += [_block(one, width, colour) for one in page.blocks]
    lines = [line.rstrip() for part in parts if part for line in (*part, "")]
    return lines[:-1]


def block_lines(block: Block, width: int | None = None) -> list[str]:
    """One block as lines; the same for one that stands on no page."""
    return _block(block, width, False)


def _card(card: Card, width: int | None, colour: bool) -> list[str]:
    rows = list(card.rows)
    names = max((len(name) for name, _ in rows if len(name) <= WIDEST_OF_CARD), default=0)
    return [
        *_wrapped(card.title, width),
        *(_toned(line, card.tone, colour) for line in _wrapped(card.verdict, width)),
        *(line for name, text in rows for line in _named(f"  {name:<{names}}", text, width)),
    ]


def _with_rest(card: Card, n_notes: int) -> Card:
    """The card that names the option which prints what stands below it, and how many notes are among it."""
    option = f"--details ({counted(n_notes, 'note')})" if n_notes else "--details"
    return replace(card, next_step=f"{card.next_step}; {option}" if card.next_step else option)


def _block(block: Block, width: int | None, colour: bool) -> list[str]:
    match block:
        case Note():
            return [_toned(line, block.tone, colour) for line in _wrapped(block.text, width)]
        case Facts():
            return [*_title(block.title, width), *_facts(block, width)]
        case Table():
            return [*_title(block.title, width), *_table(block, width)]
        case Bars():
            return [*_title(block.title, width), *_bars(block, width)]
        case Code():
            return [*_title(block.title, width), *(f"  {line}" for line in printable_lines(block.text).split("\n"))]
        case Group():
            inner = [line for one in block.blocks for line in (*_block(one, width, colour), "")]
            return [*_title(block.title, width), *inner[:-1]]


def _title(title: str, width: int | None) -> list[str]:
    return _wrapped(title, width) if title else []


def _facts(block: Facts, width: int | None) -> list[str]:
    names = min(WIDEST_NAME, max(map(len, block.facts), default=0))
    lines = []
    for name, value in block.facts.items():
        head = f"  {printable(name):<{names}}"
        paragraphs = printable_lines(value).split("\n") if block.has_paragraphs else [value]
        for number, text in enumerate(paragraphs):
            lines += _named(head if number == 0 else " " * len(head), text, width)
    return lines


def _bars(block: Bars, width: int | None) -> list[str]:
    names = max((len(one.name) for one in block.bars), default=0)
    texts = max((len(one.text) for one in block.bars), default=0)
    room = max(8, min(24, (width or WIDTH) - names - texts - 8))
    return [f"  {printable(b.name):<{names}}  {printable(b.text):>{texts}}  {bar(b.share, room)}" for b in block.bars]


def _table(block: Table, width: int | None) -> list[str]:
    rows = [[printable(text) for text in row] for row in (block.columns, *block.rows)]
    numeric = [block.is_numeric(index) for index in range(len(block.columns))]
    natural = [max(len(row[index]) for row in rows) for index in range(len(block.columns))]
    if width is None or sum(natural) + len(SPACE) * (len(natural) - 1) + 1 <= width:
        return _columns(rows, natural, numeric, range(len(natural)))
    first = min(natural[0], max(NARROWEST, width // 2))
    room = width - 1 - first - len(SPACE)
    widths = [first, *(min(own, max(NARROWEST, room)) for own in natural[1:])]
    lines: list[str] = []
    for shown in _fitting(widths, width):
        lines += [*_columns(rows, widths, numeric, shown), ""]
    return lines[:-1]


def _fitting(widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Groups of columns that fit, each with the first column, which names the rows."""
    group, used = [0], widths[0] + 1
    for index in range(1, len(widths)):
        needed = widths[index] + len(SPACE)
        if len(group) > 1 and used + needed > width:
            yield group
            group, used = [0], widths[0] + 1
        group.append(index)
        used += needed
    yield group


def _columns(rows: list[list[str]], widths: Sequence[int], numeric: Sequence[bool], shown: Sequence[int]) -> list[str]:
    lines: list[str] = []
    for number, row in enumerate(rows):
        cells = [_folded(row[index], widths[index]) for index in shown]
        for at in range(max(map(len, cells))):
            texts = (own[at] if at < len(own) else "" for own in cells)
            padded = (
                text.rjust(widths[index]) if numeric[index] else text.ljust(widths[index])
                for text, index in zip(texts, shown, strict=True)
            )
            lines.append((" " + SPACE.join(padded)).rstrip())
        if number == 0:
            lines.append(" " + "─" * (sum(widths[index] for index in shown) + len(SPACE) * (len(shown) - 1)))
    return lines


def _folded(text: str, width: int) -> list[str]:
    return [text] if len(text) <= width else wrap(text, width) or [""]


def _named(head: str, text: str, width: int | None) -> list[str]:
    """A text behind its name; lines that follow stand below its first word."""
    room = max(NARROWEST, (width or WIDTH) - len(head) - 2)
    first, *rest = wrap(printable(text), room) or [""]
    return [f"{head}  {first}", *(" " * (len(head) + 2) + line for line in rest)]


def _wrapped(text: str, width: int | None) -> list[str]:
    return wrap(printable(text), width or WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _toned(line: str, tone: Tone, colour: bool) -> str:
    code = COLOURS.get(tone)
    return f"\x1b[1;{code}m{line}\x1b[0m" if colour and code else line
