"""A framework of one's own in one file: nothing of the package is touched, and everything knows it.

It keeps a second fp32 copy of the gradients, sums them in a pass of its own, puts a layer less on the last stage and calls itself
"mytrainer" where it publishes runs.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from experiments.step_tables.frameworks import PATTERNS, SourcePattern
from experiments.step_tables.table import read_step_rows
from prism_jax.core.errors import ConfigError, SpecError
from prism_jax.framework.base import Framework, LayerShape, MemoryOptions, PlanDefaults
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.search.exhaustive import search
from prism_jax.search.space import default_space
from prism_jax.shell.app import main
from prism_jax.simulate.predict import predict
from prism_jax.validation.job_table import read_job_table


def head_counts_as_a_layer(model: LayerShape, pp: int) -> tuple[int, ...]:
    """Every stage as many layers as the first, the last one less."""
    each = (model.n_layers + 1) // pp
    return (*(each for _ in range(pp - 1)), model.n_layers - each * (pp - 1))


MINE = Framework(
    "mytrainer",
    "the trainer of our own",
    "eager",
    plan_defaults=PlanDefaults(fused_grad_accumulation=False),
    memory=MemoryOptions(model_grad_bytes=4.0),
    memory_source="its source code",
    layer_split=head_counts_as_a_layer,
)
JOB = """\
name: small
model: llama-2-7b
cluster: dgx-h100
plan: {micro_batch: 1, global_batch: 32, seq_len: 4096, tp: 2, pp: 2, dp: 4}
variability: h100-default
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """A job file that names no framework; the framework is known while it is used."""
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with FRAMEWORKS.with_item(MINE):
        yield str(file)


def told(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command prints as JSON."""
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def jobs(file: str) -> tuple[Job, Job]:
    """The job without a framework and with the new one."""
    return load_job(file), load_job(file, ["framework=mytrainer"])


def test_show_lists_it_last(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = told(capsys, "show", "frameworks")
    assert list(FRAMEWORKS.names)[-1] == "mytrainer"
    assert "mytrainer" in json.dumps(rows)
    one = told(capsys, "show", "frameworks", "mytrainer")
    assert (one["name"], one["kernels"], one["description"]) == ("mytrainer", "eager", "the trainer of our own")


def test_check_keeps_gradients_twice(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = told(capsys, "check", job)
    mine = told(capsys, "check", job, "--set", "framework=mytrainer")
    assert (plain["framework"], mine["framework"]) == ("", "mytrainer")
    before, after = plain["memory_bytes_per_gpu"], mine["memory_bytes_per_gpu"]
    assert after["gradients"] == 2.0 * before["gradients"]
    assert after["total"] == pytest.approx(before["total"] + before["gradients"], rel=1e-12)


def test_a_file_and_python_make_the_same_job(job: str) -> None:
    plain, mine = jobs(job)
    assert (plain.plan.fused_grad_accumulation, mine.plan.fused_grad_accumulation) == (True, False)
    by_name, by_value = (replace(plain, framework=given) for given in ("mytrainer", MINE))
    assert by_name.framework == by_value.framework == mine.framework == "mytrainer"
    assert by_name.plan == by_value.plan == mine.plan
    assert by_name.memory == by_value.memory == mine.memory


def test_predict_takes_longer_for_the_pass_of_its_own(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, mine = jobs(job)
    fused = replace(mine, plan=replace(mine.plan, fused_grad_accumulation=True))
    own_s, fused_s = (predict(one, key=jax.random.key(0), n_samples=64).quantile(0.5) for one in (mine, fused))
    assert own_s > fused_s
    summary = told(capsys, "predict", job, "--set", "framework=mytrainer", "--samples", "64", "-q")
    assert summary["job"]["framework"] == "mytrainer"
    assert summary["memory_bytes_per_gpu"]["total"] == pytest.approx(mine.memory.total_bytes)


def test_search_weighs_plans_by_its_memory(job: str) -> None:
    """Plans that are found need what their jobs need, and accumulate gradients as their jobs do."""
    plain, mine = jobs(job)
    for one in (plain, mine):
        space = replace(default_space(one), tp=(1, 2), pp=(1, 2), cp=(1,), micro_batch=(1,), schedule=("1f1b",))
        found = search(one, space, top=2)
        for candidate in found.candidates:
            needed = replace(one, plan=candidate.plan).memory.total_bytes
            assert candidate.memory_bytes == pytest.approx(needed, rel=1e-12)
            assert candidate.plan.fused_grad_accumulation is one.plan.fused_grad_accumulation


def test_published_runs_are_recognised(job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATTERNS, "mytrainer", (SourcePattern(source=r"\bmytrainer\b"),))
    columns = {
        "id": "one", "source": "ours/mytrainer (nanotron's successor)", "model": "llama 7B", "layers": "32", "hidden": "4096",
        "ffn": "11008", "heads": "32", "kv_heads": "32", "vocab": "32000", "experts": "", "seq_len": "4096",
        "gpu": "H100-SXM-80GB", "num_gpus": "16", "gpus_per_node": "8", "tp": "2", "pp": "4", "vpp": "", "dp": "2", "cp": "1",
        "ep": "1", "sharding": "", "micro_batch": "1", "global_batch": "32", "precision": "bf16", "recompute": "none",
        "network": "", "measured_step_time_s": "1.0", "notes": "",
    }  # fmt: skip
    file = tmp_path / "rows.csv"
    file.write_text(f"{','.join(columns)}\n{','.join(columns.values())}\n")
    (row,) = read_step_rows(file)
    assert row.framework == "mytrainer"
    assert row.job[2].layer_split == (8, 8, 8, 8)


def test_tables_of_jobs_may_name_it(job: str) -> None:
    file = Path(job).parent / "runs.csv"
    file.write_text("job,framework,measured_step_time_s\njob.yaml,mytrainer,1.0\n")
    (run,) = read_job_table(file)
    assert run.job.software.name == "mytrainer"
    assert run.job.plan.fused_grad_accumulation is False


def test_nobody_knows_it_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    with pytest.raises(ConfigError, match="framework"):
        load_job(file, ["framework=mytrainer"])
    with FRAMEWORKS.with_item(MINE), pytest.raises(SpecError, match="there already"):
        FRAMEWORKS.add(MINE)
