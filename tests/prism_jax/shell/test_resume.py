"""`--resume`: whatever decides the answer is edited, what was kept is refused; whatever does not, it is taken."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import pytest

from inference.cost_model.store import save
from inference.data.clean import CleaningReport
from inference.engine.program import Settings
from inference.fitting.fit import posterior
from inference.fitting.result import Fit
from prism_jax import write_capture
from prism_jax.calibration.calibration import shipped
from prism_jax.core import kept_work
from prism_jax.core.errors import PlanError
from prism_jax.core.kept_work import WorkFile, identity
from prism_jax.core.use_case import case_of
from prism_jax.fits.models import model_named
from prism_jax.fits.report import Verdict
from prism_jax.job.reference import job_fields
from prism_jax.search.search_plans import search
from prism_jax.shell.app import main
from prism_jax.study.scale_job import scale_job
from prism_jax.study.sweep_jobs import sweep_jobs
from prism_jax.workload.captured.program import CapturedOp
from tests.inference.fitting.test_schema import TABLES
from tests.support.captured.programs import program
from tests.support.files.archives import changed

PLAN = "plan: {micro_batch: 1, global_batch: 32, seq_len: 2048, tp: 2, pp: 2, dp: 4}\nvariability: none\n"
CLUSTER = "cluster: {preset: dgx-h100, n_devices: 16}\n"
CONFIG = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 4,
    "num_key_value_heads": 16, "vocab_size": 32000, "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA = "model: llama-2-7b\n" + CLUSTER + PLAN
CAPTURED = "name: toy\nmodel: {capture: toy.capture.gz}\ncluster: dgx-h100\nplan: {}\nvariability: none\n"
KERNELS = CAPTURED.replace("toy.capture.gz", "toy.capture.gz, kernels: profile.json")


def _config(n_layer: int) -> None:
    Path("config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": n_layer}))


def _capture(n_bytes: float) -> None:
    row = CapturedOp("aten::relu", "memory", "F", "fp32", (4, 16), 0.0, n_bytes, output_bytes=256.0)
    write_capture("toy.capture.gz", program((row, replace(row, phase="B"))))


def _profile(length_us: float) -> None:
    own = {"ph": "X", "pid": 1, "tid": 1}
    args = {"Input Dims": [[4, 16]], "Input type": ["float"], "Concrete Inputs": []}
    events = [
        {**own, "cat": "cpu_op", "name": "aten::relu", "ts": 0.0, "dur": 50.0, "args": args},
        {**own, "cat": "cuda_runtime", "name": "launch", "ts": 1.0, "dur": 1.0, "args": {"correlation": 7}},
        {**own, "cat": "kernel", "name": "k", "ts": 9.0, "dur": length_us, "args": {"correlation": 7}},
    ]
    Path("profile.json").write_text(json.dumps({"deviceProperties": [{"name": "A"}], "traceEvents": events}))


def _job(text: str, *more: Callable[[], None]) -> None:
    Path("job.yaml").write_text(text)
    for each in more:
        each()


def _space(text: str) -> None:
    Path("space.yaml").write_text(text)


def _fit(seed: int) -> None:
    model = model_named("steps")
    data = model.prepare(TABLES["steps"]())
    sampled = posterior(model, data, "map", jax.random.key(seed), settings=Settings(n_approximate_draw=50))
    good = Verdict(True, "good: all", 1.0, 100.0, "x", 0, float("nan"))
    Fit(model, data, sampled, "map", good, CleaningReport(3, 3), 1.0).save("fit.npz")


def _calibration() -> None:
    save(replace(shipped(), record={}), "site.npz")


def _other_calibration() -> None:
    def edit(_: Any, arrays: dict[str, Any]) -> None:
        name = "posterior/site_sd"
        arrays[name] = arrays[name] * 1.01

    changed(Path("site.npz"), edit)


@dataclass(frozen=True)
class Named:
    """A file that decides the answer, as it is and edited.

    Attributes:
        options: how the command comes to it, beside the job.
        only: the one command that takes it; empty: all.
    """

    write: Callable[[], None]
    edit: Callable[[], None]
    options: tuple[str, ...] = ()
    only: str = ""


KINDS = {
    "job": Named(lambda: _job(LLAMA), lambda: _job(LLAMA.replace("2048", "4096"))),
    "model.hf_config": Named(
        lambda: _job(LLAMA.replace("llama-2-7b", "{hf_config: config.json}"), lambda: _config(4)), lambda: _config(8)
    ),
    "model.capture": Named(lambda: _job(CAPTURED, lambda: _capture(512.0)), lambda: _capture(1024.0)),
    "model.kernels": Named(
        lambda: _job(KERNELS, lambda: _capture(512.0), lambda: _profile(3.0)), lambda: _profile(5.0)
    ),
    "kernels": Named(
        lambda: _job(CAPTURED, lambda: _capture(512.0), lambda: _profile(3.0)),
        lambda: _profile(5.0),
        ("--kernels", "profile.json"),
        "search",
    ),
    "fits": Named(lambda: _job(LLAMA, lambda: _fit(0)), lambda: _fit(1), ("--fit", "fit.npz")),
    "fits, a calibration": Named(lambda: _job(LLAMA, _calibration), _other_calibration, ("--fit", "site.npz")),
    "space": Named(
        lambda: _job(LLAMA, lambda: _space("tp: [1, 2]")),
        lambda: _space("tp: [1, 2, 4]"),
        ("--space", "space.yaml"),
        "search",
    ),
}
COMMANDS = {
    "search": ("search",),
    "sweep": ("sweep", "--set", "plan.recompute=none,full"),
    "scale": ("scale", "--gpus", "16,32"),
}
WRITTEN = {"resume", "csv", "output", "plot"}  # options that name a file to be written
OF_CONTINUOUS = {"slowdowns"}  # options of `--continuous`, whose searches keep no work
SAME = "the same search"


def _kept(path: Path, own: str, schema: Any, _told: Any) -> Any:
    """In place of the journal of a search: says whether it belongs to this one."""
    file = WorkFile(path, "search", own)
    if file.read(lambda _: schema, in_parts=True) is None:
        file.save({})
    raise PlanError(SAME)


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """In place of the one of all these tests: NumPyro relies on promotion."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prism_jax.search.exhaustive.Journal", _kept)
    return tmp_path


