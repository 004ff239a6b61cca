"""`prism-jax check`, on small jobs and on published launch configurations."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_jax.cost.memory import memory
from prism_jax.framework.base import WITHOUT_PEAKS
from prism_jax.job.load_job import load_job
from prism_jax.prediction.check import check_job
from prism_jax.shell.app import main

JOB = """\
name: small
model: llama-2-7b
cluster: dgx-h100
plan: {micro_batch: 1, global_batch: 64, seq_len: 4096, tp: 2, pp: 4, dp: 8, zero_stage: 1}
variability: none
"""


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def checked(capsys, *arguments):
    assert main(["check", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_says_what_follows_from_the_job(job, capsys):
    summary = checked(capsys, job)
    loaded = load_job(job)
    assert summary["name"] == "small"
    assert (summary["n_devices"], summary["n_micro_batch"], summary["n_chunk"]) == (64, 8, 4)
    assert (summary["n_member"], summary["n_replica"]) == (2, 8)
    assert summary["tokens_per_step"] == 64 * 4096
    assert summary["n_params"] == loaded.model.n_params()
    needed = memory(loaded.model, loaded.cluster, loaded.plan)
    low, high = WITHOUT_PEAKS.interval_bytes(needed.total_bytes, loaded.model.has_experts)
    not_fit_prob = WITHOUT_PEAKS.not_fit_prob(needed.total_bytes, needed.capacity_bytes, loaded.model.has_experts)
    uncertain = {"low": low, "high": high, "not_fit_prob": not_fit_prob}
    assert summary["memory_bytes_per_gpu"] == pytest.approx({**needed.as_dict(), **uncertain})
    assert summary["fits"] == needed.fits


def test_a_person_reads_class_and_reasons_nearest_runs_and_the_open_fabric_in_words(job, capsys):
    open_ = ["--set", "cluster={device: h100-sxm, n_devices: 64}"]
    (fabric,) = (one for one in checked(capsys, job, *open_)["open_fields"] if one["name"] == "cluster.network")
    assert fabric["assumed"] == "the usual bandwidth between nodes"
    assert [one["value"] for one in fabric["alternatives"]] == ["0.5 x that", "2 x that"]
    assert main(["check", job, "--set", "framework=other", "--details"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "a wider interval than usual): framework not stated, or fewer than 4 sources measured it" in text
    assert "measured runs extrapolated: nearest are" in text or " measured runs of " in text


def test_a_framework_with_measured_peaks_narrows_the_interval(job, capsys):
    known, unknown = (
        checked(capsys, job, "--set", f"framework={name}")["memory_bytes_per_gpu"]
        for name in ("megatron-core", "other")
    )
    assert known["total"] == unknown["total"]
    assert known["high"] - known["low"] < 0.5 * (unknown["high"] - unknown["low"])


def test_the_software_is_listed(job, capsys):
    assert checked(capsys, job)["framework"] == ""
    assert checked(capsys, job, "--set", "framework=fsdp")["framework"] == "fsdp"
    assert main(["check", job, "--details"]) == 0
    assert "not stated" in capsys.readouterr().out


def test_overrides_are_checked_too(job, capsys):
    assert checked(capsys, job, "--set", "plan.tp=4", "--set", "plan.dp=4")["n_replica"] == 4
    assert main(["check", job, "--set", "plan.tpp=4"]) == 2
    assert "--set plan.tpp=4: unknown field, did you mean tp?" in capsys.readouterr().err


def test_a_job_that_does_not_fit_is_valid_but_warned_about(job, capsys):
    arguments = ["check", job, "--set", "cluster.device.hbm=4 GiB"]
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert "DOES NOT FIT" in captured.out
    assert "warning: does not fit: needs" in captured.err
    assert main([*arguments, "--json", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.err == ""
    assert json.loads(captured.out)["fits"] is False
    assert main([*arguments, "--ignore-memory"]) == 0


def test_recomputation_that_saves_nothing_is_noted(job, capsys):
    assert main(["check", job, "--set", "plan.recompute=selective"]) == 0
    assert "1 note)" in capsys.readouterr().out
    assert main(["check", job, "--set", "plan.recompute=selective", "--details"]) == 0
    assert "note: recompute: selective of core_attn saves" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("grad_reduce_in_bf16", "state_dtypes.grad_reduce"),
        ("--grad-reduce-in-bf16", "state_dtypes.grad_reduce"),
        ("grad_dtype", "state_dtypes.grad_reduce"),
        ("use_precision_aware_optimizer", "state_dtypes"),
        ("fp8_param_gather", "state_dtypes.fp8_params"),
        ("recompute_granularity", "recompute"),
    ],
)
def test_names_of_other_tools_lead_to_the_field(job, name, meant, capsys):
    assert main(["check", job, "--set", f"plan.{name}=true"]) == 2
    assert f"unknown field, did you mean {meant}?" in capsys.readouterr().err


def test_mistakes_are_all_listed_on_stderr(job, tmp_path, capsys):
    (tmp_path / "bad.yaml").write_text(JOB.replace("name:", "nmae:").replace("tp: 2", "tp: two"))
    assert main(["check", str(tmp_path / "bad.yaml")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 2


# --- Published launch configurations that run fit, and those that were reported to run out of memory are refused -----


TABLE = yaml.safe_load((Path(__file__).parents[2] / "data" / "launch_configurations.yaml").read_text())


def job_file(folder: Path, row: dict[str, Any]) -> str:
    """A job file of one row, without its source."""
    path = folder / "job.yaml"
    job = {name: value for name, value in row.items() if name != "source"}
    path.write_text(yaml.safe_dump({"name": "launched", "variability": "none", **job}))
    return str(path)


def test_the_table_holds_ten_runs_and_three_controls():
    assert len(TABLE["runs"]) >= 10
    assert len(TABLE["out_of_memory"]) >= 3
    assert all(row["source"] for rows in TABLE.values() for row in rows)


@pytest.mark.parametrize("row", TABLE["runs"], ids=lambda row: row["source"])
def test_a_configuration_that_runs_fits(tmp_path: Path, row: dict[str, Any]):
    assert check_job(job_file(tmp_path, row)).fits


@pytest.mark.parametrize("row", TABLE["out_of_memory"], ids=lambda row: row["source"])
def test_a_configuration_that_runs_out_of_memory_is_refused(
    tmp_path: Path, row: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    path = job_file(tmp_path, row)
    assert not check_job(path).fits
    assert main(["check", path]) == 1
    captured = capsys.readouterr()
    assert "DOES NOT FIT" in captured.out
    assert "warning: does not fit" in captured.err
    assert main(["check", path, "--ignore-memory"]) == 0


BIG = """\
name: big
model: llama-3-70b
cluster: {preset: dgx-h100, n_devices: 8}
framework: deepspeed
plan: {dp: 8, zero_stage: 3, micro_batch: 1, global_batch: 64, seq_len: 4096, recompute: full, offload_optimizer: true}
variability: none
"""


@pytest.mark.parametrize(
    ("memory", "words", "fits"),
    [
        ("2 TB", "of 1.82 TiB per node: fits", True),
        ("1 TB", "of 931 GiB per node: DOES NOT FIT", False),
        (None, "memory of the node not stated (cluster.host_memory)", True),
    ],
)
def test_states_on_the_host_are_held_against_its_memory(
    tmp_path: Path, memory: str | None, words: str, fits: bool, capsys: pytest.CaptureFixture[str]
):
    """70.6 billion parameters with 16 bytes each, and 44% of the 8 that are pinned: 1.38 TB."""
    path = tmp_path / "job.yaml"
    unknown = BIG.replace("preset: dgx-h100", "preset: pcie-h100")
    path.write_text(unknown if memory is None else BIG.replace("n_devices: 8", f"n_devices: 8, host_memory: {memory}"))
    report = check_job(str(path))
    assert report.fits is fits
    host = report.host_memory_bytes_per_node
    assert host is not None
    assert host.total == pytest.approx((16 + 0.44 * 8) * 70.55e9, rel=0.01)
    assert main(["check", str(path), "--details"]) == (0 if fits else 1)
    captured = capsys.readouterr()
    assert words in " ".join(captured.out.split())
    assert ("the host needs" in captured.err) is not fits
    assert main(["check", str(path), "--ignore-memory"]) == 0


def test_what_an_optimizer_keeps_is_said(job):
    assert check_job(job).states.startswith("adamw: 2 parameter, 4 master copy, 8 moments")
