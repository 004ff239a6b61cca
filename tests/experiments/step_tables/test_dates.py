"""Dates of the software of measured rows: from their column, a release, a round of results, a paper, or their source."""

from typing import Any

import pytest

from experiments.step_tables.dates import date_of_record
from experiments.step_tables.records import StepRecord


@pytest.mark.parametrize(
    ("stated", "date"),
    [
        ({"date": "2024-05-17", "release": "v24.11.1"}, "2024-05"),  # its own column first
        ({"date": "2025"}, "2025"),
        ({"date": "2022-20"}, "2022"),  # no month
        ({"release": "v24.11.1 (35a9aecc8d5b)"}, "2024-11"),
        ({"release": "35a9aecc", "notes": "container NeMo 26.04.01; task pretrain"}, "2026-04"),
        ({"notes": "fp8 of 24.13 samples/s"}, ""),  # a number, not a release
        ({"source": "mlcommons/training_results_v5.1"}, "2025-11"),
        ({"source": "Nemotron-4 15B (arXiv 2402.16819)"}, "2024-02"),
        ({"source": "a blog", "table": "_posts/2024-11-25-training.md Table 3"}, "2024-11"),
        ({"source": "NVIDIA/NeMo-Framework-Launcher"}, "2023-10"),
        ({"source": "NVIDIA/NeMo"}, "2024-07"),
        ({"source": "someone else"}, ""),
    ],
)
def test_the_date_of_a_row(stated: dict[str, str], date: str) -> None:
    fields: dict[str, Any] = {"id": "a", "source": "", **stated}
    assert date_of_record(StepRecord(**fields)) == date
