"""`prism-jax predict`: the numbers hang together, whatever the options, and hosts that are known are named."""

import json

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.prediction.predict import explain_step
from prism_jax.shell.app import main

JOB = """\
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
"""


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def predicted(job: str, capsys, *options: str) -> dict:
    assert main(["predict", job, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_numbers_hang_together(job, capsys):
    found = predicted(job, capsys)
    times = found["step_time_s"]
    assert found["deterministic_s"] <= times["p5"] <= times["p50"] <= times["p95"] <= times["p99"] <= times["p999"]
    assert sum(found["breakdown_s"].values()) == pytest.approx(times["mean"], rel=0.01)
    assert sum(found["criticality"].values()) == pytest.approx(1.0, abs=0.01)
    assert 0.0 < found["mfu"] < 1.0
    again = predicted(job, capsys)
    assert {**again, "elapsed_s": None} == {**found, "elapsed_s": None}


@pytest.mark.parametrize("method", ["symmetric", "brute-force"])
def test_one_sample_is_enough_to_run(job, method, capsys):
    found = predicted(job, capsys, "--samples", "1", "--method", method)
    assert found["step_time_s"]["p5"] <= found["step_time_s"]["p95"]


def test_a_job_that_does_not_fit_is_predicted_and_ends_with_1(job, capsys):
    arguments = ["predict", job, "--set", "cluster.device.hbm=1 GiB", "--samples", "16"]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert "DOES NOT FIT" in captured.out
    assert "p50" in captured.out
    assert "--ignore-memory accepts that" in captured.err
    assert main([*arguments, "--ignore-memory"]) == 0


def test_without_variability_everything_is_the_deterministic_step(job, capsys):
    found = predicted(job, capsys, "--set", "variability=none")
    times = found["step_time_s"]
    assert times.pop("std") == 0.0
    assert set(times.values()) == {found["deterministic_s"]}
    assert set(found["mc_error_s"].values()) == {0.0}


def test_products_of_an_fp32_plan_cannot_beat_their_peak(job, capsys):
    assert predicted(job, capsys, "--set", "plan.dtype=fp32")["mfu"] < 1.0


@pytest.mark.parametrize("link", ["bandwidth=1e-300 Gbit/s", "latency=1e300 s"])
def test_a_step_that_never_ends_is_refused(job, link, capsys):
    assert main(["predict", job, "--set", "plan.dp=16", "--set", f"cluster.tiers.infiniband.{link}"]) == 2
    assert "out of all proportion" in capsys.readouterr().err


def test_the_software_moves_the_median_and_narrows_the_band(job, capsys):
    def width(found: dict) -> float:
        band = found["model_band_s"]
        assert band["p5"] < found["step_time_s"]["p50"] < band["p95"]
        return band["p95"] / band["p5"]

    silent = predicted(job, capsys)
    told = predicted(job, capsys, "--set", "framework=megatron-core")
    assert silent["job"]["framework"] == ""
    assert told["job"]["framework"] == "megatron-core"
    assert told["step_time_s"]["p50"] != silent["step_time_s"]["p50"]
    assert width(told) < 1.05 * width(silent)


# --- Predictions with known hosts: names are nodes in the order of the file, and the report says which is which ------


PREDICT_JOB = """\
model: {n_layers: 4, hidden: 512, n_heads: 8, ffn_hidden: 1024, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 8, seq_len: 256, tp: 8, pp: 2, dp: 2, schedule: 1f1b}
variability: a100-default
"""


@pytest.fixture
def predict_predicted(tmp_path):
    """The notes and the samples of a prediction with a table of slowdowns."""
    (tmp_path / "job.yaml").write_text(PREDICT_JOB)

    def run(text: str) -> tuple[tuple[str, ...], np.ndarray]:
        (tmp_path / "nodes.csv").write_text(text)
        found = explain_step(tmp_path / "job.yaml", slowdowns=tmp_path / "nodes.csv", n_samples=32, explained=False)
        return found.notes, np.array([found.parts.distribution.quantile(p) for p in (0.1, 0.5, 0.9)])

    return run


def test_hosts_are_nodes_in_the_order_of_the_table_and_others_are_drawn(predict_predicted):
    notes, quantiles = predict_predicted("host,slowdown\nz9,1.0\na1,1.4\n")
    numbered, expected = predict_predicted("node,slowdown\n0,1.0\n1,1.4\n")
    assert np.array_equal(quantiles, expected)
    (told,) = set(notes) - set(numbered)
    assert "z9 is node 0, a1 is node 1; the other 2 of 4 nodes are drawn" in told
    _, other = predict_predicted("host,slowdown\na1,1.4\nz9,1.0\n")  # the order counts
    assert not np.array_equal(other, expected)


def test_the_order_of_hosts_is_an_assumption_of_the_first_screen(predict_predicted, tmp_path, capsys):
    for text, n_said in (("host,slowdown\nz9,1.0\n", 1), ("node,slowdown\n0,1.0\n", 0)):
        predict_predicted(text)
        options = ["--slowdowns", str(tmp_path / "nodes.csv"), "--fast", "--samples", "32"]
        assert main(["predict", str(tmp_path / "job.yaml"), *options]) == 0
        assert (
            capsys.readouterr().out.count("hosts are nodes in the order of the table of slowdowns; --hosts") == n_said
        )


def test_more_hosts_than_nodes_are_refused(predict_predicted):
    with pytest.raises(DataError, match="e is host number 5, but the job has 4 nodes"):
        predict_predicted("host,slowdown\n" + "".join(f"{name},1\n" for name in "abcde"))


def test_steps_below_a_second_are_told_in_milliseconds(job, capsys):
    assert main(["predict", job, "--fast", "--samples", "64", "--details"]) == 0
    block = capsys.readouterr().out.split("over p50")[1].split("\n\n")[0]
    found = predicted(job, capsys, "--fast", "--samples", "64")["step_time_s"]
    unit = "ms" if found["p99"] < 1.0 else "s"
    rows = [line for line in block.splitlines() if line.split()[:1] and line.split()[0] in ("p50", "p95", "p99")]
    assert len(rows) == 3
    assert all(f" {unit} " in f"{row} " for row in rows), rows
