"""`prism-jax queue`: figures hang together, the same seed gives the same report, and wrong input is named."""

import json

import numpy as np
import pytest

from prism_jax.shell.app import main


@pytest.fixture
def trace(tmp_path):
    rng = np.random.default_rng(0)
    rows = zip(np.sort(rng.integers(0, 20_000, 80)), rng.choice([1, 4], 80), rng.integers(60, 4_000, 80), strict=True)
    file = tmp_path / "jobs.csv"
    file.write_text("submit_s,gpus,duration_s\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    return str(file)


def answer(capsys, *arguments):
    assert main(["queue", *arguments, "--seeds", "2", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_report_holds_every_policy_and_estimate(trace, capsys):
    found = answer(capsys, trace, "--cv", "0.01", "--cv", "0.09")
    assert len(found["rows"]) == 2 * (3 + 3 * 4)
    for row in found["rows"]:
        assert row["jct_p50_s"] <= row["jct_p95_s"] <= row["jct_p99_s"] <= row["makespan_s"]
        assert 0.0 <= row["waiting_mean_s"] < row["jct_mean_s"]
        assert (row["over_point"] is None) == (row["estimate"] == "")
    assert answer(capsys, trace, "--cv", "0.01", "--cv", "0.09")["rows"] == found["rows"]


def test_policies_and_estimates_are_chosen(trace, capsys):
    found = answer(capsys, trace, "--policy", "srtf", "--estimate", "p95", "--gpus", "8")
    assert [(row["policy"], row["estimate"]) for row in found["rows"]] == [
        ("fifo", ""),
        ("srtf", "mean"),
        ("srtf", "p95"),
    ]
    assert found["n_gpus"] == 8
    assert found["n_gpus_from"] == "stated"


def test_a_trace_that_cannot_be_read_is_named(tmp_path, capsys):
    assert main(["queue", str(tmp_path / "none.csv")]) == 2
    assert "none.csv: cannot be read" in capsys.readouterr().err
