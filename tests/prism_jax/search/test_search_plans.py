"""`prism-jax search` as a person calls it."""

import io
import json
import math
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from inference.cost_model.store import save
from prism_jax.calibration.calibration import shipped
from prism_jax.job.load_job import load_job
from prism_jax.search.study import plan_dict
from prism_jax.shell.app import main

SMALL = [
    word
    for change in (
        "plan.sharding=none",
        "plan.dp=16",
        "plan.global_batch=64",
        "plan.micro_batch=1",
        "cluster.n_devices=16",
        "plan.zero_stage=1",
        "plan.recompute=full",
    )
    for word in ("--set", change)
]
SPACE = """
tp: [1, 2]
pp: [1, 2]
cp: 1
micro_batch: [1, 8]
schedule: 1f1b
virtual_stages: 1
recompute: [none, full]
zero_stage: [1]
sharding: none
overlap_tp: false
"""


@pytest.fixture
def space(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(SPACE)
    return str(file)


def search(*words):
    return main(["search", "llama2_7b_fsdp_64", *SMALL, *words])


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """One search of the space: what it prints as JSON, and the folder with its picture and best job."""
    folder, text = tmp_path_factory.mktemp("searched"), io.StringIO()
    (folder / "space.yaml").write_text(SPACE)
    files = ("--plot", str(folder / "found.png"), "--output", str(folder / "best.yaml"))
    with redirect_stdout(text):
        assert search("--space", str(folder / "space.yaml"), "--top", "3", "--json", *files) == 0
    return json.loads(text.getvalue()), folder


def test_json_holds_the_best_plan_and_how_sure_that_is(searched):
    found, folder = searched
    best = found["best"]
    assert best["p50_s"] < best["p95_s"] < best["p99_s"]
    assert 0.0 < best["prob_best"] <= 1.0
    assert found["top"][0] == best
    assert len(found["top"]) == 3
    assert found["n_plans"] >= found["n_feasible"] >= found["n_raced"] >= 3
    assert found["gain"]["gain_interval"][0] <= found["gain"]["gain"] <= found["gain"]["gain_interval"][1]
    assert (found["seed"], found["objective"], found["method"]) == (0, "p95", "exhaustive")
    assert {"elapsed_s", "versions", "inputs"} <= set(found)
    assert (folder / "found.png").read_bytes().startswith(b"\x89PNG")


def test_a_calibration_slows_every_plan(space, capsys, tmp_path):
    known = shipped()
    slow = replace(known, centre={name: value + math.log(1.2) for name, value in known.centre.items()})
    save(replace(slow, record={"generation": "ampere"}), tmp_path / "slow.npz")
    save(replace(slow, record={"generation": "volta"}), tmp_path / "other.npz")
    found = []
    kept = ("--resume", str(tmp_path / "search.npz"))
    for words in (kept, ("--fit", str(tmp_path / "slow.npz"))):
        assert search("--space", space, "--top", "2", "--json", *words) == 0
        found.append(json.loads(capsys.readouterr().out)["best"]["p50_s"])
    assert found[1] == pytest.approx(1.2 * found[0], rel=0.02)
    assert search("--space", space, "--top", "2", "--fit", str(tmp_path / "slow.npz"), *kept) == 2
    assert "belongs to another search" in capsys.readouterr().err
    assert search("--space", space, "--fit", str(tmp_path / "other.npz")) == 2
    assert "calibrated on volta" in capsys.readouterr().err


def test_the_same_search_twice_and_resumed_says_the_same(space, capsys, tmp_path):
    file = str(tmp_path / "search.npz")
    found = []
    for more in ([], ["--resume", file], ["--resume", file]):
        assert search("--space", space, "--json", *more) == 0
        found.append(json.loads(capsys.readouterr().out)["top"])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("tp: [2, x]", "tp.1: 'x'"),
        ("tensor: [2]", "unknown field"),
        ("schedule: 1f1c", "did you mean 1f1b"),
        ("tp: []", "tp"),
        ("zero_stage: [4]", "zero_stage"),
        ("overlap_dp: [1]", "overlap_dp"),
        ("- 1", "mapping"),
        ("tp: [2, 2]", "names a value twice"),
        ("tp: [3]", "no combination of degrees"),
    ],
)
def test_a_wrong_space_is_told_apart(text, mistake, capsys, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(text)
    assert search("--space", str(file)) == 2
    error = capsys.readouterr().err
    assert mistake in error
    assert "Traceback" not in error


def test_sizes_show_what_more_gpus_buy(space, capsys):
    assert search("--space", space, "--gpus", "8", "--gpus", "32", "--gpus", "16", "--price", "2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [size["n_devices"] for size in found["sizes"]] == [8, 16, 32]
    times = [size["value_s"] for size in found["sizes"]]
    assert times == sorted(times, reverse=True)
    for size in found["sizes"]:
        assert size["plan"]["n_devices"] == size["n_devices"]
        assert size["cost"] == pytest.approx(2 * size["energy_j"] / 400 / 3600)  # an A100 takes 400 W
    assert set(found["front"]) == {8, 16, 32}  # more GPUs are faster and cost more
    assert search("--space", space, "--gpus", "8", "--gpus", "8") == 2
    assert search("--space", space, "--gpus", "16", "--resume", "x.npz") == 2
    assert search("--space", space, "--gpus", "16") == 0
    assert "best plan by p95" in capsys.readouterr().out


def test_the_best_plan_is_written_as_a_job(searched, capsys):
    found, folder = searched
    best = found["best"]
    assert plan_dict(load_job(str(folder / "best.yaml")).plan) == best["plan"]
    changed = [word for change in best["changes"] for word in ("--set", change)]
    assert main(["check", "llama2_7b_fsdp_64", *SMALL, *changed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_bytes_per_gpu"]["total"] == pytest.approx(best["memory_bytes"])


def test_a_job_that_cannot_be_written_is_refused_before_the_search(space, capsys, tmp_path):
    assert search("--space", space, "--output", str(tmp_path / "nowhere" / "best.yaml")) == 2
    assert "nowhere" in capsys.readouterr().err
    assert search("--gpus", "8", "--gpus", "16", "--output", str(tmp_path / "best.yaml")) == 2
    assert "--gpus: cannot be combined" in capsys.readouterr().err


def test_unlike_plans_are_listed(searched):
    found, _ = searched
    kinds = {(p["plan"]["tp"], p["plan"]["pp"], p["plan"]["recompute"]) for p in found["unlike"]}
    assert len(kinds) == len(found["unlike"]) == 3
    assert found["unlike"][0] == found["best"]
    assert all(0.0 < p["mfu"] < 1.0 and p["tokens_per_s_per_gpu"] > 0.0 for p in found["unlike"])


def test_what_went_with_another_choice_is_not_carried_over(space, capsys, tmp_path):
    """Group size of hsdp, and options of full recomputation, where the best plan has neither."""
    file = tmp_path / "best.yaml"
    narrow = tmp_path / "narrow.yaml"
    narrow.write_text(SPACE.replace("recompute: [none, full]", "recompute: none"))
    own = ["plan.sharding=hsdp", "plan.dp_shard=8", "plan.zero_stage=0", "plan.recompute_method=block"]
    words = [word for change in (*own, "plan.recompute_num_layers=3") for word in ("--set", change)]
    assert search(*words, "--space", str(narrow), "--json", "--output", str(file)) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert (best["plan"]["sharding"], best["plan"]["recompute"]) == ("none", "none")
    assert plan_dict(load_job(str(file)).plan) == best["plan"]
    changed = [word for change in best["changes"] for word in ("--set", change)]
    assert main(["check", "llama2_7b_fsdp_64", *SMALL, *words, *changed, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memory_bytes_per_gpu"]["total"] == pytest.approx(best["memory_bytes"])


def test_a_space_without_a_better_plan_says_so(space, capsys, tmp_path):
    worse = tmp_path / "worse.yaml"
    worse.write_text("tp: 4\npp: 2\nmicro_batch: 1\nrecompute: full\nzero_stage: 1\nsharding: none\nschedule: 1f1b\n")
    assert search("--space", str(worse), "--set", "plan.recompute=none") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "No plan of the space has a lower p95 than the job's own: the least there is" in shown
    assert "below" not in shown.partition("plan")[0]
