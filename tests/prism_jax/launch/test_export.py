"""What is written for a framework comes back the same from the import; what it cannot say is named; files are safe."""

import json
from pathlib import Path
from typing import Any

import pytest

import prism_jax as pj
from prism_jax.__main__ import main
from prism_jax.core.errors import DataError, SpecError
from prism_jax.core.write_file import write_files
from prism_jax.cost.partition import layers_of_chunks
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.launch.export_job import EXPORTERS, exported
from prism_jax.launch.import_job import import_job
from prism_jax.launch.pipeline_layout import layers_of_chunks as layers_of_layout, layout_text
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.base.workload import Workload, n_body
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.prism_jax.launch.random_jobs import (
    Draws,
    deepspeed_plan,
    jobs,
    known_model,
    maxtext_model,
    maxtext_plan,
    megatron_model,
    megatron_plan,
    parts,
    titan_model,
    titan_plan,
)

SIZES = ["n_layers", "hidden", "n_heads", "kv_heads", "qk_head_dim", "ffn_hidden", "vocab", "gated", "norm", "position",
         "tied_embeddings", "bias", "has_qkv_bias", "qk_norm", "mla", "dropout"]  # fmt: skip
EXPERTS = [
    "n_experts",
    "top_k",
    "ffn_hidden",
    "shared_width",
    "router_bias",
    "n_dense_first",
    "every",
    "capacity_factor",
]
DEGREES = ["tp", "pp", "cp", "dp", "ep", "expert_tp", "n_devices", "micro_batch", "global_batch", "seq_len"]
OF_MEGATRON = ["virtual_stages", "schedule_name", "sequence_parallel", "zero_stage", "recompute_modules",
               "recompute_method", "fp8_recipe", "bf16_layers", "fused_grad_accumulation", "offload_optimizer",
               "state_dtypes", "bucket_elements"]  # fmt: skip


def back(job: Job, name: str, folder: Path) -> Job:
    """The job that the import makes of what is exported."""
    files = write_files(folder, exported(job, EXPORTERS.named(name)).files)
    import_job(files[0], device=job.cluster.device.name, output=folder / "back.yaml")
    return load_job(folder / "back.yaml")


def unlike(one: Any, other: Any, names: list[str]) -> list[str]:
    return [
        f"{name}: {getattr(one, name)} became {getattr(other, name)}"
        for name in names
        if getattr(one, name) != getattr(other, name)
    ]


def of_model(model: Workload, other: Workload) -> list[str]:
    assert isinstance(model, TransformerSpec)
    assert isinstance(other, TransformerSpec)
    return unlike(model, other, SIZES) + ([] if model.moe is None else unlike(model.moe, other.moe, EXPERTS))


def common(job: Job, read: Job) -> list[str]:
    """What every framework has, and what is stated of the software."""
    plan, other = job.plan, read.plan
    found = of_model(job.model, read.model) + unlike(plan, other, ["dtype", "recompute"])
    experts = job.model.moe is not None if isinstance(job.model, TransformerSpec) else False
    found += unlike(plan, other, [name for name in DEGREES if experts or name not in ("ep", "expert_tp")])
    alike = plan.optimizer == other.optimizer or {plan.optimizer, other.optimizer} == {"adam", "adamw"}
    found += [] if alike else [f"optimizer: {plan.optimizer} became {other.optimizer}"]
    stated = {name: getattr(plan.software, name) for name in ("attention", "cuda_graphs", "compile")}
    stated = {name: value for name, value in stated.items() if name not in job.open_software}
    return found + [f"software.{name}" for name, value in stated.items() if getattr(other.software, name) != value]


def sharded(plan: ParallelPlan) -> tuple[object, ...]:
    """Ranks that share parameters, as they count: none, or groups."""
    return (plan.shard_group, plan.shards_parameters and plan.shard_group > 1)


def of_megatron(job: Job, read: Job) -> list[str]:
    plan, other = job.plan, read.plan
    found = common(job, read) + unlike(plan, other, OF_MEGATRON)
    if layers_of_chunks(n_body(job.model), plan) != layers_of_chunks(n_body(read.model), other):
        found.append("layer_split")
    counts = {"dp": plan.dp * plan.cp > 1, "tp": plan.sequence_parallel, "pp": plan.pp > 1}
    found += unlike(plan.overlap, other.overlap, [axis for axis, matters in counts.items() if matters])
    axes = [axis for axis in plan.axis_order if getattr(plan, axis) > 1]
    return found + ([] if [plan.stride(one) for one in axes] == [other.stride(one) for one in axes] else ["axis_order"])


def of_deepspeed(job: Job, read: Job) -> list[str]:
    names = ["zero_stage", "offload_optimizer", "offload_parameters"]
    overlap = unlike(job.plan.overlap, read.plan.overlap, ["dp"] if job.plan.dp > 1 else [])
    return common(job, read) + unlike(job.plan, read.plan, names) + overlap


def of_mesh(job: Job, read: Job) -> list[str]:
    found = [] if sharded(job.plan) == sharded(read.plan) else [f"{sharded(job.plan)} became {sharded(read.plan)}"]
    return common(job, read) + found


def of_titan(job: Job, read: Job) -> list[str]:
    plan, other = job.plan, read.plan
    names = ["sequence_parallel", "offload_parameters"] + (["schedule_name", "virtual_stages"] if plan.pp > 1 else [])
    return (
        of_mesh(job, read)
        + unlike(plan, other, names)
        + unlike(plan.overlap, other.overlap, ["tp"] if plan.tp > 1 else [])
    )


DRAWN = {
    "megatron": (megatron_model, megatron_plan, "megatron-core", of_megatron),
    "deepspeed": (known_model, deepspeed_plan, "hf-trainer", of_deepspeed),
    "maxtext": (maxtext_model, maxtext_plan, "maxtext", of_mesh),
    "torchtitan": (titan_model, titan_plan, "torchtitan", of_titan),
}


