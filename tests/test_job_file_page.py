"""The page of job fields is what the schema says."""

from prism_jax.job.reference import fields_of_kind, job_fields, page
from prism_jax.workload.catalog import KINDS, TRANSFORMER
from tests.conftest import ROOT


def test_the_page_is_made_from_the_schema():
    assert (ROOT / "docs" / "job_file.md").read_text(encoding="utf-8") == page(), "run python docs/job_file.py"


def test_every_field_has_a_row():
    rows = [line.split("`")[1] for line in page().splitlines() if line.startswith("| `")]
    assert rows[: len(job_fields())] == [field.name for field in sorted(job_fields(), key=_place)]


def _place(field):
    order = ["model", "cluster", "plan", "software", "data", "published", "variability"]
    return 0 if len(field.path) == 1 else 1 + order.index(field.path[0])


def test_fields_of_every_kind_of_model_are_explained():
    for kind in KINDS:
        fields = fields_of_kind(kind)
        assert all(field.about for field in fields), [field.name for field in fields if not field.about]
        assert kind is TRANSFORMER or f"kind: {kind.name}, ..." in page()
