"""A report of one's own: one file, no change of the package."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from prism_jax.core.errors import DataError
from prism_jax.core.page import Block, Facts
from prism_jax.core.report import Report
from prism_jax.shell.app import main
from prism_jax.show.reports import REPORTS, published_schema


@dataclass(frozen=True)
class BatchReport(Report):
    """Size of the batch of a job."""

    kind: ClassVar[str] = "batch"

    name: str
    tokens_per_step: int

    def blocks(self) -> list[Block]:
        return [Facts(self.name, {"batch": f"{self.tokens_per_step:,} tokens per step"})]


REPORT = BatchReport("mine", 4096)


@pytest.fixture
def known() -> Iterator[None]:
    with REPORTS.with_item(BatchReport):
        yield


def test_it_is_stored_and_read_back(tmp_path: Path):
    assert BatchReport.from_dict(REPORT.to_dict()) == REPORT
    REPORT.save(tmp_path / "batch.json")
    assert '"tokens_per_step": 4096' in (tmp_path / "batch.json").read_text()
    with pytest.raises(DataError, match="prism-jax/batch/1"):
        BatchReport.from_dict(REPORT.to_dict() | {"schema": "prism-jax/check/1"})


def test_people_and_notebooks_see_its_blocks():
    assert REPORT.lines() == ["mine", "  batch  4,096 tokens per step"]
    assert "4,096 tokens per step" in REPORT._repr_html_()
    assert "4,096 tokens per step" in REPORT.to_html()


@pytest.mark.usefixtures("known")
def test_show_lists_its_schema(capsys: pytest.CaptureFixture[str]):
    assert main(["show", "schemas"]) == 0
    assert "prism-jax/batch/1" in capsys.readouterr().out
    assert "tokens_per_step" in published_schema("batch")["properties"]
