"""Jobs: what they demand of their parts, and that they are values."""

import pickle
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import jax
import numpy as np
import pytest

import prism_jax
from prism_jax.calibration.calibration import shipped
from prism_jax.calibration.key import CalibrationKey
from prism_jax.core.content import content_hash
from prism_jax.core.errors import PlanError, SpecError
from prism_jax.cost.memory import memory
from prism_jax.explain.explain import explain
from prism_jax.fits.load_fits import calibrated_job
from prism_jax.framework.base import MEGATRON, Framework, PlanDefaults
from prism_jax.framework.frameworks import FRAMEWORKS, FSDP, JAX, NANOTRON
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.placement.splits import layers_fit
from prism_jax.plan.plan import ParallelPlan
from prism_jax.search.ask_tell import AskTell
from prism_jax.search.evaluate import Evaluator
from prism_jax.search.plan_costs import FEASIBLE
from prism_jax.search.space import default_space
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower
from prism_jax.simulate.step_time import step_time
from prism_jax.system.catalog import cluster
from prism_jax.tables.streams import example_files
from prism_jax.validation.job_table import read_job_table
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

YAML = """\
name: job
model: llama-2-7b
cluster: dgx-h100
plan: {micro_batch: 1, global_batch: 64, seq_len: 4096, tp: 2, pp: 4, dp: 8, zero_stage: 1}
variability: h100-default
"""
PLAN = ParallelPlan(1, 64, 4096, tp=2, pp=4, dp=8, zero_stage=1)
KEY = jax.random.key(0)


def made(framework: str | Framework = "", plan: ParallelPlan = PLAN) -> Job:
    """The parts of `YAML` in Python."""
    return Job(model("llama-2-7b"), cluster("dgx-h100", 64), plan, preset("h100-default"), "job", framework)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """`YAML` as a file."""
    file = tmp_path / "job.yaml"
    file.write_text(YAML)
    return file


@pytest.mark.parametrize("framework", ["", *FRAMEWORKS.names])
def test_a_job_file_and_the_same_parts_in_python_are_one_job(written: Path, framework: str) -> None:
    loaded = load_job(written, [f"framework={framework}"] if framework else [])
    for item in fields(Job):
        assert getattr(loaded, item.name) == getattr(made(framework), item.name), item.name
    assert loaded.plan.fused_grad_accumulation is not (framework == "nanotron")


@pytest.mark.parametrize("framework", FRAMEWORKS.names)
def test_a_framework_that_arrives_later_fills_in_the_same(written: Path, framework: str) -> None:
    plan = made(framework).plan
    assert replace(made(), framework=framework).plan == plan
    assert replace(replace(made("nanotron"), calibration=shipped()), framework=framework).plan == plan
    header = "job,framework,measured_step_time_s\n"
    (written.parent / "runs.csv").write_text(f"{header}job.yaml,{framework},1.0\n")
    (run,) = read_job_table(written.parent / "runs.csv")
    assert run.job.plan == plan


@pytest.mark.parametrize("said", [True, False])
def test_a_written_value_wins(written: Path, said: bool) -> None:
    explicit = replace(PLAN, fused_grad_accumulation=said)
    for framework in ("", "nanotron", "megatron-core"):
        assert made(framework, explicit).plan.fused_grad_accumulation is said
        assert replace(made("", explicit), framework=framework).plan.fused_grad_accumulation is said
        changes = [f"plan.fused_grad_accumulation={str(said).lower()}"]
        loaded = load_job(written, [*changes, *([f"framework={framework}"] if framework else [])])
        assert loaded.plan.fused_grad_accumulation is said


def test_null_in_a_job_file_leaves_the_field_open(written: Path) -> None:
    changes = ["plan.fused_grad_accumulation=null", "framework=nanotron"]
    assert load_job(written, changes).plan.fused_grad_accumulation is False


def test_a_pass_of_its_own_takes_longer() -> None:
    """The step of a nanotron job is that of its written plan, not of fused accumulation."""
    own, fused = (made("nanotron", replace(PLAN, fused_grad_accumulation=said)) for said in (None, True))
    assert deterministic(lower(own)) > deterministic(lower(fused))
    assert deterministic(lower(own)) == deterministic(
        lower(made("nanotron", replace(PLAN, fused_grad_accumulation=False)))
    )


def test_a_fit_that_carries_a_framework_brings_its_plan(tmp_path: Path, written: Path) -> None:
    from inference.cost_model.store import save

    record = {**(shipped().record or {}), "framework": "nanotron", "generation": "hopper"}
    file = str(tmp_path / "site.npz")
    save(replace(shipped(), record=record), file)
    job, rest = calibrated_job(load_job(written), [file])
    assert rest == []
    assert job.framework == "nanotron"
    assert job.plan == made("nanotron").plan


