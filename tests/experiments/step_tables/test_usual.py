"""What a published run may have done where its table says nothing."""

from pathlib import Path

import pytest

from experiments.step_tables.table import read_step_rows
from prism_jax.calibration.open_fields import IMBALANCE, NETWORK, VIRTUAL_STAGES, usual_dtypes, usual_recompute
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.framework.software import TYPICAL, VENDOR
from prism_jax.system import catalog
from prism_jax.validation.costed import job_of_row
from prism_jax.validation.score import MeasuredRow
from prism_jax.workload.transformer.spec import TransformerSpec


@pytest.mark.parametrize("name", ["v100-sxm2-32gb", "a100-80gb", "h100-sxm", "b200", "mi300x", "tpu-v4"])
@pytest.mark.parametrize("tuning", [None, TYPICAL, VENDOR])
def test_formats_are_probabilities_of_what_the_device_has(name: str, tuning: str | None) -> None:
    device = catalog.device(name)
    odds = usual_dtypes(device, tuning)
    assert sum(share for _, share in odds) == pytest.approx(1.0)
    assert {value for value, _ in odds} <= set(device.peak_flops_per_s) | {"bf16"}


def test_vendors_use_narrow_formats_where_others_mostly_do_not() -> None:
    hopper = catalog.device("h100-sxm")
    assert usual_dtypes(hopper, VENDOR)[0][0] == "fp8"
    assert usual_dtypes(hopper, TYPICAL) == usual_dtypes(hopper)
    assert usual_dtypes(hopper)[0][0] == "bf16"


def test_recomputation_is_a_distribution_in_the_line_of_deepspeed_alone() -> None:
    for name in FRAMEWORKS.names:
        odds = usual_recompute(name)
        assert sum(share for _, share in odds) == pytest.approx(1.0)
        assert (len(odds) > 1) == (name == "megatron-deepspeed")


def row_of(tmp_path: Path, **changes: str) -> MeasuredRow:
    """A row of 16 layers on two nodes that states everything, but for `changes`."""
    stated = {
        "id": "x-1", "source": "somebody", "model": "GPT", "layers": "16", "hidden": "4096", "ffn": "16384", "heads": "32",
        "vocab": "51200", "seq_len": "2048", "gpu": "H100-SXM-80GB", "num_gpus": "16", "gpus_per_node": "8", "tp": "2",
        "pp": "4", "vpp": "1", "dp": "2", "micro_batch": "1", "global_batch": "64", "precision": "bf16", "recompute": "none",
        "network": "8x 400 Gb/s InfiniBand per node", "measured_step_time_s": "2.5", "notes": "", "framework": "Megatron-Core",
        "schedule": "1f1b", "routing": "", "experts": "", "experts_topk": "", "etp": "", "layer_split": "", "kind": "full",
        "lora_rank": "", "lora_targets": "", "fabric_stated": "yes", "vendor": "no", "gated": "False",
    } | changes  # fmt: skip
    file = tmp_path / "rows.csv"
    file.write_text(f"{','.join(stated)}\n" + ",".join(f'"{value}"' for value in stated.values()))
    (row,) = read_step_rows(file)
    assert row.unsupported == ""
    return row


EXPERTS = {"experts": "8", "experts_topk": "2", "ffn": "2048", "ep": "4"}


@pytest.mark.parametrize(
    ("changes", "opened"),
    [
        ({}, set()),
        ({"precision": ""}, {"dtype"}),
        ({"micro_batch": ""}, {"micro_batch"}),
        ({"vpp": "", "schedule": "1f1b or interleaved, not listed"}, {VIRTUAL_STAGES}),
        ({"fabric_stated": "no"}, {NETWORK}),
        ({"fabric_stated": "", "network": ""}, {NETWORK}),
        ({"fabric_stated": "", "network": "", "vendor": "yes"}, set()),
        ({"fabric_stated": "no", "network": "Alps"}, set()),
        ({"fabric_stated": "no", "num_gpus": "8", "dp": "1"}, set()),
        ({**EXPERTS, "routing": "balanced"}, set()),
        ({**EXPERTS, "routing": "real"}, {IMBALANCE}),
        ({**EXPERTS, "routing": ""}, {IMBALANCE}),
        ({**EXPERTS, "routing": "", "vendor": "yes"}, set()),
        ({**EXPERTS, "routing": "real", "notes": "capacity factor 1"}, set()),
    ],
)
def test_what_a_row_does_not_state_is_open_and_nothing_else_is(tmp_path: Path, changes, opened) -> None:
    row = row_of(tmp_path, **changes)
    assert {name for name, _ in row.open_plan} == opened
    for _, odds in row.open_plan:
        assert sum(share for _, share in odds) == pytest.approx(1.0)
    found = {field.name.removeprefix("plan."): field for field in job_of_row(row).open_fields}
    assert opened <= found.keys()
    assert not (found.keys() - opened) & {"dtype", "micro_batch", VIRTUAL_STAGES, NETWORK, IMBALANCE}


def test_a_narrower_fabric_and_a_fuller_rank_take_longer(tmp_path: Path) -> None:
    row = row_of(tmp_path, **EXPERTS, routing="real", fabric_stated="no")
    found = {field.name: dict(zip(field.values, field.log_ratio, strict=True)) for field in job_of_row(row).open_fields}
    assert found[NETWORK][2.0] < found[NETWORK][1.0] == 0.0 < found[NETWORK][0.5]
    loads = found[IMBALANCE]
    assert [loads[load] for load in sorted(loads)] == sorted(loads.values())


def test_columns_that_say_what_was_in_notes_decide(tmp_path: Path) -> None:
    plan = row_of(tmp_path, schedule="zb_h1", layer_split="[3, 5, 5, 3]").job[2]
    assert (plan.schedule, plan.layer_split) == ("zb_h1", (3, 5, 5, 3))
    fewer = row_of(tmp_path, layers="14", layer_split="first and last stage hold one layer fewer").job[2]
    assert fewer.layer_split == (3, 4, 4, 3)
    assert row_of(tmp_path, **(EXPERTS | {"ep": "2"}), etp="2").job[2].etp == 2
    assert row_of(tmp_path, vendor="yes").job[2].software.tuning == VENDOR
    adapted = row_of(tmp_path, kind="lora", lora_rank="64", lora_targets="attention qkv and output projection").job[0]
    assert isinstance(adapted, TransformerSpec)
    assert adapted.adapters is not None
    assert (adapted.adapters.rank, adapted.adapters.targets) == (64, ("linear_qkv", "linear_proj"))


def test_software_that_is_not_known_is_said_and_does_not_fit(tmp_path: Path) -> None:
    row = row_of(tmp_path, framework="Trainer of nobody")
    assert [str(one) for one in row.assumed] == ["framework plain PyTorch assumed: 'Trainer of nobody' is not known"]
    assert row_of(tmp_path).assumed == ()


@pytest.mark.parametrize(
    ("words", "framework"),
    [
        ("PyTorch FSDP2 (NeMo Automodel, Hugging Face-like modules)", "fsdp"),
        ("Megatron-Core (FSDP)", "megatron-core"),
        ("neuronx-nemo-megatron", "jax"),
        ("Hugging Face Trainer", "fsdp"),
        ("Hugging Face Trainer + DeepSpeed", "deepspeed"),
    ],
)
def test_a_column_names_the_framework(tmp_path: Path, words: str, framework: str) -> None:
    assert row_of(tmp_path, framework=words).framework == framework
