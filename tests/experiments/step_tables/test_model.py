"""Models of rows whose name says nothing: what the stated number of parameters settles, and what it leaves as it is."""

import pytest

from experiments.step_tables.model import model_of_record, trained_model
from experiments.step_tables.records import StepRecord
from prism_jax.workload.catalog import model
from prism_jax.workload.transformer.spec import TransformerSpec

SIZES = {"n_layers": 32, "hidden": 4096, "n_heads": 32, "n_kv_heads": 32, "ffn": 11008, "vocab": 103168}
GATED, PLAIN = 7.32, 5.47  # 10^9 parameters of these sizes


def of(name: str = "Somebody-7B", **fields: object) -> TransformerSpec:
    return model_of_record(StepRecord(id="1", source="a", model_name=name, **{**SIZES, **fields}))  # pyright: ignore[reportArgumentType]


def test_the_stated_number_of_parameters_says_whether_the_mlp_is_gated() -> None:
    assert of(params_b=GATED).gated
    assert not of(params_b=PLAIN).gated
    assert of(params_b=GATED).n_params() == pytest.approx(GATED * 1e9, rel=0.01)
    assert of(params_b=PLAIN).n_params() == pytest.approx(PLAIN * 1e9, rel=0.01)


def test_the_name_decides_where_no_number_is_met() -> None:
    assert of("Llama-like", params_b=None).gated
    for stated in (None, 20.0, 0.0):
        assert not of(params_b=stated).gated
    assert not of("Llama-like", params_b=PLAIN).gated
    assert of("Llama-like", params_b=6.5).gated  # between both, near to none


def test_what_a_row_says_itself_comes_first() -> None:
    assert not of(gated=False, params_b=GATED).gated


def test_a_known_model_is_as_published() -> None:
    known = model("llama-2-7b")
    assert of("llama-2-7b", params_b=5.0, vocab=None).n_params() == known.n_params()


def test_notes_say_that_experts_drop_tokens() -> None:
    def capacity(notes: str) -> float:
        record = StepRecord(id="1", source="a", model_name="mixtral-8x7b", notes=notes)
        moe = trained_model(record).moe
        assert moe is not None
        return moe.capacity_factor

    assert capacity("ETP 1; capacity factor 1.2 token dropping; MFU against 989.5") == 1.2
    assert capacity("dropless") == capacity("no capacity limit (imbalanced)") == 0.0


def test_models_of_fewer_layers_have_experts_where_their_launcher_puts_them() -> None:
    def cut(source: str) -> TransformerSpec:
        return model_of_record(StepRecord(id="1", source=source, model_name="deepseekv3 (4 layers)", n_layers=4))

    usual, simumax = cut("somebody"), cut("MooreThreads/SimuMax")
    assert [usual.is_moe_layer(layer) for layer in range(4)] == [False, False, False, True]
    assert [simumax.is_moe_layer(layer) for layer in range(4)] == [False, True, True, True]
    assert (usual.n_mtp, simumax.n_mtp) == (1, 0)
    assert simumax.moe is not None
    assert simumax.moe.capacity_factor == 1.0
