"""Broken files: one error, with the file's name and a remedy, and never another exception."""

from pathlib import Path

import pytest

from inference.data import raw_table as packed
from inference.data.read import read_measurements, tidy
from inference.engine.model import random_key
from inference.fitting.fit import fit
from prism_jax.core.errors import DataError, UnitError
from tests.support.files.broken import Broken

from .broken_measurements import BROKEN
from .tables import COLLECTIVES, FLEET, STEPS, fleet_frame, write


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.name)
def test_a_broken_file_is_refused_with_its_name(kind: Broken, tmp_path: Path) -> None:
    path = kind.make(tmp_path)
    columns = {"all_reduce.log": COLLECTIVES, "run.log": STEPS}.get(path.name, FLEET)
    if not kind.match:  # readable all the same
        assert len(read_measurements([path], columns).frame) > 0
        return
    with pytest.raises((DataError, UnitError), match=kind.match):
        read_measurements([path], columns)


ENOUGH_WITH_ANOTHER = ("no valid row", "words for times", "a quote without end", "nvidia-smi alone")
"""What is no error beside a good file, because enough is left or because it is joined to that."""


@pytest.mark.parametrize(
    "kind", [kind for kind in BROKEN if kind.match and kind.name not in ENOUGH_WITH_ANOTHER], ids=lambda kind: kind.name
)
def test_a_broken_file_beside_a_good_one_is_refused_too(kind: Broken, tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", fleet_frame().to_csv(index=False))
    with pytest.raises((DataError, UnitError)):
        read_measurements([good, kind.make(tmp_path)], FLEET)


def test_a_file_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_BYTES", 2**20)
    path = write(tmp_path / "times.csv", "kernel,gpu,time_ms\n" + "gemm,1,2.5\n" * 200_000)
    with pytest.raises(DataError, match=r"times\.csv: more than 0\.000976562 GiB, unpacked"):
        read_measurements([path], FLEET)


def test_no_files_and_no_rows_are_refused() -> None:
    with pytest.raises(DataError, match="no files"):
        read_measurements([], FLEET)
    with pytest.raises(DataError, match="table: no rows"):
        tidy(fleet_frame().iloc[:0], FLEET)


def test_a_table_in_memory_with_a_name_twice_or_in_levels_is_refused() -> None:
    frame = fleet_frame()
    with pytest.raises(DataError, match=r"table: column gpu is there 2 times"):
        tidy(frame.rename(columns={"run": "gpu"}), FLEET)
    with pytest.raises(DataError, match=r"in 2 levels"):
        tidy(frame.T.set_index([[1, 2, 3, 4]], append=True).T, FLEET)


@pytest.mark.parametrize("n", [1, 5])
def test_what_a_model_refuses_after_reading_names_the_files(n: int, tmp_path: Path) -> None:
    text = "gpu,kernel,duration_ms\n" + "".join(
        f"{gpu},gemm,{10 + gpu + 0.1 * i}\n" for gpu in range(3) for i in range(9)
    )
    files = [write(tmp_path / f"times {i}.csv", text.replace("gemm", f"gemm{i}")) for i in range(n)]
    more = "" if n == 1 else " and 2 more"
    with pytest.raises(DataError, match=rf"times 0\.csv.*{more}: 3 GPUs are too few"):
        fit(files, model="fleet", key=random_key(0, 0))