def answer(command: str, job: str, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    name, *rest = COMMANDS[command]
    samples = () if command == "search" else ("--samples", "64")
    code = main([name, job, *rest, *options, *samples, "--resume", f"{command}.npz"])
    told = capsys.readouterr()
    if command == "search":
        assert code == 2
        return "taken" if SAME in told.err else told.err
    return "taken" if code == 0 else told.err


CASES = [(command, kind) for kind, named in KINDS.items() for command in COMMANDS if named.only in ("", command)]


@pytest.mark.parametrize(("command", "kind"), CASES)
def test_a_file_that_is_named_was_edited(
    command: str, kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = KINDS[kind]
    named.write()
    assert answer(command, "job.yaml", named.options, capsys) == "taken"
    assert answer(command, str(here / "job.yaml"), named.options, capsys) == "taken", "another spelling"
    named.edit()
    told = answer(command, "job.yaml", named.options, capsys)
    assert f"{command}.npz: belongs to another {'search' if command == 'search' else 'study'}" in told
    assert told.count("or remove it to start over") == told.count(".npz") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_the_code_was_changed(
    command: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _job(LLAMA)
    assert answer(command, "job.yaml", (), capsys) == "taken"
    monkeypatch.setattr(kept_work, "own_code", lambda: "other code")
    assert "belongs to another" in answer(command, "job.yaml", (), capsys)


def test_all_files_that_a_job_or_a_command_can_name_are_tried() -> None:
    """A new field or option that names a file belongs to the cases above."""
    fields = {".".join(field.path) for field in job_fields() if "path" in field.takes}
    assert fields <= KINDS.keys()
    options = {
        part.name
        for use_case in (search, sweep_jobs, scale_job)
        for part in case_of(use_case).options()
        if part.option.metavar in ("FILE", "NC")
    }
    assert options - WRITTEN - OF_CONTINUOUS <= KINDS.keys()
    assert options >= {"fits", "space"}


def test_the_code_is_every_file_of_both_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the module of a class that is none of ours."""
    for file in ("prism_jax/core/kept_work.py", "prism_jax/system/presets/devices.toml", "inference/fit.py"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text("1")
    monkeypatch.setattr(kept_work, "__file__", str(tmp_path / "prism_jax/core/kept_work.py"))

    def now() -> str:
        kept_work.own_code.cache_clear()
        return identity("a job")

    seen = [now()]
    (tmp_path / "prism_jax/__pycache__").mkdir()
    (tmp_path / "prism_jax/__pycache__/job.pyc").write_text("compiled")
    assert now() == seen[0]
    for file, text in (
        ("prism_jax/system/presets/devices.toml", "2"),
        ("inference/fit.py", "3"),
        ("inference/other.py", ""),
    ):
        (tmp_path / file).write_text(text)
        seen.append(now())
    (tmp_path / "inference/other.py").rename(tmp_path / "inference/another.py")
    seen.append(now())
    assert len(set(seen)) == len(seen)
    monkeypatch.undo()
    kept_work.own_code.cache_clear()


def test_the_code_of_a_class_from_elsewhere_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text("class Mine: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import my_model  # pyright: ignore[reportMissingImports]

    before = identity(my_model.Mine)
    (tmp_path / "my_model.py").write_text("class Mine: law = 2\n")
    assert identity(my_model.Mine) != before