def mistakes(name: str, n: int, seed: int, folder: Path) -> list[str]:
    draw_model, draw_plan, framework, compare = DRAWN[name]
    found: list[str] = []
    for job in jobs(draw_model, draw_plan, n, seed, framework, ["dgx-h100", "b200"]):
        found += compare(job, back(job, name, folder))
    return found


DRAWS = [(0, 20), *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in range(10))]  # seed and number of plans


@pytest.mark.parametrize(("seed", "n"), DRAWS)
@pytest.mark.parametrize("name", EXPORTERS.names)
def test_the_import_reads_back_what_was_written(name: str, seed: int, n: int, tmp_path: Path) -> None:
    assert mistakes(name, n, seed, tmp_path) == []


@pytest.mark.parametrize("name", EXPORTERS.names)
def test_what_can_be_said_is_not_called_inexpressible(name: str) -> None:
    draw_model, draw_plan, framework, _ = DRAWN[name]
    for job in jobs(draw_model, draw_plan, 10, 99, framework, ["dgx-h100"]):
        assert exported(job, EXPORTERS.named(name)).unexpressed == (), job.plan


@pytest.mark.parametrize("seed", range(3))
def test_layout_strings_mean_the_layers_that_they_were_written_for(seed: int) -> None:
    d = Draws(seed)
    for _ in range(100):
        sizes = list(parts(d, d.one(3, 32, 126), d.one(2, 4, 16, 24)))
        assert layers_of_layout(layout_text(sizes)) == sizes


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ("plan.sharding=fsdp", "plan.sharding"),
        ("plan.recompute=selective_op", "plan.recompute"),
        ("model.position=alibi", "model.position"),
        ("plan.offload_activations=0.5", "plan.offload_activations"),
        ("data.lengths={512: 3, 4096: 1}", "data.lengths"),
    ],
)
def test_what_no_argument_says_is_named_in_report_and_file(change: str, path: str, tmp_path: Path) -> None:
    section = {"preset": "llama-2-7b"} if change.startswith("model") else "llama-2-7b"
    file = tmp_path / "job.yaml"
    file.write_text(f"model: {section}\ncluster: {{preset: dgx-h100, n_devices: 8}}\nplan: {{tp: 2, dp: 4, micro_batch: 1, "
                    "global_batch: 64, seq_len: 4096}\n")  # fmt: skip
    plain = pj.export_job(file, "megatron", save_dir=tmp_path / "plain")
    assert plain.unexpressed == ()
    found = pj.export_job(file, "megatron", save_dir=tmp_path / "changed", overrides=[change])
    assert path in [one.path for one in found.unexpressed]
    assert f"# Not expressible in Megatron-LM: {path} = " in Path(found.written[0]).read_text()


def test_names_from_the_job_cannot_leave_their_comment(tmp_path: Path) -> None:
    name = "a\n$(touch broken)\n`touch broken`\x1b[31m"
    found = pj.export_job("llama2_7b_fsdp_64", "megatron", save_dir=tmp_path, overrides=[f"name={name!r}"])
    lines = Path(found.written[0]).read_text().splitlines()
    assert [line for line in lines if "touch" in line] == [line for line in lines[1:2] if "touch" in line]
    assert lines[1].startswith("# Megatron-LM arguments of the job a")


def test_files_are_replaced_on_request_alone(tmp_path: Path) -> None:
    pj.export_job("llama2_7b_fsdp_64", "megatron", save_dir=tmp_path)
    with pytest.raises(DataError, match=r"megatron\.sh: is there already.*--force"):
        pj.export_job("llama2_7b_fsdp_64", "megatron", save_dir=tmp_path)
    pj.export_job("llama2_7b_fsdp_64", "megatron", save_dir=tmp_path, overwrite=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file is a file. Name a folder"):
        pj.export_job("llama2_7b_fsdp_64", "megatron", save_dir=tmp_path / "file")


def test_unknown_frameworks_and_other_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="did you mean megatron"):
        pj.export_job("llama2_7b_fsdp_64", "megatrom", save_dir=tmp_path)
    with pytest.raises(DataError, match="no transformer of one stack"):
        pj.export_job("dlrm_dcnv2_64", "megatron", save_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


PLACED = "model: gpt2\ncluster: {preset: dgx-h100, n_devices: 16}\nframework: megatron-core\nplan: {tp: 4, pp: 2, dp: 2, " \
         "micro_batch: 1, global_batch: 32, seq_len: 1024}\n"  # fmt: skip


def test_place_writes_hosts_ranks_job_report_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(PLACED)
    rows = [f"{host},{gpu},{1.2 if (host, gpu) == ('b', 3) else 1.0}" for host in "abc" for gpu in range(8)]
    Path("gpus.csv").write_text("host,local_rank,slowdown\n" + "\n".join(rows) + "\n")
    assert main(["place", "job.yaml", "--slowdowns", "gpus.csv", "--spares", "1", "--save-dir", "placed", "-q"]) == 0
    assert {file.name for file in Path("placed").iterdir()} == {
        "job.yaml", "report.json", "hostfile", "rankfile", "megatron.sh"
    }  # fmt: skip
    hosts = Path("placed/hostfile").read_text().splitlines()
    assert len(hosts) == 3
    assert [line for line in hosts if "b" in line.partition(" slots")[0]] == ["# spare: b"]
    assert Path("placed/rankfile").read_text().count("rank ") == 16
    assert load_job("placed/job.yaml").plan == load_job("job.yaml").plan
    assert json.loads(Path("placed/report.json").read_text())["command"].startswith("prism-jax place")
