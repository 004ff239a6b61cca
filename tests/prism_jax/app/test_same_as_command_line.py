"""One call in Python answers what a command prints: same text, same JSON; reports survive JSON, pickle and a file."""

import csv
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pytest

import prism_jax as pj
from prism_jax.capture.capture_program import capture_step
from prism_jax.core.errors import DataError
from prism_jax.core.report import Report
from prism_jax.host.host_of_trace import host_of_trace
from prism_jax.shell.app import main
from prism_jax.show.reports import REPORTS, published_schema
from tests.support.files.execution_traces import trace_text
from tests.support.intervals import estimates

ROOT = Path(__file__).resolve().parents[3]
TRACE = str(ROOT / "examples" / "local_cluster")
JOB = """\
name: small
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
framework: megatron-core
"""
TABLES = """
model:
  kind: dlrm
  name: three
  n_dense: 0
  bottom: []
  tables:
    - {name: a, rows: 200000, dim: 32, pooling: 3}
    - {name: b, rows: 50000, dim: 32, pooling: 9}
    - {name: c, rows: 9000, dim: 32, pooling: 20}
  interaction: cat
  top: [64, 1]
cluster: {preset: dgx-a100, n_devices: 2}
plan: {dp: 2, global_batch: 4096, dtype: fp16}
"""
STEPS_ROW = {
    "row": "one", "source": "site A", "model": "llama-2-7b", "framework": "fsdp", "cluster": "dgx-h100", "plan.dp": "16",
    "plan.sharding": "fsdp", "plan.micro_batch": "1", "plan.global_batch": "32", "plan.seq_len": "4096", "step_time_s": "1.0",
}  # fmt: skip
MEMORY_ROW = {
    **{name: STEPS_ROW[name] for name in STEPS_ROW if name not in ("step_time_s", "source")},
    "fits": "true",
    "peak_memory_bytes": "4e10",
}


PROFILE = [  # microseconds: a step in which one operator launches one kernel
    {"ph": "X", "name": name, "cat": category, "ts": start, "dur": duration, "tid": 1, "args": {"correlation": link}}
    for name, category, start, duration, link in (
        ("ProfilerStep#1", "user_annotation", 1000, 2000, -1),
        ("aten::mm", "cpu_op", 1050, 200, -1),
        ("cudaLaunchKernel", "cuda_runtime", 1100, 10, 1),
        ("gemm", "kernel", 1105, 1000, 1),
    )
]


class Case(NamedTuple):
    """A command, and the call that answers the same."""

    arguments: list[str]
    call: Callable[[], Report]


def of_studies() -> dict[str, Case]:
    """Those of many jobs."""
    return {
        "sweep": Case(
            ["sweep", "job.yaml", "--set", "plan.micro_batch=1,2", "--samples", "64"],
            lambda: pj.sweep_jobs("job.yaml", ["plan.micro_batch=1,2"], n_samples=64),
        ),
        "scaling": Case(
            ["scale", "job.yaml", "--gpus", "8,16", "--samples", "64"],
            lambda: pj.scale_job("job.yaml", "8,16", n_samples=64),
        ),
        "comparison": Case(
            ["compare", "job.yaml", "small.yaml", "--samples", "64"],
            lambda: pj.compare_jobs(["job.yaml", "small.yaml"], n_samples=64),
        ),
        "capacity": Case(
            ["plan", "job.yaml", "--fleet", "8xa100-80gb", "--days", "3", "--samples", "64"],
            lambda: pj.plan_capacity("job.yaml", ["8xa100-80gb"], days=3.0, n_samples=64),
        ),
        "cloud": Case(
            [
                "cloud",
                "job.yaml",
                "--steps",
                "90000",
                "--regions",
                "us-central1",
                "--most-gpus",
                "8",
                "--worlds",
                "200",
            ],
            lambda: pj.choose_cloud("job.yaml", n_steps=90_000, regions=["us-central1"], most_gpus=8, n_worlds=200),
        ),
    }


