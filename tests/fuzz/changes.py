"""Hypothesis strategies of damaged files: valid ones with a few changes, as people and attackers make them."""

import re
from collections.abc import Callable, Sequence

from hypothesis import strategies as st

HOSTILE = (
    b"", b" ", b"0", b"-1", b"-0.0", b"1e9", b"1e30", b"1e308", b"9" * 400, b"9" * 5000, b"0x" + b"f" * 5000, b"1_0", b"1.5",
    b"nan", b"inf", b"-inf", b"true", b"null", b"~", b"[]", b"{}", b"[[1]]", b"\x00", b"\x1b]0;x\x07", "\u202e".encode(),
    "\u0663".encode(), b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\n", b"\t", b",", b";", b"\"", b"'", b":", b"#", b"&a", b"*a",
    b"!!int \"\"",
    b"!!python/object:os.system x", b"<<: *a", b"../../etc/passwd", b"/dev/zero", b"(" * 2000, b"a." * 2000, b" " * 3000, b"%s%n",
    b"=cmd|", b"2024-13-45", b"9999-12-31T23:59:59Z", b"1e-320", b"GPU", b"cpu", b"x" * 300,
)  # fmt: skip
_TOKEN = re.compile(rb"[\w.+-]+")
Change = Callable[[bytes], bytes]


def changed(wholes: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """One of `wholes` after one to four changes."""
    return st.builds(_all, st.sampled_from(wholes), _CHANGES)


def _all(whole: bytes, changes: list[Change]) -> bytes:
    for change in changes:
        whole = change(whole)
    return whole


_WHERE = st.integers(0, 2**20)


def _tokens() -> st.SearchStrategy[Change]:
    """A word or number replaced by something hostile, or by another word of the file."""

    def change(where: int, new: bytes | None, other: int) -> Change:
        def replaced(text: bytes) -> bytes:
            found = list(_TOKEN.finditer(text))
            if not found:
                return text
            old = found[where % len(found)]
            put = found[other % len(found)].group() if new is None else new
            return text[: old.start()] + put + text[old.end() :]

        return replaced

    return st.builds(change, _WHERE, st.one_of(st.none(), st.sampled_from(HOSTILE)), _WHERE)


def _lines() -> st.SearchStrategy[Change]:
    """A line left out, twice, moved, or indented."""

    def change(kind: str, where: int, to: int) -> Change:
        def moved(text: bytes) -> bytes:
            lines = text.split(b"\n")
            at = where % len(lines)
            line = lines[at]
            if kind != "twice":
                del lines[at]
            if kind != "out":
                lines.insert(to % (len(lines) + 1), b"  " + line if kind == "indent" else line)
            return b"\n".join(lines)

        return moved

    return st.builds(change, st.sampled_from(("out", "twice", "move", "indent")), _WHERE, _WHERE)


def _cuts() -> st.SearchStrategy[Change]:
    """The end, the beginning or a part in between is missing; or something hostile is put in."""

    def change(first: int, length: int, new: bytes) -> Change:
        def cut(text: bytes) -> bytes:
            at = first % (len(text) + 1)
            return text[:at] + new + text[at + length :]

        return cut

    return st.builds(change, _WHERE, st.sampled_from((0, 0, 1, 5, 50, 2**20)), st.sampled_from(HOSTILE))


def _bytes() -> st.SearchStrategy[Change]:
    """Single bytes changed."""

    def change(where: int, value: int) -> Change:
        def flipped(text: bytes) -> bytes:
            if not text:
                return text
            at = where % len(text)
            return text[:at] + bytes([value]) + text[at + 1 :]

        return flipped

    return st.builds(change, _WHERE, st.integers(0, 255))


_CHANGES = st.lists(st.one_of(_tokens(), _lines(), _cuts(), _bytes()), min_size=1, max_size=4)
