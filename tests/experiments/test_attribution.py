"""The study of attribution on a small job."""

import json

import pytest

from experiments.attribution import run
from experiments.common import moved
from prism_jax.explain.explain import attribute
from prism_jax.variability.families import LogNormal
from prism_jax.variability.tree import Variability
from tests.support.jobs import compute_varies, make_job


def test_rows_hold_what_sums_and_what_errors_say(tmp_path) -> None:
    tree = Variability("t", compute_varies(gpu=LogNormal(0.03)), step=LogNormal(0.01))
    found = attribute(make_job(tree), key=0)
    rows = run.figures_of("job", found)
    assert rows["job p95"]["additivity"] == pytest.approx(0.0, abs=1e-9)
    assert rows["job T"]["interaction"] == pytest.approx(
        1.0 - rows["job T gpu"]["first"] - rows["job T step regime"]["first"]
    )
    file = tmp_path / "expected.json"
    file.write_text(json.dumps(rows))
    assert moved(rows, file, run.TOLERANCES) == []
    rows["job T gpu"]["first"] += 0.1
    assert len(moved(rows, file, run.TOLERANCES)) == 1


def test_expected_figures_are_of_the_jobs_of_the_configuration() -> None:
    expected = json.loads(run.EXPECTED.read_text())
    sums = [row["additivity"] for name, row in expected.items() if name.endswith(" p95")]
    assert len(sums) == 3
    assert max(map(abs, sums)) < 1e-9
