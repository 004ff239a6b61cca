"""Blanks of rows: what each rule fills in, that it tells so, and that stated rows stay as they are."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.step_tables.assumed import (
    Assumption,
    completed,
    peers_of,
    rates_disagree,
    with_architecture,
    with_divided_batch,
)
from experiments.step_tables.cluster import cluster_of_record
from experiments.step_tables.model import model_of_record
from experiments.step_tables.plan import plan_of_record
from experiments.step_tables.records import StepRecord, UnsupportedRowError
from experiments.step_tables.table import count_support, read_step_rows
from prism_jax.cost.memory import memory
from prism_jax.workload.catalog import model as preset

DATA = Path(__file__).resolve().parents[3] / ".." / "shared" / "data"
STATED = StepRecord(
    "a", "src", model_name="Llama2-7B", seq_len=4096, gpu="A100-SXM-80GB", n_gpus=16, tp=2, pp=1, dp=8, cp=1, ep=1,
    sharding="zero1", micro_batch=1, global_batch=64, precision="bf16", recompute="none", measured_s=3.0,
)  # fmt: skip
NOBODY = peers_of(())


def filled(record: StepRecord, *beside: StepRecord) -> tuple[StepRecord, dict[str, int | str]]:
    """The record, and field -> value of what was assumed."""
    found, assumed = completed(record, peers_of(beside))
    return found, {item.field: item.value for item in assumed}


def test_a_row_that_states_its_job_stays_as_it_is() -> None:
    assert completed(STATED, NOBODY) == (STATED, ())


def test_sequences_follow_from_the_rates_of_a_row_before_anything_else() -> None:
    rate = 64 * 4096 / (3.0 * 16)
    blank = replace(STATED, seq_len=None, tokens_per_s_per_gpu=rate)
    assert filled(blank, replace(STATED, seq_len=512))[1] == {"seq_len": 4096}


def flops_of_sequence(seq_len: int, recompute: str) -> float:
    return seq_len * preset("llama-2-7b").train_flops_per_token(seq_len, causal=False, recompute=recompute)


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("seq_len", [1024, 8192])
def test_sequences_follow_from_flops_in_any_convention_before_rows_beside(recompute: str, seq_len: int) -> None:
    rate = 64 * flops_of_sequence(seq_len, recompute) / (3.0 * 16) / 1e12
    blank = replace(STATED, seq_len=None, tflops_per_gpu=rate)
    assert filled(blank, replace(STATED, seq_len=512))[1] == {"seq_len": seq_len}


def test_flops_of_no_usual_length_say_nothing() -> None:
    rate = 64 * 1.2 * flops_of_sequence(1024, "full") / (3.0 * 16) / 1e12
    blank = replace(STATED, seq_len=None, tflops_per_gpu=rate)
    assert filled(blank, replace(STATED, seq_len=512))[1] == {"seq_len": 512}


def test_frozen_weights_leave_room_that_trained_ones_do_not() -> None:
    blank = replace(
        STATED, model_name="Llama2-70B", gpu="H100-SXM-80GB", n_gpus=8, tp=None, pp=None, dp=None, micro_batch=None,
        global_batch=8, recompute="unknown", sharding="",
    )  # fmt: skip
    trained, frozen = filled(blank)[1], filled(replace(blank, kind="lora"))[1]
    assert trained.get("recompute") == "full"
    assert "recompute" not in frozen


def test_sequences_are_those_of_rows_beside_or_of_the_model() -> None:
    blank = replace(STATED, seq_len=None)
    beside = [replace(STATED, seq_len=n) for n in (1024, 512, 512)]
    assert filled(blank, *beside)[1] == {"seq_len": 512}
    elsewhere = replace(STATED, source="other", seq_len=512)
    assert filled(blank, elsewhere)[1] == {"seq_len": preset("llama-2-7b").max_seq_len}


def test_a_batch_follows_from_rate_and_step_time() -> None:
    blank = replace(STATED, micro_batch=None, global_batch=None, tokens_per_s_per_gpu=64 * 4096 / (3.0 * 16))
    assert filled(blank)[1] == {"global_batch": 64}
    flops = preset("llama-2-7b").train_flops_per_token(4096, causal=False, recompute="none") * 64 * 4096
    by_flops = replace(blank, tokens_per_s_per_gpu=None, tflops_per_gpu=flops / (3.0 * 16) / 1e12)
    assert filled(by_flops)[1] == {"global_batch": 64}


def test_a_rate_alone_takes_a_usual_batch_that_fits() -> None:
    blank = replace(STATED, measured_s=None, micro_batch=None, global_batch=None, tokens_per_s_per_gpu=3000.0)
    micro, whole = (filled(blank)[1][name] for name in ("micro_batch", "global_batch"))
    assert isinstance(micro, int)
    assert micro in (1, 2, 4)
    assert whole == 8 * micro
    example = replace(blank, notes="batch not stated (example script: 3 per GPU)")
    assert filled(example)[1] == {"micro_batch": 3, "global_batch": 24}


def test_of_sharded_parameters_the_quickest_batch_and_recomputation_that_fit_are_taken() -> None:
    blank = replace(
        STATED, measured_s=None, n_gpus=64, tp=1, dp=64, micro_batch=None, global_batch=None, tokens_per_s_per_gpu=3000.0,
        sharding="fsdp", recompute="unknown",
    )  # fmt: skip
    small, large = (filled(replace(blank, model_name=name))[1]["recompute"] for name in ("Llama2-7B", "Llama2-70B"))
    assert (small, large) == ("none", "full")


def test_the_usual_shape_of_a_size_has_that_many_parameters_gated_or_plain() -> None:
    for name in ("Llama-like-7.5B", "GPT2-7.5B"):
        found, assumed = filled(replace(STATED, model_name=name))
        assert {"n_layers", "hidden", "ffn"} <= set(assumed)
        model = model_of_record(found)
        assert model.gated == name.startswith("Llama")
        assert model.n_layers * model.hidden * (4 * model.hidden + (2 + model.gated) * model.ffn_hidden) == (
            pytest.approx(7.5e9, rel=0.05)
        )


@pytest.mark.parametrize(
    ("dp", "micro", "batch", "expected"),
    [(8, 12, 2048, 16), (8, 6, 64, 4), (16, 20, 1024, 16), (8, 12, 96, None), (8, 3, 100, None), (1, 12, 257, None)],
)
def test_a_smaller_last_micro_batch_becomes_equal_ones_of_the_same_step(
    dp: int, micro: int, batch: int, expected: int | None
) -> None:
    found, assumed = with_divided_batch(replace(STATED, tp=1, dp=dp, micro_batch=micro, global_batch=batch))
    assert found.global_batch == batch
    if expected is None:
        assert not assumed
    else:
        assert assumed == (Assumption("micro_batch", expected, assumed[0].why),)
        assert batch % (dp * expected) == 0


def test_degrees_are_the_narrowest_that_fit() -> None:
    blank = replace(STATED, model_name="Llama2-70B", n_gpus=64, tp=None, pp=None, dp=None, sharding="")
    found, assumed = filled(blank)
    assert set(assumed) == {"tp", "pp"}
    assert assumed["tp"] == 8
    narrower = replace(found, tp=4, pp=1)
    model, cluster = model_of_record(found), cluster_of_record(found)
    assert memory(model, cluster, plan_of_record(found)).fits
    assert not memory(model, cluster, plan_of_record(narrower)).fits
    small = replace(blank, model_name="Llama2-7B", sharding="zero1")
    assert filled(small)[1] == {"tp": 1, "pp": 1}


@pytest.mark.parametrize(("seq_len", "axis"), [(2048, "tp"), (131_072, "cp")])
def test_chips_beyond_the_sequences_of_a_step_share_them(seq_len: int, axis: str) -> None:
    blank = replace(STATED, gpu="TPU-v5p", n_gpus=256, global_batch=64, micro_batch=None, sharding="", seq_len=seq_len)
    assert filled(replace(blank, tp=None, pp=None, dp=None))[1] == {axis: 4}


@pytest.mark.parametrize("size", [0.35, 1.3, 7.0, 22.0, 64.0, 128.0, 256.0, 1024.0])
def test_an_unpublished_shape_has_the_stated_number_of_parameters(size: float) -> None:
    blank = replace(STATED, model_name="Thing", params_b=size, tp=1)
    found, assumed = with_architecture(blank)
    assert {item.field for item in assumed} == {"n_layers", "hidden", "ffn", "n_heads"}
    assert model_of_record(found).n_params() / 1e9 == pytest.approx(size, rel=0.35 if size < 2 else 0.06)


def test_a_size_in_the_name_serves_but_experts_have_no_usual_shape() -> None:
    unknown = replace(STATED, model_name="Thing-13B")
    assert model_of_record(with_architecture(unknown)[0]).n_params() / 1e9 == pytest.approx(13, rel=0.06)
    sparse = replace(unknown, tokens_per_s_per_gpu=1000.0, tflops_per_gpu=6 * 4.0)  # a token takes 4 billion parameters
    for record in (replace(unknown, model_name="Thing-30B-A3B"), replace(unknown, n_experts=8), sparse):
        assert with_architecture(record) == (record, ())
        with pytest.raises(UnsupportedRowError, match="architecture not published"):
            completed(record, NOBODY)


def test_a_number_of_devices_is_taken_over_only_for_a_rate() -> None:
    rate = replace(STATED, n_gpus=None, dp=None, measured_s=None, tokens_per_s_per_gpu=3000.0)
    assert filled(rate, STATED)[1] == {"n_gpus": 16}
    with pytest.raises(UnsupportedRowError, match="number of devices not stated"):
        completed(replace(rate, measured_s=3.0), peers_of([STATED]))


def test_a_device_by_likeness_is_told() -> None:
    assert filled(replace(STATED, gpu="A100 80GB 300W"))[1] == {"device": "a100-80gb"}
    with pytest.raises(UnsupportedRowError, match="no preset of device RTX 6090"):
        completed(replace(STATED, gpu="RTX 6090"), NOBODY)


def test_rates_of_another_model_disagree() -> None:
    model = preset("llama-2-7b")
    token = model.train_flops_per_token(4096, causal=True, recompute="none")
    fits = replace(STATED, tokens_per_s_per_gpu=1e3, tflops_per_gpu=token * 1e3 / 1e12)
    assert rates_disagree(fits, model) == ""
    assert rates_disagree(STATED, model) == ""
    assert "0.50 times" in rates_disagree(replace(fits, tokens_per_s_per_gpu=2e3), model)


@pytest.mark.skipif(not DATA.exists(), reason="shared data not present")
@pytest.mark.parametrize(("path", "others"), [("steps/steps.csv.gz", ("LoRA", "nvfp4")), ("steps2/rows.csv.gz", ())])
def test_nearly_all_transformer_rows_become_jobs(path: str, others: tuple[str, ...]) -> None:
    """Not counted: encoders and other models, hybrids, and the kinds named by `others`."""
    found = count_support(read_step_rows(DATA / path))
    skipped = ("not a decoder", "hybrid", *others)
    n = found.n - sum(k for reason, k in found.by_reason.items() if reason.startswith(skipped) or "nvfp4" in reason)
    assert found.n_supported >= 0.955 * n
