"""What is written for a framework comes back the same from the import; what it cannot say is named; files are safe."""

import json
from pathlib import Path
from typing import Any

import pytest

import prism_jax as pj
from prism_jax.__main__ import main
from prism_jax.core.errors import DataError, SpecError
from prism_jax.cost.partition import layers_of_chunks
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.launch.export_job import EXPORTERS, exported, write_files
from prism_jax.launch.import_job import import_job
from prism_jax.launch.pipeline_layout import layers_of_chunks as layers_of_layout, layout_text
from prism_jax.workload.base.workload import Workload, n_body
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.prism_jax.launch.random_jobs import Draws, jobs, megatron_model, megatron_plan, parts

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
OF_MEGATRON = [*DEGREES, "virtual_stages", "schedule_name", "sequence_parallel", "zero_stage", "recompute", "recompute_modules",
               "recompute_method", "dtype", "fp8_recipe", "bf16_layers", "fused_grad_accumulation", "offload_optimizer",
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


def of_megatron(job: Job, read: Job) -> list[str]:
    plan, other = job.plan, read.plan
    found = of_model(job.model, read.model) + unlike(plan, other, OF_MEGATRON)
    chunks = layers_of_chunks(n_body(job.model), plan) != layers_of_chunks(n_body(read.model), other)
    found += ["layer_split"] if chunks else []
    alike = plan.optimizer == other.optimizer or {plan.optimizer, other.optimizer} == {"adam", "adamw"}
    found += [] if alike else [f"optimizer: {plan.optimizer} became {other.optimizer}"]
    if plan.dp * plan.cp > 1 and plan.overlap.dp != other.overlap.dp:
        found.append("overlap.dp")
    if plan.sequence_parallel and plan.overlap.tp != other.overlap.tp:
        found.append("overlap.tp")
    if plan.pp > 1 and plan.overlap.pp != other.overlap.pp:
        found.append("overlap.pp")
    if [plan.stride(axis) for axis in plan.axis_order if getattr(plan, axis) > 1] != [
        other.stride(axis) for axis in plan.axis_order if getattr(plan, axis) > 1
    ]:
        found.append("axis_order")
    stated = {
        name: getattr(plan.software, name) for name in ("attention", "cuda_graphs") if name not in job.open_software
    }
    found += [f"software.{name}" for name, value in stated.items() if getattr(other.software, name) != value]
    return found


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_megatron_reads_back_what_was_written(seed: int, tmp_path: Path) -> None:
    for job in jobs(megatron_model, megatron_plan, 50, seed, "megatron-core", ["dgx-h100", "b200"]):
        assert of_megatron(job, back(job, "megatron", tmp_path)) == [], (job.plan, job.model)


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