def cases() -> dict[str, Case]:
    """By kind of report; files lie in the current folder."""
    few = {"n_draw": 400}
    return of_studies() | {
        "check": Case(["check", "job.yaml"], lambda: pj.check_job("job.yaml")),
        "prediction": Case(
            ["predict", "job.yaml", "--samples", "64", "--slowdowns", "gpus.csv"],
            lambda: pj.explain_step("job.yaml", n_samples=64, slowdowns="gpus.csv"),
        ),
        "run": Case(
            ["job", "job.yaml", "--steps", "100000", "--mtbf", "30h", "--worlds", "200"],
            lambda: pj.predict_run("job.yaml", n_steps=100_000, mtbf_h=30.0, n_worlds=200),
        ),
        "study": Case(["search", "job.yaml", "--top", "2"], lambda: pj.search_plans("job.yaml", top=2)),
        "sizes": Case(
            ["search", "job.yaml", "--gpus", "8", "--gpus", "16", "--price", "2.5"],
            lambda: pj.search_sizes("job.yaml", [8, 16], price_per_hour=2.5),
        ),
        "placement": Case(
            ["place", "job.yaml", "--set", "plan.dp=16", "--slowdowns", "nodes.csv", "--spares", "1"],
            lambda: pj.place_nodes("job.yaml", "nodes.csv", overrides=["plan.dp=16"], spares=1),
        ),
        "sharding": Case(
            ["shard", "tables.yaml", "--whole", "--spread", "0.2"],
            lambda: pj.shard_tables("tables.yaml", whole=True, spread=0.2),
        ),
        "host": Case(["trace", "host", "rank0.json"], lambda: host_of_trace("rank0.json")),
        "queue": Case(["schedule", "queue.csv", "--seeds", "2"], lambda: pj.schedule_trace("queue.csv", n_seeds=2)),
        "site-calibration": Case(["calibrate", "runs.csv"], lambda: pj.calibrate_site("runs.csv")),
        "suggestion": Case(["calibrate", "runs.csv", "--suggest", "2"], lambda: pj.suggest_runs("runs.csv", 2)),
        "fit": Case(
            ["fit", "fleet", "fleet.csv", "--method", "map"],
            lambda: pj.fit_variability("fleet", ["fleet.csv"], method="map"),
        ),
        "kept-fit": Case(["fit", "report", "fleet.npz"], lambda: pj.report_fit("fleet.npz")),
        "steps-validation": Case(
            ["validate", "steps", "steps.csv", "--deterministic"],
            lambda: pj.validate_steps("steps.csv", deterministic=True),
        ),
        "memory-validation": Case(["validate", "memory", "memory.csv"], lambda: pj.validate_memory("memory.csv")),
        "capture": Case(["capture", "job.yaml"], lambda: capture_step("job.yaml")),
        "execution-trace": Case(["trace", "info", "et.json"], lambda: pj.describe_trace("et.json")),
        "trace-info": Case(["trace", "info", TRACE], lambda: pj.describe_trace(TRACE)),
        "watch": Case(["watch", TRACE, "--learn", "12"], lambda: pj.watch_steps(TRACE, n_learn=12)),
        "trace-replay": Case(["trace", "replay", TRACE], lambda: pj.replay_trace(TRACE)),
        "trace-prediction": Case(
            ["trace", "predict", TRACE, "--draws", "400", "--splits", "2"],
            lambda: pj.predict_trace(TRACE, n_split=2, **few),
        ),
        "what-if": Case(
            ["trace", "what-if", TRACE, "--draws", "400", "--layers-per-stage", "4"],
            lambda: pj.what_if(TRACE, layers_per_stage=4, **few),
        ),
        "catalogue": Case(["show", "devices"], lambda: pj.show_catalogue("devices")),
        "entry": Case(["show", "devices", "h100-sxm"], lambda: pj.show_entry("devices", "h100-sxm")),
    }


