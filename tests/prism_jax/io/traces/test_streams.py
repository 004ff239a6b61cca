"""Lines of text files: numbers, pieces, limits, whatever the size of the chunks they arrive in."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.tables import streams

TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\n\n"]), max_size=30).map(b"".join)


def expected(content: bytes) -> list[tuple[int, bytes]]:
    """Pieces that are not empty, the slow way."""
    found = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        found += [(number, piece) for piece in line.split(b"\r") if piece]
    return found


@given(content=TEXTS, chunk=st.integers(1, 7), packed=st.booleans())
def test_lines_do_not_depend_on_the_chunks(tmp_path_factory, content: bytes, chunk: int, packed: bool):
    path = tmp_path_factory.mktemp("lines") / "log"
    path.write_bytes(gzip.compress(content) if packed else content)
    before = streams.CHUNK_BYTES
    streams.CHUNK_BYTES = chunk
    try:
        found = [(number, piece) for number, piece in streams.lines(path, cut=False) if piece]
    finally:
        streams.CHUNK_BYTES = before
    assert found == expected(content)


@pytest.mark.parametrize("chunk", [7, 10, 64])
def test_long_lines_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int):
    monkeypatch.setattr(streams, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    path = tmp_path / "log"
    path.write_bytes(b"one\n" + b"x" * 95 + b"\nthree\n" + b"y" * 40)
    assert list(streams.lines(path, cut=True)) == [(1, b"one"), (2, b"x" * 10), (3, b"three"), (4, b"y" * 10)]
    with pytest.raises(DataError, match=r"log:2: a line of more than 10 bytes"):
        list(streams.lines(path, cut=False))


def test_what_a_progress_bar_wrote_is_pieces_and_may_be_longer_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "CHUNK_BYTES", 16)
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    path = tmp_path / "log"
    path.write_bytes(b"\r".join(b"step %d" % n for n in range(50)) + b"\nend")
    found = [(number, piece) for number, piece in streams.lines(path, cut=False) if piece]
    assert found == [(1, b"step %d" % n) for n in range(50)] + [(2, b"end")]


def test_head_is_unpacked_and_short(tmp_path: Path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"abc" * 100_000))
    assert streams.head(path, 7) == b"" or b"abcabca".startswith(streams.head(path, 7))
    assert streams.head(path) == (b"abc" * 100_000)[: 2**16]


def test_ordinary_packing_is_no_bomb(tmp_path: Path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"".join(b"step %d took %d ms\n" % (n, n * n % 97) for n in range(20_000))))
    assert sum(len(chunk) for chunk in streams.chunks(path)) == len(gzip.decompress(path.read_bytes()))
