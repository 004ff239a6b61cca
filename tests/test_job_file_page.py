"""The page of job fields is what the schema says."""

from __future__ import annotations

from prism_jax.io.job.reference.fields import job_fields
from prism_jax.io.job.reference.page import page
from tests.conftest import ROOT


def test_the_page_is_made_from_the_schema():
    assert (ROOT / "docs" / "job_file.md").read_text(encoding="utf-8") == page(), "run python docs/job_file.py"


def test_every_field_has_a_row():
    rows = [line.split("`")[1] for line in page().splitlines() if line.startswith("| `")]
    assert rows[: len(job_fields())] == [field.name for field in sorted(job_fields(), key=_place)]


def _place(field):
    order = ["model", "cluster", "plan", "software", "variability"]
    return 0 if len(field.path) == 1 else 1 + order.index(field.path[0])
