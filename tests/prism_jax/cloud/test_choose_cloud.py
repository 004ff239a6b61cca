"""`prism-jax cloud`: figures hang together, a running job is re-planned, and wrong input is named with exit code 2."""

import json

import pytest

from prism_jax.shell.app import main
from tests.prism_jax.cloud.test_offers import HEAD, WRONG

JOB = ["cloud", "bert_large_1024", "--worlds", "300", "--most-gpus", "16"]
ROWS = """\
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az1,32.77,9.5,list
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az2,32.77,,list
aws,2025-06-01,abacus.1,abacus,1,1,1,1,us-east-1,use1-az2,1,,list
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prices.csv").write_text(f"{HEAD}\n{ROWS}")
    return tmp_path


def answer(capsys, *arguments):
    assert main([*JOB, "--catalog", "prices.csv", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments) -> str:
    assert main([*arguments]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return " ".join(said.split())


def test_figures_hang_together(here, capsys):
    found = answer(capsys, "--steps", "20000", "--deadline", "4d", "--prob", "0.9")
    best, front = found["best"], found["front"]
    assert best["deadline_prob"]["value"] >= 0.9
    assert best["time_p50_s"]["value"] <= best["time_p95_s"]["value"]
    assert best["cost_p50_usd"]["value"] <= best["cost_p95_usd"]["value"] <= best["cost_cvar95_usd"]["value"]
    costs, times = ([one[name]["value"] for one in front] for name in ("cost_mean_usd", "time_mean_s"))
    assert costs == sorted(costs)
    assert times == sorted(times, reverse=True)
    assert found["unusable"] == {"no preset device has its GPU": 1}
    assert best["price_age_days"] > 90
    if found["gain"] is not None:
        low, high = found["gain"]["saved_share_interval"]
        assert low <= found["gain"]["saved_share"] <= high
    plain = answer(capsys, "--steps", "20000", "--deadline", "4d", "--prob", "0.9", "--spot", "never")
    assert {one["policy"] for one in plain["front"]} == {"on_demand"}
    assert plain["best"]["spot_usd_per_h"] is None


ZONES = """\
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az1,32.77,9.8,list
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az2,32.77,9.5,list
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az3,32.77,,list
"""


def test_a_job_may_move_between_zones_and_the_report_names_them(here, capsys):
    (here / "prices.csv").write_text(f"{HEAD}\n{ZONES}")
    asked = ("--steps", "20000", "--budget", "3000", "--policy", "spot", "--prob", "0.9")
    best = answer(capsys, *asked, "--spot", "only")["best"]
    assert best == answer(capsys, *asked)["best"]
    assert best["zones"] == ["use1-az2", "use1-az1"]
    assert best["parts"][0]["where"] == "2 zones of us-east-1"
    assert best["law"] == "any of 2 zones, weibull"
    assert best["spot_usd_per_h"] == pytest.approx(9.5 * best["parts"][0]["count"])
    alone = answer(capsys, *asked, "--regions", "use1-az2")["best"]
    assert alone["zones"] == []
    assert best["time_p95_s"]["value"] < alone["time_p95_s"]["value"]
    assert main([*JOB, "--catalog", "prices.csv", *asked, "--details"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "in 2 zones of us-east-1, spot" in said
    assert "use1-az2, use1-az1: the first that has all nodes" in said
    assert "no transfer of data between zones is counted" in said


def test_on_demand_stays_in_one_zone(here, capsys):
    (here / "prices.csv").write_text(f"{HEAD}\n{ZONES}")
    found = answer(capsys, "--steps", "20000", "--spot", "never")
    assert {tuple(one["zones"]) for one in found["front"]} == {()}
    assert not any("between zones" in note for note in found["notes"])


def test_a_job_that_moves_between_zones_is_planned_anew(here, capsys):
    (here / "prices.csv").write_text(f"{HEAD}\n{ZONES}")
    running = {"instance": "p4d.24xlarge", "where": "2 zones of us-east-1", "count": 1, "policy": "spot"}
    (here / "state.json").write_text(
        json.dumps({"steps_done": 15_000, "elapsed": "1d", "spent_usd": 300, "running": running})
    )
    found = answer(capsys, "--steps", "20000", "--resume", "state.json", "--spot", "only")
    assert found["gain"] is None or found["gain"]["reference"]["zones"] == ["use1-az2", "use1-az1"]
    assert found["best"] is not None


def test_a_running_job_is_planned_anew_from_what_is_left(here, capsys):
    running = {"instance": "p4d.24xlarge", "where": "use1-az1", "count": 1, "policy": "on_demand"}
    state = {"steps_done": 15_000, "elapsed": "1d", "spent_usd": 900, "running": running}
    (here / "state.json").write_text(json.dumps(state))
    arguments = ("--steps", "20000", "--deadline", "4d", "--budget", "9000", "--prob", "0.9", "--spot", "never")
    found = answer(capsys, *arguments, "--resume", "state.json")
    assert found["n_steps"] == 5_000
    assert found["deadline_s"] == 3 * 86_400.0
    assert found["budget_usd"] == 8_100.0
    assert found["left"]["steps_done"] == 15_000


def test_nothing_that_keeps_what_is_asked_is_an_answer_with_reasons(here, capsys):
    found = answer(capsys, "--steps", "20000", "--deadline", "1h")
    assert found["best"] is None
    assert sum(found["infeasible"].values()) == found["n_candidates"]


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_rows_are_named_with_file_and_line(here, capsys, kind):
    row, _ = WRONG[kind]
    (here / "wrong.csv").write_text(f"{HEAD}\n{row}\n")
    said = refused(capsys, "cloud", "bert_large_1024", "--steps", "9", "--catalog", "wrong.csv")
    assert "wrong.csv line 2" in said


STATES = {
    "not JSON": ("{", "not JSON"),
    "a list": ("[]", "no JSON object"),
    "a field is missing": ('{"steps_done": 1}', "elapsed"),
    "an unknown field": ('{"steps_dne": 1}', "steps_done"),
    "negative steps": ('{"steps_done": -1, "elapsed": "1d", "spent_usd": 1}', "steps_done"),
    "a time without a unit": ('{"steps_done": 1, "elapsed": 3, "spent_usd": 1}', "elapsed"),
    "everything is done": ('{"steps_done": 100, "elapsed": "1d", "spent_usd": 1}', "nothing is left"),
    "the deadline has passed": ('{"steps_done": 1, "elapsed": "9d", "spent_usd": 1}', "days have passed"),
    "the money is spent": ('{"steps_done": 1, "elapsed": "1d", "spent_usd": 99}', "are spent"),
    "nothing that runs": (
        '{"steps_done": 1, "elapsed": "1d", "spent_usd": 1, '
        '"running": {"instance": "x", "where": "y", "count": 0, "policy": "spot"}}',
        "count",
    ),
}


@pytest.mark.parametrize("kind", STATES)
def test_wrong_states_are_named(here, capsys, kind):
    text, told = STATES[kind]
    (here / "state.json").write_text(text)
    options = ["--steps", "99", "--deadline", "8d", "--budget", "50", "--resume", "state.json"]
    assert told in refused(capsys, "cloud", "bert_large_1024", "--catalog", "prices.csv", *options)
