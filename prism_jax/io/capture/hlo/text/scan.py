"""Brackets, commas and quotes of a line of HLO: one pass, a counter in the place of recursion, time linear in the line."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_NESTED = 64  # brackets inside brackets; XLA writes about ten
_MARK = re.compile(r'["(){}\[\],]|/\*')
_QUOTE = re.compile(r'["\\]')


class ScanError(ValueError):
    """A line cannot be taken apart."""


class UnclosedError(ScanError):
    """A line ends inside brackets; more of it may follow."""


def closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`.

    Raises:
        UnclosedError: there is none.
        ScanError: nested too deeply.
    """
    for position, mark, depth in _marks(text, start):
        if depth == 0 and mark in ")}]":
            return position
    raise UnclosedError(f"a bracket is never closed (column {start + 1})")


def pieces(text: str) -> Iterator[str]:
    """Parts between the commas that no bracket or quote encloses, without blanks around them; empty parts are left out.

    Raises:
        ScanError: brackets that do not match, or nested too deeply.
    """
    begins = depth = 0
    for position, mark, depth in _marks(text, 0):
        if mark == "," and depth == 0:
            if part := text[begins:position].strip():
                yield part
            begins = position + 1
    if depth:
        raise ScanError("a bracket is never closed")
    if part := text[begins:].strip():
        yield part


def _marks(text: str, start: int) -> Iterator[tuple[int, str, int]]:
    """Position of every bracket and comma outside quotes and comments, and how deep it is nested after it."""
    depth, position = 0, start
    while found := _MARK.search(text, position):
        position, mark = found.end(), found.group()
        if mark == '"':
            position = _after_quote(text, position)
            continue
        if mark == "/*":
            end = text.find("*/", position)
            if end < 0:
                raise ScanError("a comment is never closed")
            position = end + 2
            continue
        if mark in "({[":
            depth += 1
            if depth > MOST_NESTED:
                raise ScanError(f"brackets are nested more than {MOST_NESTED} deep (column {position})")
        elif mark in ")}]":
            depth -= 1
            if depth < 0:
                raise ScanError(f"a bracket is closed that was never opened (column {position})")
        yield found.start(), mark, depth


def _after_quote(text: str, position: int) -> int:
    """Position behind the quote that closes a string, whose content starts at `position`."""
    while found := _QUOTE.search(text, position):
        if found.group() == '"':
            return found.end()
        position = found.end() + 1  # what follows a backslash belongs to the string
    raise UnclosedError("a quoted text is never closed")
