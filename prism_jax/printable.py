"""Text from outside as people may see it: nothing in it steers a terminal, hides a part, begins a line or fills the screen."""

from __future__ import annotations

MOST_LINE = 1000  # characters of a line of a message: what is longer quotes something that nobody reads
FIRST = 600  # of these from the beginning, where the place stands; the rest are from the end, where the remedy does
SAID = 50  # for what is said in place of the middle


def printable(text: str) -> str:
    r"""`text` in one line, with characters that have no picture of their own spelt out: `\x1b`, `\n`, `\u202e`.

    Control characters, line ends, marks of writing direction, joiners, unassigned code points and halves of surrogate pairs
    are spelt; letters of all scripts, symbols and plain spaces stay. What is spelt already stays as it is.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _spelt(letter) for letter in text)


def printable_lines(text: str) -> str:
    """The same for a text whose line ends are meant."""
    return "\n".join(printable(line) for line in text.split("\n"))


def shortened(text: str) -> str:
    """`text` with the middle of every line of more than `MOST_LINE` characters left out, and their number in its place."""
    if len(text) <= MOST_LINE:
        return text
    return "\n".join(_shortened_line(line) for line in text.split("\n"))


def _shortened_line(line: str) -> str:
    if len(line) <= MOST_LINE:
        return line
    last = MOST_LINE - FIRST - SAID
    return f"{line[:FIRST]} ... ({len(line) - FIRST - last:,} characters) ... {line[-last:]}"


def _spelt(letter: str) -> str:
    return repr(letter)[1:-1]
