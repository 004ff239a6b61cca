"""Counts of published tables beyond what is simulated: a row of a steps table is left out, a memory table is refused."""

import csv
from pathlib import Path

import pytest

from experiments.step_tables.memory_table import read_memory_table
from experiments.step_tables.model import divisors
from experiments.step_tables.table import read_step_rows
from prism_jax.core.errors import PrismError

STEPS = {
    "id": "one", "source": "here", "model": "mine", "layers": "32", "hidden": "4096", "heads": "32", "seq_len": "4096",
    "gpu": "H100-SXM-80GB", "num_gpus": "16", "tp": "1", "pp": "1", "dp": "16", "micro_batch": "1", "global_batch": "32",
    "measured_step_time_s": "1.0",
}  # fmt: skip
MEMORY = {
    "status": "OOM", "model": "mine", "layers": "2", "hidden": "1024", "heads": "8", "vocab": "32000", "seq_len": "2048",
    "tp": "1", "pp": "1", "dp": "1", "micro_batch": "1",
}  # fmt: skip


def written(path: Path, row: dict[str, str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    return path


@pytest.mark.parametrize("value", ["1e9", "1e15", "9e18", "1e30"])
@pytest.mark.parametrize(
    "field", ["layers", "hidden", "heads", "seq_len", "num_gpus", "tp", "pp", "dp", "micro_batch", "global_batch"]
)
def test_a_steps_table_leaves_the_row_out(tmp_path: Path, field: str, value: str) -> None:
    file = written(tmp_path / "steps.csv", STEPS | {field: value})
    (row,) = read_step_rows(file)
    assert row.unsupported or (field, value) in (("seq_len", "1e9"), ("micro_batch", "1e9"))  # cut to its share


@pytest.mark.parametrize("value", ["1e9", "1e15", "1e30"])
@pytest.mark.parametrize("field", [name for name in MEMORY if name not in ("status", "model")])
def test_a_memory_table_is_refused_with_its_row(tmp_path: Path, field: str, value: str) -> None:
    if (field, value) in (("seq_len", "1e9"), ("micro_batch", "1e9")):
        return  # as large as a plan may be
    with pytest.raises(PrismError, match="line 2: .*at most"):
        read_memory_table(written(tmp_path / "memory.csv", MEMORY | {field: value}))


@pytest.mark.parametrize("n", [1, 2, 12, 49, 97, 3600])
def test_divisors_are_all_and_rising(n: int) -> None:
    assert list(divisors(n)) == [d for d in range(1, n + 1) if n % d == 0]
