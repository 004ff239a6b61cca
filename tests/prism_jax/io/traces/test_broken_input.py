"""Every kind of broken trace ends in one error that names the place, and leaves the file as it was."""

import errno
import os
from pathlib import Path

import pytest

from prism_jax.core.errors import DataError, PrismError
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.trace import columns as op_columns
from prism_jax.trace.trace import Trace
from tests.support.broken_traces import BROKEN, GOOD_ROW, HEADER, Broken, kineto, straggler

MAX_MESSAGE = 1000


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """What lies in a folder; of long files the ends."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            found[file] = (len(data), data[:1000] + data[-1000:])
    return found


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.name)
def test_broken_input_is_one_message_with_the_place(tmp_path: Path, kind: Broken):
    path = kind.make(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(PrismError, match=kind.match) as error:
        open_trace(path)
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < MAX_MESSAGE
    assert message.isprintable()
    assert contents(tmp_path) == before


def test_what_the_kinds_break_is_good_before(tmp_path: Path):
    (tmp_path / "ops.csv").write_text(f"{HEADER}\n{GOOD_ROW}")
    (tmp_path / "run").mkdir()
    for rank in (0, 1):
        (tmp_path / "run" / f"rank{rank}.json").write_bytes(kineto(rank))
    for path in (straggler(tmp_path / "trace-X.parquet"), tmp_path / "ops.csv", tmp_path / "run"):
        assert isinstance(open_trace(path), Trace)


def test_kinds_have_different_names_and_there_are_many():
    assert len({kind.name for kind in BROKEN}) == len(BROKEN) > 90


def test_more_rows_than_the_limit_are_refused_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(op_columns, "MAX_ROWS", 3)
    path = tmp_path / "ops.csv"
    path.write_text(f"{HEADER}\n" + GOOD_ROW * 4)
    with pytest.raises(DataError, match=r"ops\.csv: more than 3 rows"):
        open_trace(path)


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Root may read everything, so the refusal is made up."""

    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    path = tmp_path / "ops.csv"
    path.write_text(f"{HEADER}\n{GOOD_ROW}")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"ops\.csv: cannot be read: Permission denied"):
        open_trace(path)
