"""`prism-jax run`: answers that hang together, published rates where none are stated, one line for every bad input."""

import json

import pytest

from prism_jax.core.errors import DataError
from prism_jax.horizon.report import RunReport
from prism_jax.shell.app import main

JOB = """\
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
"""
FEW = ("--worlds", "400")


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def told(capsys, *arguments: str) -> dict:
    assert main(["run", *arguments, "--json", *FEW]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_numbers_hang_together(job, capsys):
    asked = (job, "--steps", "2000000", "--mtbf", "3h", "--restart", "10min", "--deadline", "30d", "--spares", "2")
    found = told(capsys, *asked)
    outcome = found["outcome"]
    times = outcome["time_s"]
    assert found["verdict"] == "predicted"
    assert times["p5"] < times["p50"] < times["p95"] < times["p99"]
    assert sum(outcome["seconds"].values()) == pytest.approx(times["mean"], rel=1e-9)
    assert times["p50"] == pytest.approx(outcome["expected_s"], rel=0.02)
    assert outcome["expected_interval_s"][0] < outcome["expected_s"] < outcome["expected_interval_s"][1]
    assert found["reliability"]["mttf_h"] == pytest.approx(3.0)
    assert found["recovery"]["spares"] == 2


def test_the_text_has_one_median_and_one_mean_and_both_are_named(job, capsys):
    assert main(["run", job, "--steps", "2000000", "--mtbf", "3h", "--details", *FEW]) == 0
    block = capsys.readouterr().out.split("Wall time (")[1].split("\n\n")[0].splitlines()[3:]
    assert [line.split()[0] for line in block] == ["median", "p95", "p99", "mean"]


def test_a_fit_of_failures_says_what_interrupts(job, tmp_path, capsys):
    counts = "cluster,gpus,hours,count,kind\na,1000,1000,30,gpu\nb,2000,2000,90,gpu\nc,4000,1500,180,gpu\n"
    (tmp_path / "counts.csv").write_text(counts)
    kept = str(tmp_path / "failures.npz")
    assert main(["fit", "failures", str(tmp_path / "counts.csv"), "--method", "map", "-o", kept]) == 0
    capsys.readouterr()
    found = told(capsys, job, "--steps", "1000", "--reliability", kept)["reliability"]
    assert 1000 < 8 * found["mttf_h"] < 200_000  # hours of a GPU: the fit has some 30,000, a new cluster scatters


def test_without_failures_the_published_rate_of_such_devices_is_assumed(job, capsys):
    """One key decides: answers are those with the preset of the generation, and say so."""
    found = told(capsys, job, "--steps", "1000000")
    stated = told(capsys, job, "--steps", "1000000", "--reliability", "rsc-1")
    assert found["verdict"] == "predicted"
    assert found["outcome"] == stated["outcome"]
    assert found["reliability"]["name"] == "rsc-1"
    assert found["assumed"] == [
        "published failures of a100-80gb, 100% of them per job and not per GPU (rsc-1); state --reliability or --mtbf",
        *stated["assumed"],
    ]


UNPUBLISHED = ("--set", "cluster=mi300x")


def test_the_answer_is_unknown_where_no_failures_are_published(job, capsys):
    found = told(capsys, job, "--steps", "1000000", *UNPUBLISHED)
    assert found["verdict"] == "unknown"
    assert found["outcome"] is None
    assert len(found["response"]) > 4
    assert len(found["assumed"]) == 2
    card = RunReport.from_dict(found).card()
    assert card.tone == "unsure"
    assert sum(name.startswith("MTBF") for name in card.facts) == 3


@pytest.mark.parametrize("failures", [("--mtbf", "3h"), UNPUBLISHED])
def test_a_stored_run_is_drawn(job, capsys, failures):
    found = told(capsys, job, "--steps", "1000", *failures)
    assert RunReport.from_dict(found).figure().axes


def test_a_run_of_an_older_version_says_why_it_is_not_drawn(job, capsys):
    found = told(capsys, job, "--steps", "1000", "--mtbf", "3h")
    del found["curve"]
    with pytest.raises(DataError, match="older version, which kept no curve"):
        RunReport.from_dict(found).figure()


@pytest.mark.parametrize(("deadline", "tone"), [("1s", "bad"), ("3000d", "good")])
def test_the_verdict_answers_the_deadline(job, capsys, deadline, tone):
    found = told(capsys, job, "--steps", "1000000", "--mtbf", "3h", "--deadline", deadline)
    card = RunReport.from_dict(found).card()
    assert card.verdict.startswith("Done within ")
    assert card.tone == tone


def test_tokens_are_steps(job, capsys):
    found = told(capsys, job, "--tokens", "16.384M")
    assert found["n_steps"] == 1000
    assert found["n_tokens"] == pytest.approx(16.384e6)


def test_what_is_stated_is_not_assumed(job, capsys):
    stated = ("--checkpoint-write", "5s", "--load", "5s", "--restart", "2min", "--checkpoint", "600s", "--mtbf", "20h")
    found = told(capsys, job, "--steps", "100000", *stated)
    assert found["assumed"] == []
    assert found["checkpoint"]["interval_s"] == pytest.approx(600.0, rel=0.01)
    assert not found["checkpoint"]["is_chosen"]


def test_what_is_stated_of_something_else_hides_no_assumption(job, capsys):
    """The restart is assumed whatever is said of spares, the load whatever is said of the write."""
    asked = "--steps 100000 --mtbf 20h --spares 4 --policy shrink --checkpoint-write 7s"
    load, restart = told(capsys, job, *asked.split())["assumed"]
    assert load == "a checkpoint takes 7 s to load, as long as to write it; state --load"
    assert restart.startswith("a restart takes 11 min")


def test_checkpoints_that_would_overlap_are_refused(job, capsys):
    """Steps since the last checkpoint that can be loaded are lost: with ten in flight ten intervals, which nothing counts."""
    asked = "--steps 1000 --mtbf 3h --checkpoint-write 1s --checkpoint-behind 10min --load 1s --checkpoint"
    assert main(["run", job, *asked.split(), "60s"]) == 2
    assert "State at least 599s, or auto" in capsys.readouterr().err
    assert told(capsys, job, *asked.split(), "599s")["checkpoint"]["background_s"] == 600.0


@pytest.mark.parametrize("spares", ["9" * 5000, "-1", "1.5", "\u0664"])
def test_a_number_of_spares_that_is_none_is_refused(job, capsys, spares):
    assert main(["run", job, "--steps", "10", "--mtbf", "3h", "--spares", spares]) == 2
    assert capsys.readouterr().err.startswith("error: --spares: ")


def test_a_deadline_without_failures_is_not_dropped_without_a_word(job, capsys):
    found = told(capsys, job, "--steps", "1000", "--deadline", "3d", *UNPUBLISHED)
    assert found["deadline"] is None
    assert found["notes"] == [
        "no probability for the deadline: no failure rate is known; state --reliability or --mtbf"
    ]


@pytest.mark.parametrize(
    ("steps", "every", "words"),
    [
        ("1000", "1s", "every 62 steps ("),
        ("1000", "1us", "every step ("),
        ("1000", "900d", "one, after the last step ("),
        ("1", "1us", "one, after the last step ("),
    ],
)
def test_the_interval_reads_as_a_sentence(job, capsys, steps, every, words):
    stated = ("--steps", steps, "--mtbf", "3h", "--checkpoint", every, "--checkpoint-write", "1ms")
    assert main(["run", job, *stated, "--details", *FEW]) == 0
    assert f"checkpoint   {words}" in capsys.readouterr().out


def test_slow_phases_alone_are_listed_alone(job, tmp_path, capsys):
    cause = "slow_phases: [{cause: hot GPU, per_gpu_h: 0.001, slowdown: 1.2, duration: 1h}]"
    (tmp_path / "slow.yaml").write_text(cause)
    assert main(["run", job, "--steps", "1000", "--reliability", str(tmp_path / "slow.yaml"), "--details", *FEW]) == 0
    assert "slow: no interruptions (slow phases: hot GPU)" in capsys.readouterr().out
