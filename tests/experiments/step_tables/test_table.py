"""Rows of steps tables: both schemas, their defaults, and which cannot be simulated, with the reason."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from experiments.step_tables.cluster import network_bytes_per_s
from experiments.step_tables.plan import is_before_flash_attention
from experiments.step_tables.table import count_support, read_step_rows
from inference.cost_model.calibrate import usable
from prism_jax.core.errors import DataError
from prism_jax.framework.frameworks import cost_balanced_split
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.transformer.encoder import EncoderSpec
from prism_jax.workload.transformer.encoder_decoder import EncoderDecoderSpec
from prism_jax.workload.transformer.spec import TransformerSpec

STEPS = Path(__file__).resolve().parents[3] / ".." / "shared" / "data" / "steps"

REFERENCE = {
    "id": "gpt", "src": "2205.05198 Table 5", "sys": "a100", "h": 6144, "ffn": 24576, "heads": 64, "kv": 64, "L": 48,
    "seq": 2048, "vocab": 51200, "gated": False, "gpus": 8, "tp": 8, "pp": 1, "dp": 1, "v": 1, "gbs": 4, "mbs": 4,
    "recompute": "selective", "sp": True, "zero": 0, "measured_s": 1.1,
}  # fmt: skip
CSV = {
    "id": "x-1", "source": "NVIDIA/NeMo", "model": "Llama3-8B", "layers": "32.0", "hidden": "4096.0", "ffn": "14336.0",
    "heads": "32.0", "kv_heads": "8.0", "vocab": "128256.0", "seq_len": "8192.0", "gpu": "H100-SXM-80GB", "num_gpus": "16.0",
    "gpus_per_node": "8.0", "tp": "2.0", "pp": "1.0", "vpp": "", "dp": "8.0", "cp": "", "ep": "", "sharding": "",
    "micro_batch": "1.0", "global_batch": "128.0", "precision": "fp8", "recompute": "unknown", "seq_parallel": "",
    "network": "", "measured_step_time_s": "2.5", "measured_tflops_per_gpu": "", "measured_tokens_per_s_per_gpu": "",
    "measured_mfu": "", "notes": "",
}  # fmt: skip


def transformer(row: MeasuredRow) -> TransformerSpec:
    """Its model, which is one."""
    assert isinstance(row.job[0], TransformerSpec)
    return row.job[0]


def write_csv(path: Path, *changes: dict[str, str]) -> Path:
    rows = [CSV | change for change in changes]
    lines = [",".join(CSV), *(",".join(f'"{value}"' for value in row.values()) for row in rows)]
    path.write_text("\n".join(lines))
    return path


def csv_row(tmp_path: Path, **changes: str) -> MeasuredRow:
    return read_step_rows(write_csv(tmp_path / "steps.csv", changes))[0]


def json_row(tmp_path: Path, **changes: Any) -> MeasuredRow:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([REFERENCE | changes]))
    return read_step_rows(file)[0]


@pytest.mark.parametrize(
    ("hidden", "tp", "heads"),
    [("4096", "8", 32), ("13824", "1", 108), ("13824", "4", 108), ("13824", "8", 96), ("100", "1", 1)],
)
def test_heads_that_nobody_stated_are_possible_under_tensor_parallelism(tmp_path: Path, hidden, tp, heads):
    """13,824 columns make 108 heads of 128, which 8 GPUs cannot share."""
    sizes = {"hidden": hidden, "heads": "", "kv_heads": "", "ffn": "", "layers": "24"}
    row = csv_row(tmp_path, model="GPT of nobody", tp=tp, pp="1", dp="", sharding="none", **sizes)
    assert transformer(row).n_heads == heads


def test_a_reference_row_becomes_model_cluster_and_plan(tmp_path: Path):
    row = json_row(tmp_path, measured_range=[1.0, 1.2])
    model, (_, cluster, plan) = transformer(row), row.job
    assert (model.n_layers, model.hidden, model.gated, model.position) == (48, 6144, False, "learned")
    assert cluster.name == "dgx-a100"
    assert cluster.n_devices == plan.n_devices == 8
    assert plan.sequence_parallel
    assert plan.recompute == "selective"
    assert plan.attention == "unfused"
    assert (row.measured_s, row.measured_range) == (1.1, (1.0, 1.2))


def test_llama_3_rows_run_on_their_own_cluster_interleaved(tmp_path: Path):
    row = json_row(
        tmp_path,
        src="2407.21783 Table 4",
        sys="h100",
        gated=True,
        kv=8,
        gpus=256,
        tp=8,
        pp=4,
        dp=8,
        v=3,
        gbs=64,
        mbs=1,
        zero=2,
    )
    model, (_, cluster, plan) = transformer(row), row.job
    assert cluster.name == "llama3-h100"
    assert model.norm == "rms"
    assert (plan.schedule, plan.virtual_stages, plan.zero_stage, plan.attention) == ("interleaved", 3, 2, "flash")


def test_blank_fields_take_their_documented_defaults(tmp_path: Path):
    model, cluster, plan = csv_row(tmp_path).job
    assert model.name == "llama-3-8b"
    assert cluster.name == "dgx-h100"
    assert (plan.cp, plan.ep, plan.virtual_stages, plan.schedule, plan.recompute) == (1, 1, 1, "1f1b", "none")
    assert (plan.dtype, plan.attention, plan.zero_stage, plan.sequence_parallel) == ("fp8", "flash", 1, True)


@pytest.mark.parametrize(
    ("sharding", "expected"),
    [("fsdp", (0, "fsdp", 0)), ("hsdp", (0, "hsdp", 8)), ("zero2", (2, "none", 0)), ("none", (0, "none", 0))],
)
def test_sharding_columns_become_plan_fields(tmp_path: Path, sharding: str, expected: tuple[int, str, int]):
    _, _, plan = csv_row(tmp_path, sharding=sharding).job
    assert (plan.zero_stage, plan.sharding, plan.dp_shard) == expected


def test_step_time_follows_from_the_token_rate(tmp_path: Path):
    row = csv_row(tmp_path, measured_step_time_s="", measured_tokens_per_s_per_gpu="32768")
    assert row.measured_s == pytest.approx(128 * 8192 / (32768 * 16))


def test_step_time_follows_from_the_flop_rate(tmp_path: Path):
    row = csv_row(tmp_path, measured_step_time_s="", measured_tflops_per_gpu="500")
    model, (_, _, plan) = transformer(row), row.job
    flops = 128 * 8192 * model.train_flops_per_token(plan.seq_len, causal=False)
    assert row.measured_s == pytest.approx(flops / (500e12 * 16))


def test_a_flop_rate_counts_half_of_the_scores_where_its_source_says_so(tmp_path: Path):
    rate = {"measured_step_time_s": "", "measured_tflops_per_gpu": "500"}
    row = csv_row(tmp_path, **rate, notes="model FLOPs with causal attention (half)")
    flops = 128 * 8192 * transformer(row).train_flops_per_token(row.job[2].seq_len, causal=True)
    assert row.measured_s == pytest.approx(flops / (500e12 * 16))
    assert (row.measured_s or math.inf) < (csv_row(tmp_path, **rate).measured_s or 0.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "Cerebras CS-3"}, "no preset of device Cerebras CS-3"),
        ({"gpu": "TPU-v5p"}, "device has no fp8"),
        ({"model": "wan2.1-14b"}, "not a decoder-only transformer"),
        ({"model": "Nemotron_3_Nano"}, "hybrid architecture (state-space or linear attention layers)"),
        ({"notes": "use for relative scaling only"}, "published for relative comparison only"),
        ({"gpu": ""}, "device not stated"),
        ({"model": "DeBERTa L24 h1024"}, "not a decoder-only transformer"),
        ({"dp": "4"}, "degrees do not multiply to the number of devices"),
        ({"precision": "nvfp4"}, "device has no nvfp4"),
        ({"precision": "fp6"}, "precision fp6 is not modelled"),
        ({"gpu": "GTX 480"}, "no preset of device GTX 480"),
        ({"model": "unknown", "layers": "", "hidden": ""}, "architecture not published"),
        ({"measured_step_time_s": ""}, "no time, token rate or FLOP rate"),
        ({"global_batch": "8e8"}, "too many micro-batches to simulate"),
        ({"global_batch": "8e15"}, "beyond what is simulated: global_batch 8e+15"),
        ({"layers": "1e30"}, "beyond what is simulated: n_layers 1e+30"),
        ({"pp": "1e9", "dp": "1e308"}, "beyond what is simulated: pp 1e+09"),
    ],
)
def test_rows_that_cannot_be_simulated_say_why(tmp_path: Path, changes: dict[str, str], reason: str):
    row = csv_row(tmp_path, **changes)
    assert row.unsupported == reason
    with pytest.raises(DataError, match="cannot be simulated"):
        _ = row.job


def test_support_is_counted_by_reason(tmp_path: Path):
    rows = read_step_rows(
        write_csv(
            tmp_path / "steps.csv",
            {},
            {"gpu": "", "source": "elsewhere"},
            {"gpu": "", "source": "elsewhere", "id": "x-2"},
            {"model": "UL2-3B"},
        )
    )
    found = count_support(rows)
    assert (found.n, found.n_supported, found.n_transformer) == (4, 1, 3)
    assert (found.share, found.share_of_transformers) == (1 / 4, 1 / 3)
    assert found.by_reason == {"device not stated": 2, "not a decoder-only transformer": 1}


def test_rows_with_a_defect_are_kept_and_marked(tmp_path: Path):
    row = csv_row(tmp_path, notes="CHECK: C7 tok/s*FLOPs/(peak*MFU)=0.85")
    assert row.defect == "failed check: C7 tok/s*FLOPs/(peak*MFU)=0.85"
    assert not row.unsupported
    notes = "NCCL BW measured in the same job GB/s: all-reduce 26, all-gather 20"
    assert csv_row(tmp_path, notes=notes).defect.startswith(
        "fabric degraded: the job's own all-reduce reached 26 of 400"
    )
    assert csv_row(tmp_path).defect == ""


def test_tensor_parallel_communication_overlaps_in_recipes_of_nvidia(tmp_path: Path):
    assert csv_row(tmp_path).job[2].overlap.tp
    assert not csv_row(tmp_path, tp="1", dp="16").job[2].overlap.tp
    assert not csv_row(tmp_path, seq_parallel="False").job[2].overlap.tp
    assert not csv_row(tmp_path, source="huggingface/nanotron", seq_parallel="True").job[2].overlap.tp


@pytest.mark.parametrize("name", ["Nemotron-340B", "Nemotron3 22B", "Nemotron4-15B"])
def test_dense_models_of_a_family_with_hybrids_are_supported(tmp_path: Path, name: str):
    assert not csv_row(tmp_path, model=name).unsupported


def tpu_row(tmp_path: Path, **changes: str) -> MeasuredRow:
    blank = {
        "tp": "",
        "pp": "",
        "dp": "",
        "micro_batch": "",
        "recompute": "unknown",
        "precision": "bf16",
        "gpus_per_node": "",
    }
    return csv_row(tmp_path, source="AI-Hypercomputer/tpu-recipes", **(blank | changes))


def test_tpu_rows_are_fully_sharded_over_a_slice_and_replicated_over_slices(tmp_path: Path):
    _, cluster, plan = tpu_row(tmp_path, gpu="TPU-v5p", num_gpus="64").job
    assert (cluster.name, plan.tp, plan.pp, plan.dp, plan.sharding) == ("tpu-v5p-pod", 1, 1, 64, "fsdp")
    assert (plan.micro_batch, plan.n_micro_batch, plan.recompute, plan.zero_stage) == (2, 1, "full", 0)
    sliced = tpu_row(tmp_path, gpu="TPU-v5p", num_gpus="64", notes="4 slice(s) of v5p-32").job[2]
    assert (sliced.sharding, sliced.dp_shard) == ("hsdp", 16)
    beyond = tpu_row(tmp_path, gpu="TPU-v6e", num_gpus="512", global_batch="1024").job[2]
    assert (beyond.sharding, beyond.dp_shard) == ("hsdp", 256)
    fewer = tpu_row(tmp_path, gpu="TPU-v5p", num_gpus="256")
    assert fewer.job[2].tp == 2  # two chips share a sequence


def test_aurora_rows_have_twelve_tiles_to_a_node(tmp_path: Path):
    row = csv_row(
        tmp_path,
        gpu="Intel-PVC-tile (Aurora)",
        gpus_per_node="12.0",
        num_gpus="48",
        dp="24",
        global_batch="96",
        precision="bf16",
    )
    assert row.job[1].name == "aurora"
    assert row.job[1].node_size == 12


def test_an_interleaved_schedule_of_unknown_depth_has_chunks_of_one_layer(tmp_path: Path):
    changes = {"pp": "4", "dp": "2"}
    plan = csv_row(tmp_path, **changes, notes="TP 2 / PP 4 interleaved; tokens/s derived").job[2]
    assert (plan.schedule, plan.virtual_stages) == ("interleaved", 8)
    assert csv_row(tmp_path, **changes).job[2].schedule == "1f1b"


def test_sharded_parameters_need_no_degrees_unless_the_notes_speak_of_them(tmp_path: Path):
    blank = {"tp": "", "pp": "", "dp": "", "sharding": "zero3"}
    plan = csv_row(tmp_path, **blank).job[2]
    assert (plan.tp, plan.pp, plan.dp, plan.zero_stage) == (1, 1, 16, 3)
    row = csv_row(tmp_path, **blank, notes="FSDP + Megatron tensor parallelism, degree not in the sentence")
    assert (row.job[2].tp, row.job[2].zero_stage) == (8, 3)  # the widest in a node
    assert [str(item).split()[0] for item in row.assumed] == ["tp", "pp"]


def test_fsdp_under_a_pipeline_keeps_its_parameters(tmp_path: Path):
    plan = csv_row(tmp_path, sharding="fsdp", pp="2", dp="4").job[2]
    assert (plan.sharding, plan.zero_stage) == ("none", 2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"global_batch": "", "micro_batch": "", "notes": "16M tokens/batch (rounded)"}, (2, 2048)),  # 2^24 / 8192
        ({"global_batch": "", "micro_batch": "", "notes": "4M-token batch"}, (2, 512)),
        ({"global_batch": "", "micro_batch": "2", "notes": "GAS 9; ZeRO"}, (2, 144)),  # 9 x 2 x dp 8
        ({"global_batch": "", "micro_batch": "", "notes": "batch per DP 36; x"}, (2, 288)),
        ({"global_batch": "", "micro_batch": "2"}, (2, 16)),
        (
            {"global_batch": "64", "micro_batch": "", "notes": "16M tokens/batch"},
            (2, 64),
        ),  # two sequences fit, four do not
    ],
)
def test_batches_are_read_from_notes_where_columns_are_blank(
    tmp_path: Path, changes: dict[str, str], expected: tuple[int, int]
):
    plan = csv_row(tmp_path, **changes).job[2]
    assert (plan.micro_batch, plan.global_batch) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"recompute": "unknown"}, "none"),
        ({"recompute": "full"}, "full"),
        ({"recompute": "selective", "notes": "Activation Checkpointing=Full AC; Batch Size=2"}, "full"),
        ({"recompute": "selective", "notes": "Activation Checkpointing=No AC; Batch Size=2"}, "none"),
        ({"recompute": "unknown", "notes": "no flash attention, gradient checkpointing on"}, "full"),
        ({"recompute": "selective", "measured_mfu": "0.55", "notes": "HFU 0.74; batch size 2"}, "full"),
        ({"recompute": "unknown", "measured_mfu": "0.515", "notes": "HFU 53.0."}, "selective"),
        ({"recompute": "selective", "measured_mfu": "0.46", "notes": "HFU 0.46; x"}, "none"),
        ({"recompute": "selective", "notes": "recompute modules: norm, act; x"}, "none"),
        ({"recompute": "selective", "notes": 'recompute modules [""moe_act"", ""layernorm""]'}, "none"),
        ({"recompute": "selective", "notes": 'recompute modules [""mla_up_proj"", ""mlp""]'}, "selective"),
        ({"recompute": "unknown", "notes": "recompute modules: full; x"}, "full"),
        ({"recompute": "selective", "notes": "per-op selective AC; step time derived"}, "selective_op"),
    ],
)
def test_recomputation_follows_words_then_ratio_then_column(tmp_path: Path, changes: dict[str, str], expected: str):
    assert csv_row(tmp_path, **changes).job[2].recompute == expected


def test_rows_name_their_framework(tmp_path: Path):
    assert csv_row(tmp_path).framework == "megatron-core"
    assert json_row(tmp_path).framework == "megatron-2021"


def test_gradients_are_added_inside_products_where_the_software_does_so(tmp_path: Path):
    assert csv_row(tmp_path).job[2].fused_grad_accumulation
    notes = "Llama-type; fp32 grad accumulation True"
    assert csv_row(tmp_path, notes=notes).job[2].fused_grad_accumulation
    assert not csv_row(tmp_path, source="huggingface/nanotron", notes=notes).job[2].fused_grad_accumulation
    assert csv_row(tmp_path, source="huggingface/nanotron").job[2].fused_grad_accumulation


@pytest.mark.parametrize(
    ("network", "node_size", "gbit_per_s"),
    [
        ("1600 Gbps RoCE node-node", 8, 200.0),
        ("NVLink 400 GB/s intra-node; 400 Gb/s-class RDMA NICs", 8, 400.0),
        ("Selene: 8x 200 Gb/s HDR InfiniBand per node", 8, 200.0),
        ("Selene: 8x HDR 200 Gb/s InfiniBand per node", 8, 200.0),
        ("RoCE 400 Gb/s per GPU, Grand Teton", 8, 400.0),
        ("InfiniBand 400 Gb/s", 8, 400.0),
        ("800 Gbps inter-node", 8, 100.0),
    ],
)
def test_network_texts_become_bandwidth_per_device(network: str, node_size: int, gbit_per_s: float):
    assert network_bytes_per_s(network, node_size) == pytest.approx(gbit_per_s * 1e9 / 8)


def test_inventories_and_unknown_networks_keep_the_preset():
    assert (
        network_bytes_per_s("Storage: 2x ConnectX-7 IB NDR 400Gb/s, Compute: 8x ConnectX-7 IB NDR 400Gb/s", 8) is None
    )
    assert network_bytes_per_s("single node NVLink", 8) is None


def test_attention_is_unfused_before_flash_attention():
    assert is_before_flash_attention("Narayanan et al. 2021 (arXiv 2104.04473) Table 1")
    assert is_before_flash_attention("NVIDIA/Megatron-LM", "A100-SXM-80GB")
    assert not is_before_flash_attention("NVIDIA/Megatron-LM", "H100-SXM-80GB")
    assert not is_before_flash_attention("2407.21783 Table 4")


def test_cost_balanced_stages_count_the_head_as_a_block():
    """nanotron's split of an 8.86B Llama over 8 stages: five layers beside the embedding, fewer beside the head."""
    model = TransformerSpec("8.86B", 32, 4096, 32, 14336, 131072, gated=True, norm="rms", position="rope", bias=False)
    sizes = cost_balanced_split(model, 8)
    assert sum(sizes) == 32
    assert sizes[0] == 5
    assert sizes[-1] < 4


