"""One call in Python answers what a command prints; reports survive JSON, pickle and a file, and are as published."""

import json
import pickle
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import prism_jax as pj
from benchmarks.golden.inputs import write_inputs
from prism_jax.capture.capture_program import capture_step
from prism_jax.core.errors import DataError
from prism_jax.core.report import Report
from prism_jax.horizon.checkpoint import Checkpoint
from prism_jax.host.host_of_trace import host_of_trace
from prism_jax.recorded.kernels_of_trace import kernels_of_trace
from prism_jax.shell.app import main
from prism_jax.show.doctor import examine_installation
from prism_jax.show.reports import REPORTS, published_schema
from prism_jax.show.saved_report import open_reports
from tests.prism_jax.launch.heads import LLAMA, megatron_block, megatron_steps
from tests.support.intervals import estimates

TRACE = str(Path(__file__).resolve().parents[3] / "examples" / "local_cluster")
FEW = {"n_samples": 64}
SAVES = pj.TuneLimits(mtbf_h=3.0, checkpoint=Checkpoint(40.0, load_s=40.0, interval_s=600.0), restart_s=300.0)
LLAMA_S = 3.5  # about what its head predicts
MEMORY = """\
row,model,framework,cluster,plan.dp,plan.sharding,plan.micro_batch,plan.global_batch,plan.seq_len,fits,peak_memory_bytes
one,llama-2-7b,fsdp,dgx-h100,16,fsdp,1,32,4096,true,4e10
two,llama-2-7b,fsdp,dgx-h100,16,fsdp,2,32,4096,false,
"""
CASES: dict[str, tuple[str, Callable[[], Report]]] = {  # kind of report: a command, and the call that answers the same
    "sweep": (
        "sweep job.yaml --set plan.micro_batch=1,2 --samples 64",
        lambda: pj.sweep_jobs("job.yaml", ["plan.micro_batch=1,2"], **FEW),
    ),
    "scaling": ("scale job.yaml --gpus 8,16 --samples 64", lambda: pj.scale_job("job.yaml", "8,16", **FEW)),
    "comparison": (
        "compare job.yaml placed.yaml --samples 64",
        lambda: pj.compare_jobs(["job.yaml", "placed.yaml"], **FEW),
    ),
    "capacity": (
        "capacity job.yaml --fleet 8xa100-80gb --days 3 --samples 64",
        lambda: pj.plan_capacity("job.yaml", ["8xa100-80gb"], days=3.0, **FEW),
    ),
    "cloud": (
        "cloud job.yaml --steps 90000 --regions us-central1 --most-gpus 8 --worlds 200",
        lambda: pj.choose_cloud("job.yaml", n_steps=90_000, regions=["us-central1"], most_gpus=8, n_worlds=200),
    ),
    "reports": ("report saved.json saved.json", lambda: open_reports("saved.json", "saved.json")),
    "check": ("check job.yaml", lambda: pj.check_job("job.yaml")),
    "prediction": (
        "predict job.yaml --samples 64 --slowdowns gpus.csv",
        lambda: pj.explain_step("job.yaml", slowdowns="gpus.csv", **FEW),
    ),
    "run": (
        "run job.yaml --steps 100000 --mtbf 30h --worlds 200",
        lambda: pj.predict_run("job.yaml", n_steps=100_000, mtbf_h=30.0, n_worlds=200),
    ),
    "study": (
        "search job.yaml --space space.yaml --top 2",
        lambda: pj.search_plans("job.yaml", space="space.yaml", top=2),
    ),
    "sizes": (
        "search job.yaml --space space.yaml --gpus 8 --gpus 16 --price 2.5",
        lambda: pj.search_sizes("job.yaml", [8, 16], space="space.yaml", price_per_hour=2.5),
    ),
    "tune": (
        "search job.yaml --continuous checkpoint --mtbf 3h --checkpoint 600s --checkpoint-write 40s --restart 300s",
        lambda: pj.tune("job.yaml", ["checkpoint"], limits=SAVES),
    ),
    "placement": ("place placed.yaml --slowdowns nodes.csv", lambda: pj.place_nodes("placed.yaml", "nodes.csv")),
    "sharding": (
        "shard tables.yaml --whole --spread 0.2",
        lambda: pj.shard_tables("tables.yaml", whole=True, spread=0.2),
    ),
    "trace-kernels": ("trace kernels profiles --top 2", lambda: kernels_of_trace("profiles", top=2)),
    "host": ("trace host kineto.json", lambda: host_of_trace("kineto.json")),
    "queue": ("queue queue.csv --seeds 2", lambda: pj.schedule_trace("queue.csv", n_seeds=2)),
    "site-calibration": ("calibrate runs.csv", lambda: pj.calibrate_site("runs.csv")),
    "suggestion": ("calibrate runs.csv --suggest 2", lambda: pj.suggest_runs("runs.csv", 2)),
    "fit": (
        "fit fleet times.csv --method map",
        lambda: pj.fit_variability("fleet", ["times.csv"], method="map"),
    ),
    "kept-fit": ("fit report fleet.npz", lambda: pj.report_fit("fleet.npz")),
    "steps-validation": (
        "validate steps runs.csv --deterministic",
        lambda: pj.validate_steps("runs.csv", deterministic=True),
    ),
    "log-validation": (
        "validate headed.log --device h100-sxm",
        lambda: pj.validate_log("headed.log", device="h100-sxm"),
    ),
    "memory-validation": ("validate memory memory.csv", lambda: pj.validate_memory("memory.csv")),
    "capture": ("capture job.yaml", lambda: capture_step("job.yaml")),
    "execution-trace": ("trace info execution_trace.json", lambda: pj.describe_trace("execution_trace.json")),
    "trace-info": (f"trace info {TRACE}", lambda: pj.describe_trace(TRACE)),
    "watch": (f"watch {TRACE} --learn 12", lambda: pj.watch_steps(TRACE, n_learn=12)),
    "trace-replay": (f"trace replay {TRACE}", lambda: pj.replay_trace(TRACE)),
    "trace-prediction": (
        f"trace predict {TRACE} --draws 400 --splits 2",
        lambda: pj.predict_trace(TRACE, n_split=2, n_draw=400),
    ),
    "what-if": (
        f"trace what-if {TRACE} --draws 400 --layers-per-stage 4",
        lambda: pj.what_if(TRACE, layers_per_stage=4, n_draw=400),
    ),
    "catalogue": ("show devices", lambda: pj.show_catalogue("devices")),
    "doctor": ("doctor", examine_installation),
    "entry": ("show devices h100-sxm", lambda: pj.show_entry("devices", "h100-sxm")),
}


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """In place of the one of all these tests: NumPyro relies on promotion."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the commands read: the files of the golden gate, and a kept fit."""
    folder = tmp_path_factory.mktemp("app")
    write_inputs(folder)
    (folder / "memory.csv").write_text(MEMORY)
    (folder / "headed.log").write_text("\n".join([*megatron_block(LLAMA), *megatron_steps([LLAMA_S] * 8)]))
    assert main(["fit", "fleet", f"{folder}/times.csv", "--method", "map", "-q", "-o", f"{folder}/fleet.npz"]) == 0
    pj.check_job(f"{folder}/job.yaml").save(folder / "saved.json")
    return folder


