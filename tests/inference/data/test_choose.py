"""`where`: which rows are meant."""

import pandas as pd
import pytest

from inference.data.read import tidy
from prism_jax.core.errors import DataError

from .tables import FLEET, STEPS, accounted, fleet_frame


@pytest.mark.parametrize("name", ["gpu", "GPU_UUID", "gpu_uuid"])
def test_rows_are_chosen_by_canonical_name_or_that_of_the_file(name: str) -> None:
    frame = fleet_frame().rename(columns={"gpu": "gpu_uuid"})
    found = tidy(frame, FLEET, where={name: "2"})
    assert set(found.frame["gpu"]) == {"2"}
    assert found.hygiene.dropped == {f"not chosen by {name}=2": 15}
    assert accounted(found)


def test_rows_are_chosen_by_a_column_the_model_does_not_know() -> None:
    frame = fleet_frame().assign(site=["a", "b"] * 10)
    assert len(tidy(frame, FLEET, where={"site": "b"}).frame) == 10


def test_numbers_are_compared_as_numbers() -> None:
    frame = pd.DataFrame({"run_id": range(4), "num_gpus": [8, 8, 64, 512], "dt_ms": [1.0, 2.0, 3.0, 4.0]})
    for text in ("8", "8.0", "8e0"):
        assert len(tidy(frame, STEPS, where={"n_gpus": text}).frame) == 2
    assert len(tidy(frame.assign(num_gpus=["8", "8.0", "64", "x"]), STEPS, where={"n_gpus": "8"}).frame) == 2


def test_several_conditions_hold_together() -> None:
    assert len(tidy(fleet_frame(), FLEET, where={"gpu": "1", "run": "3"}).frame) == 1


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ({"gqu": "1"}, r"--where gqu=1: .* without a column gqu, did you mean gpu"),
        ({"kernel": "gem"}, r"--where kernel=gem: no row of table has it, did you mean gemm"),
        ({"gpu": "77"}, r"--where gpu=77: no row of table has it; known are 0, 1, 2, 3"),
    ],
)
def test_a_condition_that_nothing_meets_is_refused(where: dict[str, str], match: str) -> None:
    with pytest.raises(DataError, match=match):
        tidy(fleet_frame(), FLEET, where=where)
