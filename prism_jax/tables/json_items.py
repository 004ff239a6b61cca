"""The objects of one long list in a JSON file, one by one: files of gigabytes in the memory of their largest object.

The file is one object, `{"schema": "1.0", ..., "nodes": [{...}, {...}], ...}`; everything outside the list is kept as a whole.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from ..core.errors import DataError
from .document import short

MAX_BYTES = 2**32  # of a file, unpacked
MAX_ITEM = 2**23  # characters of one object; each may become 30 bytes in memory
MAX_BESIDE = 2**24  # characters of what stands beside the list, together
_SPACE = " \t\r\n"
_BARE = re.compile(r"(-?)(inf|nan)(?=[\],}\s])")  # as old writers of C++ spell them
_Key = tuple[str, Any]


class JsonItems:
    """Iterates over the objects of the list `key`; all else is kept in another attribute.

    Args:
        name: what messages call the file.
        pieces: its content, unpacked.
        key: of the list.
        kind: what the objects are called: node, event.

    Attributes:
        beside: key -> value of everything outside the list; complete at the end.
        has_list: whether the list was there.
        number: of the object that was read last, from 1.
    """

    def __init__(self, name: str, pieces: Iterator[bytes], key: str, kind: str) -> None:
        self.name, self.key, self.kind = name, key, kind
        self.beside: dict[str, Any] = {}
        self.has_list = False
        self.number = 0
        self._pieces = pieces
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._json = json.JSONDecoder(object_pairs_hook=self._once)
        self._text, self._at, self._n_bytes, self._beside, self._ended = "", 0, 0, 0, False

    def __iter__(self) -> Iterator[Any]:
        self._expect("{")
        if self._next() == "}":
            self._at += 1
            return self._finish()
        while True:
            name = self._value(MAX_ITEM)
            if not isinstance(name, str):
                self._refuse(f"{short(name)} stands where a name in quotes is due")
            self._expect(":")
            if name == self.key and self._next() == "[":
                if self.has_list:
                    self._refuse(f"{name!r} is there twice")
                self.has_list = True
                yield from self._items()
            else:
                self._keep(name)
            if self._expect(",}") == "}":
                return self._finish()

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            value = self._value(MAX_ITEM)
            self.number += 1
            yield value
            if self._expect(",]") == "]":
                return

    def _keep(self, name: str) -> None:
        before = self._at
        if name in self.beside:
            self._refuse(f"the key {name[:60]!r} is there twice. Keep one.")
        self.beside[name] = self._value(MAX_BESIDE)
        self._beside += self._at - before if self._at > before else 0
        if len(self.beside) > 10_000 or self._beside > MAX_BESIDE:
            self._refuse("more next to the list than any such file has")

    def _finish(self) -> None:
        if self._next(at_end=True):
            self._refuse(f"{self._next()!r} stands behind the end")

    def _next(self, *, at_end: bool = False) -> str:
        """The next character that is no space, not yet taken; empty at the end."""
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                return "" if at_end else self._refuse("it ends too early. Was it cut off?")

    def _expect(self, wanted: str) -> str:
        found = self._next()
        if found not in wanted:
            self._refuse(f"{found!r} stands where {' or '.join(map(repr, wanted))} is due")
        self._at += 1
        return found

    def _value(self, most: int) -> Any:
        """The next value; more of the file is read until it is whole."""
        self._next()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._after(error, most):
                    self._refuse(f"not JSON: {error.msg}")
            except RecursionError:
                self._refuse("nested too deeply")
            except ValueError as error:  # numbers of thousands of digits
                self._refuse(f"not JSON: {str(error)[:100]}")
            else:
                if end < len(self._text) or not self._more():  # a number may go on
                    self._at = end
                    return value

    def _after(self, error: json.JSONDecodeError, most: int) -> bool:
        """Whether another attempt is worth it: there is more of the file, or a number was spelled as in C++."""
        bare = _BARE.match(self._text, error.pos)
        if bare is not None and bare.end() < len(self._text):
            spelled = "NaN" if bare.group(2) == "nan" else f"{bare.group(1)}Infinity"
            self._text = self._text[: bare.start()] + spelled + self._text[bare.end() :]
            return True
        if len(self._text) - self._at > most:
            self._refuse(f"no {self.kind} ends within {most:,} characters")
        return self._more()

    def _more(self) -> bool:
        """Reads on, doubling the text that is held; whether there was anything."""
        wanted = max(2**18, len(self._text) - self._at)
        parts: list[str] = [self._text[self._at :]]
        n_read = 0
        while n_read < wanted and not self._ended:
            piece = next(self._pieces, b"")
            self._ended = not piece
            self._n_bytes += len(piece)
            n_read += len(piece)
            if self._n_bytes > MAX_BYTES:
                self._refuse(f"more than {MAX_BYTES >> 30} GiB unpacked. Record fewer steps.")
            try:
                parts.append(self._decode(piece, final=self._ended))
            except UnicodeDecodeError as error:
                self._refuse(f"not UTF-8 text ({error.reason})")
        self._text, self._at = "".join(parts), 0
        return n_read > 0

    def _once(self, pairs: Sequence[_Key]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            self._refuse("an object has the same key twice")
        return found

    def _refuse(self, reason: str) -> NoReturn:
        raise DataError(f"{self.name}: {self.kind} {self.number + 1}: {reason}")
