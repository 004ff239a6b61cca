"""What is known to be wrong with a measured row, and which software it ran on, both read from its words."""

import pytest

from experiments.step_tables.cluster import defect_of_record
from experiments.step_tables.plan import framework_of_record
from experiments.step_tables.records import StepRecord
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.system import catalog


def record(**fields: object) -> StepRecord:
    return StepRecord(id="x", **({"source": "somewhere"} | fields))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("notes", "defect"),
    [
        ("", ""),
        ("all is well; checked twice", ""),
        ("GA 9 || CHECK: C7 tok/s*FLOPs=0.85", "failed check: C7 tok/s*FLOPs=0.85"),
        ("CHECK: S source-level flag (see notes)", "flagged by its source"),
        ("SUSPECT: a copy; vocab 50k || CHECK: S source-level flag (see notes)", "a copy"),
        ("INCONSISTENT: 8 vs 9 || CHECK: C1 8!=9; S source-level flag (see notes)", "8 vs 9; failed check: C1 8!=9"),
    ],
)
def test_remarks_of_the_collectors_are_defects(notes: str, defect: str):
    assert defect_of_record(record(notes=notes)) == defect


def test_rows_before_the_pipeline_fix_are_defect_only_with_a_pipeline():
    notes = "1F1B; after_pp_fix=False; tie embeddings True"
    assert "pipeline" in defect_of_record(record(notes=notes, pp=2))
    assert defect_of_record(record(notes=notes, pp=1)) == ""
    assert defect_of_record(record(notes=notes.replace("False", "True"), pp=2)) == ""


@pytest.mark.parametrize(
    ("cluster", "n_devices", "gb_per_s", "degraded"),
    [
        ("dgx-h100", 512, 99.9, True),  # a quarter of 8 ports x 50 GB/s is 100
        ("dgx-h100", 512, 100.1, False),
        ("dgx-h100", 8, 112.4, True),  # NVLink inside one node: a quarter of 450
        ("dgx-h100", 8, 112.6, False),
        ("dgx-a100", 64, 51.0, False),  # a quarter of 8 x 25
        ("dgx-a100", 64, 49.0, True),
    ],
)
def test_an_all_reduce_under_a_quarter_of_the_ports_is_a_degraded_fabric(
    cluster: str, n_devices: int, gb_per_s: float, degraded: bool
):
    notes = f"NCCL BW measured in the same job GB/s: all-reduce {gb_per_s}, all-gather 20"
    found = defect_of_record(record(notes=notes), catalog.cluster(cluster, n_devices))
    assert found.startswith("fabric degraded") == degraded
    told = defect_of_record(
        record(notes=notes), catalog.cluster(cluster, n_devices), "fabric degraded: slower than peers"
    )
    assert told == (found or "fabric degraded: slower than peers")
    assert defect_of_record(record(notes=notes)) == ""


@pytest.mark.parametrize(
    ("fields", "framework"),
    [
        ({"source": "NVIDIA-NeMo/Megatron-Bridge", "notes": "Megatron FSDP, shard group 8"}, "megatron-core"),
        ({"source": "NVIDIA/dgxc-benchmarking", "table": "maxtext/README.md"}, "jax"),
        ({"source": "mlcommons/training_results_v9", "notes": "closed NVIDIA eos_nemo"}, "megatron-core"),
        ({"source": "mlcommons/training_results_v9", "gpu": "TPU-v5e", "notes": "cloud-tpu-v5e-50944-PAX"}, "jax"),
        ({"source": "NVIDIA/Megatron-LM", "gpu": "A100-SXM-80GB"}, "megatron-2021"),
        ({"source": "NVIDIA/Megatron-LM", "gpu": "H100-SXM-80GB"}, "megatron-core"),
        ({"source": "2104.04473 Table 1", "table": "bigscience-workshop/bigscience"}, "megatron-2021"),
        ({"source": "x/libai", "notes": "LiBai; section Data Parallel"}, "libai"),
        ({"source": "x/libai", "notes": "Megatron-LM e2d8f; section Data Parallel"}, "megatron-2021"),
        ({"notes": "Megatron-LM 1e2ed, TE 2.1; real_ms = mean"}, "megatron-core"),
        ({"source": "Some paper", "notes": "GPT-NeoX; layout not published"}, "megatron-deepspeed"),
        ({"notes": "Megatron + Deepspeed ZeRO (old branch)", "source": "bigscience"}, "megatron-deepspeed"),
        ({"notes": "HF + Deepspeed Zero 3", "source": "bigscience"}, "deepspeed"),
        ({"source": "deepspeedai/DeepSpeed (blog)", "notes": "TFLOPs by the Megatron formula"}, "deepspeed"),
        ({"source": "FlagOpen/FlagPerf", "table": "llama2_70b-megatron-deepspeed/README.md"}, "megatron-deepspeed"),
        ({"source": "FlagOpen/FlagPerf", "table": "aquila2_7b-flagscale/README.md"}, "flagscale"),
        ({"source": "pytorch/torchtitan"}, "fsdp"),
        ({"source": "user runs", "notes": "litgpt, lightning 2.1"}, "fsdp"),
        ({"source": "axolotl"}, "fsdp"),
        ({"source": "hpcaitech/ColossalAI"}, "colossalai"),
        ({"source": "huggingface/nanotron"}, "nanotron"),
        ({"source": "2407.21783 Table 4"}, "other"),
        ({"gpu": "TPU-v4"}, "jax"),
        ({}, ""),
    ],
)
def test_the_framework_is_told_by_words(fields: dict[str, object], framework: str):
    assert framework in FRAMEWORKS.names or framework == ""
    assert framework_of_record(record(**fields)) == framework


@pytest.mark.parametrize(
    ("excluded", "defect"),
    [("load imbalance not stated", "load imbalance not stated"), ("precision not stated", "")],
)
def test_a_row_that_says_nothing_of_the_model_is_set_aside_but_for_what_is_open(excluded, defect):
    assert defect_of_record(record(excluded=excluded)) == defect
