"""Rows that train adapters: which ones, by columns, notes and the recipes of their sources."""

from pathlib import Path
from typing import Any

import pytest

from experiments.step_tables.model import adapters_of_record
from experiments.step_tables.records import StepRecord
from experiments.step_tables.table import read_step_rows
from prism_jax.workload.transformer.sizes import AdapterSpec
from prism_jax.workload.transformer.spec import TransformerSpec

from .test_table import write_csv


def adapters(**given: str) -> AdapterSpec | None:
    texts: dict[str, Any] = {"id": "x", "source": "somebody"} | given
    return adapters_of_record(StepRecord(**texts))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"model_name": "Llama3-8B"}, None),
        ({"model_name": "Llama3-8B", "notes": "lora was not used"}, None),
        ({"kind": "full", "notes": "LoRA fine-tuning in another row"}, None),
        ({"model_name": "llama2_13b_lora", "kind": "lora"}, AdapterSpec(16)),
        ({"model_name": "Llama3-8B [lora]"}, AdapterSpec(16)),
        ({"kind": "lora", "notes": "LoRA r=8; median"}, AdapterSpec(8)),
        ({"kind": "lora", "features": "fused_rope;fused_lora"}, AdapterSpec(16, fused=True)),
        ({"kind": "qlora"}, AdapterSpec(16, quantised="nf4")),
        ({"kind": "qlora", "notes": "GPTQ-4bit LoRA (triton v2)"}, AdapterSpec(16, quantised="int4")),
        ({"source": "NVIDIA/NeMo", "model_name": "x [lora]"}, AdapterSpec(16, ("linear_qkv",))),
        (
            {"source": "mlcommons/training_results_v4.1", "notes": "LoRA fine-tuning on packed sequences"},
            AdapterSpec(16, ("linear_qkv", "linear_proj"), dropout=0.1),
        ),
    ],
)
def test_adapters_follow_from_columns_notes_and_recipes(given: dict[str, str], expected: AdapterSpec | None):
    assert adapters(**given) == expected


def test_a_row_that_trains_adapters_becomes_a_job(tmp_path: Path):
    row = read_step_rows(write_csv(tmp_path / "steps.csv", {"model": "Llama3-8B [lora]"}))[0]
    model = row.job[0]
    assert isinstance(model, TransformerSpec)
    assert model.adapters == AdapterSpec(16, ("linear_qkv",))
    assert model.n_params_trained() == 32 * 16 * (4096 + 4096 + 2 * 1024)


def test_a_row_in_nvfp4_becomes_a_job_in_the_recipe_of_its_source(tmp_path: Path):
    changes = {"precision": "nvfp4", "gpu": "GB200", "num_gpus": "16"}
    stated = read_step_rows(write_csv(tmp_path / "a.csv", changes | {"source": "NVIDIA-NeMo/Megatron-Bridge"}))[0]
    paper = read_step_rows(write_csv(tmp_path / "b.csv", changes))[0]
    assert (stated.job[2].dtype, stated.job[2].bf16_layers) == ("nvfp4", 0)
    assert paper.job[2].bf16_layers is None