@pytest.mark.skipif(not STEPS.exists(), reason="shared data not present")
def test_all_reference_rows_are_supported():
    rows = read_step_rows(STEPS / "reference_rows.json")
    assert len(rows) == 28
    assert count_support(rows).n_supported == 28


@pytest.fixture(scope="module")
def published(shared_data: Path) -> list[MeasuredRow]:
    """All rows of the largest table, read once."""
    return read_step_rows(shared_data / "steps" / "steps.csv.gz")


def test_assumptions_are_left_out_of_the_fit_and_stated_rows_make_none(published: list[MeasuredRow]):
    kept = {row.id for row in usable(published)}
    assumed = {row.id for row in published if row.assumed}
    assert 100 < len(assumed) < 300
    assert not kept & assumed


def test_nineteen_of_twenty_transformer_rows_are_supported(published: list[MeasuredRow]):
    found = count_support(published)
    assert found.n == 5385
    assert found.n_supported >= 4895
    assert found.share_of_transformers >= 0.95
    assert found.n_transformer > 0.94 * found.n  # few rows are left out of the count
    assert not any(reason.startswith("impossible") for reason in found.by_reason)


def test_nearly_all_rows_of_encoders_become_jobs(published: list[MeasuredRow]) -> None:
    encoders = [row for row in published if isinstance(row.model, EncoderSpec | EncoderDecoderSpec)]
    refused = [row for row in published if row.unsupported.startswith("not a decoder")]
    assert len(encoders) >= 0.95 * 73
    assert len([row for row in refused if row.id.startswith(("nemolaunch", "pub2"))]) <= 3
    assert all(row.assumed for row in encoders)  # so that no fit sees them
