"""Text from outside as people may see it: nothing in it steers a terminal, hides a part or begins a line."""

from __future__ import annotations


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


def _spelt(letter: str) -> str:
    return repr(letter)[1:-1]