@pytest.fixture(scope="module")
def answers() -> dict[str, Report]:
    """Reports that were made already."""
    return {}


@pytest.fixture
def report(request: pytest.FixtureRequest, folder: Path, answers: dict[str, Report], monkeypatch) -> Report:
    """The answer in Python, made once per kind; clocks and what is free stand still, so that no report tells of them."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("prism_jax.show.doctor.available_bytes", lambda: 2.0**33)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**33))
    kind = request.param
    if kind not in answers:
        answers[kind] = CASES[kind][1]()
    return answers[kind]


every = pytest.mark.parametrize("report", list(CASES), indirect=True)


def test_there_is_a_case_for_every_report():
    assert set(CASES) == set(REPORTS.names)


@every
def test_json_of_the_command_is_the_report(report: Report, capsys):
    assert main([*shlex.split(CASES[report.kind][0]), "--json"]) == 0
    printed, plain = json.loads(capsys.readouterr().out), report.to_dict()
    if report.kind in ("catalogue", "entry"):  # lists and entries are printed as they are
        assert printed == plain["entries" if report.kind == "catalogue" else "entry"]
        return
    for found in (printed, plain):
        for part in (found, found.get("record", {})):  # a checkout may be edited meanwhile
            part.pop("inputs", None)
            part.pop("git_revision", None)
            part.pop("command", None)
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
def test_every_report_is_one_html_file_that_loads_nothing(report: Report):
    html = report.to_html()
    assert html.startswith("<!doctype html><html")
    assert "<script" not in html
    assert len(html) < 500_000
    outside = [
        one for one in re.findall(r"""(?:src|href|url\()=?["']?([^"'\s)]+)""", html) if not one.startswith("data:")
    ]
    assert outside == []
    assert "default-src &#39;none&#39;" in html


@every
def test_a_notebook_shows_a_card_and_one_line_names_the_report(report: Report):
    assert report._repr_html_().startswith("<div>")
    assert "\n" not in repr(report)
    assert len(report.to_frame()) == 1


WITH_INTERVALS = {
    "cloud", "prediction", "study", "placement", "sharding", "queue", "run", "site-calibration", "fit", "kept-fit",
    "steps-validation", "trace-prediction", "tune",
}  # fmt: skip


@every
def test_every_estimate_lies_in_the_interval_beside_it(report: Report):
    found = list(estimates(json.loads(report.to_json())))
    assert [one for one in found if not one.is_inside] == []
    assert bool(found) == (report.kind in WITH_INTERVALS)


def test_predictions_take_fits(folder: Path, monkeypatch):
    monkeypatch.chdir(folder)
    two = "".join(
        Path("runs.csv").read_text().splitlines(keepends=True)[:3]
    )  # of more, it may be said that what ships is better
    Path("two.csv").write_text(two)
    assert main(["calibrate", "two.csv", "-q", "-o", "site.npz"]) == 0
    key = jax.random.key(0)
    plain = pj.predict("job.yaml", key=key, n_samples=64)
    fitted = pj.predict("job.yaml", key=key, n_samples=64, fits=["site.npz"])
    told = pj.explain_step("job.yaml", n_samples=64, fits=["site.npz"])
    assert fitted.quantile(0.5) != plain.quantile(0.5)
    assert told.step_time_s.p50 == fitted.quantile(0.5)


def test_a_job_object_is_as_good_as_its_file(folder: Path):
    file = folder / "job.yaml"
    by_object, by_file = pj.check_job(pj.load_job(file)), pj.check_job(file)
    assert replace(by_object, record=by_file.record) == by_file
    assert pj.peak_memory(file).fits


def test_overrides_of_a_job_object_are_refused(folder: Path):
    with pytest.raises(DataError, match="fields of a file"):
        pj.check_job(pj.load_job(folder / "job.yaml"), overrides=["plan.tp=2"])
