"""Rows about encoders: models by name and by sizes, recipes where rows are blank."""

from dataclasses import replace

import pytest

from experiments.step_tables.encoders import RECIPES, encoder_of_record, trains_encoder, with_recipe
from experiments.step_tables.records import StepRecord, UnsupportedRowError
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.encoder import EncoderSpec
from prism_jax.workload.transformer.encoder_decoder import EncoderDecoderSpec
from tests.conftest import ROOT

STEPS = ROOT / ".." / "shared" / "data" / "steps" / "steps.csv.gz"
NEMO = StepRecord(
    "n",
    "NVIDIA/NeMo-Framework-Launcher",
    "T5-3B",
    gpu="A100-SXM-80GB",
    n_gpus=80,
    seq_len=512,
    tokens_per_s_per_gpu=1e4,
)


@pytest.mark.parametrize(
    ("name", "known"),
    [("BERT L24 h1024", True), ("mT5-3B", True), ("RoBERTa-large", True), ("DeBERTa", False), ("UMT5-3B", False)],
)
def test_names_of_encoders(name: str, known: bool) -> None:
    assert trains_encoder(replace(NEMO, model_name=name)) is known


def test_a_recipe_fills_blanks_and_is_one_assumption() -> None:
    record, assumed = with_recipe(replace(NEMO, global_batch=960))
    assert (record.tp, record.micro_batch, record.global_batch, record.n_layers) == (2, 27, 960, 24)
    assert [one.field for one in assumed] == ["recipe"]
    again, nothing = with_recipe(record)
    assert (again, nothing) == (record, ())


def test_models_of_recipes_have_the_size_of_their_names() -> None:
    size = {
        "110m": 0.11,
        "4b": 4,
        "20b": 22,
        "100b": 98,
        "220m": 0.22,
        "t5-3b": 2.8,
        "170m": 0.17,
        "390m": 0.39,
        "mt5-3b": 3.2,
    }
    found = {}
    for recipe in RECIPES[:-1]:
        record, _ = with_recipe(replace(NEMO, model_name=recipe.model.rstrip("$")))
        found[record.model_name] = encoder_of_record(record).n_params() / 1e9
    for name, billion in found.items():
        key = next(key for key in sorted(size, key=len, reverse=True) if name.endswith(key))
        assert billion == pytest.approx(size[key], rel=0.05), name


def test_sizes_of_a_row_make_its_model() -> None:
    sizes = replace(NEMO, source="somebody", model_name="BERT", n_layers=24, hidden=1024, n_heads=16)
    model = encoder_of_record(sizes)
    assert isinstance(model, EncoderSpec)
    assert (model.predicted, model.n_params()) == (0.15, workload("bert-large").n_params())
    t5 = encoder_of_record(replace(sizes, model_name="T5", n_layers=12, hidden=768, n_heads=12))
    assert isinstance(t5, EncoderDecoderSpec)
    assert t5.n_params() == workload("t5-base").n_params()


def test_a_preset_is_found_by_its_name() -> None:
    assert encoder_of_record(replace(NEMO, model_name="BERT-large")) == workload("bert-large")
    with pytest.raises(UnsupportedRowError, match="architecture not published"):
        encoder_of_record(replace(NEMO, model_name="BERT of ours"))