def write_table(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """In place of the one of all these tests: NumPyro relies on promotion."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the commands read."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "job.yaml").write_text(JOB)
    (folder / "tables.yaml").write_text(TABLES)
    (folder / "small.yaml").write_text(JOB.replace("dp: 8", "dp: 4"))
    write_table(folder / "gpus.csv", [{"gpu": 0, "slowdown": 1.1}, {"gpu": 3, "slowdown": 1.05}])
    write_table(folder / "nodes.csv", [{"node": i, "slowdown": 1 + 0.02 * i} for i in range(3)])
    (folder / "et.json").write_text(trace_text())
    (folder / "rank0.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": PROFILE}))
    write_table(folder / "queue.csv", [{"submit_s": 9 * i, "gpus": 1 + i % 3, "duration_s": 50 - i} for i in range(20)])
    seconds = {"": 0.05, "plan.micro_batch=2": 0.045, "plan.global_batch=32": 0.09}
    write_table(
        folder / "runs.csv", [{"job": "job.yaml", "set": k, "measured_step_time_s": v} for k, v in seconds.items()]
    )
    write_table(folder / "steps.csv", [STEPS_ROW, {**STEPS_ROW, "row": "two", "step_time_s": ""}])
    write_table(folder / "memory.csv", [MEMORY_ROW, {**MEMORY_ROW, "fits": "false", "plan.micro_batch": "2"}])
    rng = np.random.default_rng(4)
    gpu = np.repeat(np.arange(40), 5)
    log = 0.03 * rng.standard_normal(40)[gpu] + 0.01 * rng.standard_normal(len(gpu))
    rows = [{"gpu": f"g{i}", "node": f"n{i // 4}", "time_ms": 20 * np.exp(x)} for i, x in zip(gpu, log, strict=True)]
    write_table(folder / "fleet.csv", rows)
    assert (
        main(["fit", "fleet", str(folder / "fleet.csv"), "--method", "map", "-q", "-o", str(folder / "fleet.npz")]) == 0
    )
    return folder


@pytest.fixture(scope="module")
def answers() -> dict[str, Report]:
    """Reports that were made already."""
    return {}


@pytest.fixture
def report(request: pytest.FixtureRequest, folder: Path, answers: dict[str, Report], monkeypatch) -> Report:
    """The answer in Python, made once per kind; clocks stand still, so that no report tells how long it took."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    kind = request.param
    if kind not in answers:
        answers[kind] = cases()[kind].call()
    return answers[kind]


every = pytest.mark.parametrize("report", list(cases()), indirect=True)


def test_there_is_a_case_for_every_report():
    assert set(cases()) == set(REPORTS.names)


@every
def test_the_command_prints_the_lines_of_the_report(report: Report, capsys):
    assert main(cases()[report.kind].arguments) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.split("\n")[:-1]]
    assert printed == [line.rstrip() for line in "\n".join(report.lines()).split("\n")]


@every
def test_json_of_the_command_is_the_report(report: Report, capsys):
    assert main([*cases()[report.kind].arguments, "--json"]) == 0
    printed, plain = json.loads(capsys.readouterr().out), report.to_dict()
    if report.kind in ("catalogue", "entry"):  # lists and entries are printed as they are
        assert printed == plain["entries" if report.kind == "catalogue" else "entry"]
        return
    for found in (printed, plain):
        for part in (
            found,
            found.get("record", {}),
        ):  # options have other names, and a checkout may be edited meanwhile
            part.pop("inputs", None)
            part.pop("git_revision", None)
    assert printed == plain


@every
def test_reports_survive_json_pickle_and_a_file(report: Report, tmp_path: Path):
    plain = json.loads(report.to_json())
    again = type(report).from_dict(plain)
    assert again.to_dict() == plain
    assert again.lines() == report.lines()
    assert pickle.loads(pickle.dumps(report)) == report
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == plain


@every
def test_reports_are_what_their_published_schema_says(report: Report):
    jsonschema = pytest.importorskip("jsonschema")
    schema = published_schema(report.kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(report.to_json()))
    described = set(schema["properties"])
    assert set(report.to_dict()) <= described, "every key is described"


@every
def test_notebooks_show_a_small_table_and_no_raw_text(report: Report):
    html = report._repr_html_()
    assert html.startswith("<table>")
    assert "<script" not in html


WITH_INTERVALS = {
    "cloud",
    "prediction",
    "study",
    "placement",
    "sharding",
    "queue",
    "run",
    "site-calibration",
    "fit",
    "kept-fit",
    "steps-validation",
    "trace-prediction",
}


@every
def test_every_estimate_lies_in_the_interval_beside_it(report: Report):
    found = list(estimates(json.loads(report.to_json())))
    assert [one for one in found if not one.is_inside] == []
    assert bool(found) == (report.kind in WITH_INTERVALS)


def test_predictions_take_fits(folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    assert main(["calibrate", "runs.csv", "-q", "-o", "site.npz"]) == 0
    key = jax.random.key(0)
    plain = pj.predict("job.yaml", key=key, n_samples=64)
    fitted = pj.predict("job.yaml", key=key, n_samples=64, fits=["site.npz"])
    told = pj.explain_step("job.yaml", n_samples=64, fits=["site.npz"])
    assert fitted.quantile(0.5) != plain.quantile(0.5)
    assert told.step_time_s.p50 == fitted.quantile(0.5)


def test_a_job_object_is_as_good_as_its_file(folder: Path):
    file = folder / "job.yaml"
    assert pj.check_job(pj.load_job(file)) == pj.check_job(file)
    assert pj.peak_memory(file).fits


def test_overrides_of_a_job_object_are_refused(folder: Path):
    with pytest.raises(DataError, match="fields of a file"):
        pj.check_job(pj.load_job(folder / "job.yaml"), overrides=["plan.tp=2"])
