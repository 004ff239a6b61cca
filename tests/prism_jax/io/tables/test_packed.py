"""Packed text: the same whether packed or not, and bounded whatever it unpacks to."""

import gzip
from pathlib import Path

import pytest

from prism_jax.core.errors import DataError
from prism_jax.tables import csv_rows as packed


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_is_told_by_its_content(tmp_path: Path, pack) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(pack("\ufeffa,µ\n1,2\n".encode()))
    assert packed.read_packed_text(file, "a table") == "a,µ\n1,2\n"


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_BYTES", 1 << 20)
    file = tmp_path / "bomb.csv.gz"
    file.write_bytes(gzip.compress(bytes(1 << 24)))
    assert file.stat().st_size < 1 << 15
    with pytest.raises(DataError, match="larger than 1 MiB. Give a table"):
        packed.read_packed_text(file, "a table")


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "half.gz"
    file.write_bytes(gzip.compress(b"a" * 1000)[:-9])
    with pytest.raises(DataError, match="the gzip file ends too early"):
        packed.read_packed_text(file, "a table")