BROKEN = {
    "too many devices": (replace(PLAN, dp=16), r"tp\*cp\*dp\*pp = 2\*1\*16\*4 = 128, but the cluster has 64 devices"),
    "heads": (replace(PLAN, tp=64, pp=1, dp=1), r"tp = 64 does not divide the model's 32 attention heads"),
    "batch": (replace(PLAN, global_batch=60), r"global_batch = 60 is not a multiple of dp\*micro_batch"),
    "schedule": (replace(PLAN, schedule="zb_v"), r"zb_v runs 2 model chunk"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_impossible_plan_is_never_simulated(name: str) -> None:
    plan, words = BROKEN[name]
    job = made(plan=plan)
    for simulate in (
        lambda: predict(job, key=KEY, n_samples=64),
        lambda: predict(job, key=KEY, n_samples=64, method="brute_force"),
        lambda: step_time(job, np.ones((64, 1))),
        lambda: lower(job),
        lambda: lower(job, pad=True),
        lambda: explain(job, predict(made(), key=KEY, n_samples=64), key=KEY),
        lambda: job.memory,
        job.check,
    ):
        with pytest.raises(PlanError, match=words):
            simulate()


def test_a_plan_that_is_told_is_checked_too() -> None:
    asked = AskTell(made())
    with pytest.raises(PlanError, match="global_batch = 60 is not a multiple"):
        asked.tell(replace(PLAN, global_batch=60))


def test_memory_follows_the_framework() -> None:
    for name in ("", *FRAMEWORKS.names):
        job = made(name)
        own = {"nanotron": NANOTRON.memory, "fsdp": FSDP.memory, "deepspeed": FSDP.memory, "jax": JAX.memory}
        rules = own.get(name, MEGATRON)
        assert job.software.memory == rules
        assert job.memory == memory(job.model, job.cluster, job.plan, rules)
    assert made("nanotron").memory.total_bytes > 1.05 * made().memory.total_bytes


def test_searches_hold_what_the_framework_holds() -> None:
    """Every plan of a search, and every plan that is asked for, needs what the job of that plan needs."""
    for framework in ("", "nanotron"):
        job = made(framework)
        evaluator = Evaluator(
            job, replace(default_space(job), tp=(1, 2), pp=(2, 4), cp=(1,), schedule=("1f1b",), sharding=("none",))
        )
        screen = evaluator.bounds()
        assert screen.n_feasible > 4
        for number in range(screen.n_plans):
            if screen.reason[number] == FEASIBLE:
                needed = replace(job, plan=evaluator.plan(number)).memory.total_bytes
                assert screen.memory_bytes[number] == pytest.approx(needed, rel=1e-12)


def test_a_plan_that_only_megatron_could_hold_is_not_offered() -> None:
    """One whose memory lies between the two rules: it fits in the one search and not in the other."""
    tight = replace(cluster("dgx-h100", 64).device, hbm_bytes=1.02 * made().memory.total_bytes)
    lean, eager = (replace(made(name), cluster=replace(made().cluster, device=tight)) for name in ("", "nanotron"))
    knobs = {"tp": 2, "pp": 4, "micro_batch": 1}
    assert AskTell(lean).plan(**knobs).dp == 8
    with pytest.raises(PlanError, match="the plan needs"):
        AskTell(eager).plan(**knobs)


def test_layer_splits_are_weighed_by_the_frameworks_memory() -> None:
    layers = (7, 8, 8, 9)
    even, uneven = (replace(PLAN, layer_split=split) for split in ((), layers))
    needed = {name: made(name, uneven).memory.total_bytes for name in ("", "nanotron")}
    between = sum(needed.values()) / 2
    device = replace(cluster("dgx-h100", 64).device, hbm_bytes=between)
    for name in needed:
        job = replace(made(name, even), cluster=replace(made().cluster, device=device))
        usual = job.memory.total_bytes
        assert layers_fit(job, layers, PLAN.n_micro_batch) is (needed[name] <= max(between, usual))


def test_a_framework_of_the_callers_own() -> None:
    mine = Framework("mine", "ours", "eager", PlanDefaults(fused_grad_accumulation=False), NANOTRON.memory)
    job = made(mine)
    assert job.framework is mine
    assert job.software is mine
    assert job.plan.fused_grad_accumulation is False
    assert job.memory == memory(job.model, job.cluster, job.plan, NANOTRON.memory)
    # the calibration of its style: nothing is known of the framework itself
    setting = CalibrationKey.of(job.cluster.device, job.framework, job.plan.software)
    assert setting.members()["style"] == "eager"
    assert job.efficiency == job.at_mean_of_open(shipped().efficiency(setting))
    again = pickle.loads(pickle.dumps(job))
    assert (again.framework, again.plan, again.filled) == (mine, job.plan, job.filled)


def test_a_registered_framework_is_its_name() -> None:
    assert made(NANOTRON).framework == "nanotron"
    changed = replace(NANOTRON, memory=MEGATRON)
    assert made(changed).framework is changed


def test_an_unknown_framework_is_refused_with_what_is_near() -> None:
    with pytest.raises(SpecError, match=r"framework 'nanotrom' is unknown; known are .*did you mean nanotron\?"):
        made("nanotrom")


# --- Jobs by value: equal, hashed and pickled by content; a copy in another process gives the same bits --------------


JOB_BY_VALUE_PLAN = ParallelPlan(tp=2, pp=2, dp=4, micro_batch=1, global_batch=32, seq_len=1024, zero_stage=1)
CHANGES = (
    {},
    {"schedule": "gpipe"},
    {"schedule": "zb_h1"},
    {"schedule": "interleaved", "virtual_stages": 2},
    {"schedule": "dualpipe"},
    {"schedule": "zb_v", "virtual_stages": 2},
    {"recompute": "full"},
    {"zero_stage": 0, "sharding": "fsdp"},
    {"dtype": "fp8", "sequence_parallel": True},
    {"layer_split": (15, 17)},
    {"global_batch": 64},
    {"attention": "unfused"},
    {"zero_stage": 3},
)


def jobs() -> list[Job]:
    """All shipped examples, and a job of every schedule and sharding."""
    examples = [prism_jax.load_job(name) for name in example_files()]
    made = [
        Job(model("llama-2-7b"), cluster("dgx-h100", 16), replace(JOB_BY_VALUE_PLAN, **change), preset("h100-default"))  # pyright: ignore[reportArgumentType]
        for change in CHANGES
    ]
    return [*examples, *made]


@pytest.mark.parametrize("job", jobs(), ids=lambda job: job.content[:8])
def test_a_pickled_job_is_the_same_job(job: Job) -> None:
    assert job.efficiency  # what is derived does not travel
    copy = pickle.loads(pickle.dumps(job))
    assert copy == job
    assert hash(copy) == hash(job)
    assert "efficiency" not in vars(copy)
    assert copy.efficiency == job.efficiency


def test_jobs_differ_where_anything_differs() -> None:
    every = [*jobs(), replace(jobs()[0], framework="nanotron"), replace(jobs()[0], calibration=shipped())]
    assert len({job.content for job in every}) == len(every)
    assert jobs()[-1] != jobs()[-1].plan


def test_equal_jobs_are_lowered_once() -> None:
    one, other = (prism_jax.load_job("llama2_7b_fsdp_64") for _ in range(2))
    assert one is not other
    assert lower(one) is lower(other)


def test_what_differs_in_variability_alone_is_laid_out_once() -> None:
    job = prism_jax.load_job("llama2_7b_fsdp_64", overrides=("plan.seq_len=4080",))  # lowered by no other test
    wider = replace(job, variability=job.variability.scaled(2.0))
    longer = replace(job, plan=replace(job.plan, global_batch=2 * job.plan.global_batch))
    for pad in (False, True):
        assert lower(wider, pad).graph is lower(job, pad).graph
        assert lower(wider, pad).gpu[0].slope != lower(job, pad).gpu[0].slope
        assert lower(longer, pad).graph is not lower(job, pad).graph
    assert lower(job, True).graph is not lower(job).graph


def test_another_process_gives_the_same_content_and_bits(tmp_path: Path) -> None:
    every = jobs()[-len(CHANGES) :] + jobs()[:7]
    assert len(every) == 20
    (tmp_path / "jobs.pickle").write_bytes(pickle.dumps(every))
    code = (
        "import pickle, sys, jax, numpy as np, prism_jax\n"
        "jobs = pickle.load(open(sys.argv[1], 'rb'))\n"
        "found = [prism_jax.predict(j, key=jax.random.key(3), n_samples=64, pad=True).samples_s for j in jobs[:13]]\n"
        "np.savez(sys.argv[2], *found)\n"
        "print('\\n'.join(j.content for j in jobs))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "jobs.pickle"), str(tmp_path / "found.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [job.content for job in every]
    with np.load(tmp_path / "found.npz") as found:
        for name, job in zip(found.files, every, strict=False):
            here = prism_jax.predict(job, key=jax.random.key(3), n_samples=64, pad=True).samples_s
            assert here.tobytes() == found[name].tobytes()


def test_what_has_no_content_is_refused() -> None:
    with pytest.raises(TypeError, match="no content"):
        content_hash(lambda: 0)
    with pytest.raises(TypeError, match="no content"):
        content_hash({"a": object()})
    assert content_hash((1, 2)) != content_hash((1,), 2)
    assert content_hash(np.zeros(3)) != content_hash(np.zeros((3, 1)))
