"""Rows of the Megatron-LM test table become the jobs that their arguments say; others are left out by name."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from experiments.memory_validation.megatron_ci import law_record
from experiments.memory_validation.megatron_rows import read_rows
from experiments.memory_validation.peak_errors import Peak, fit_law, left_out_coverage, megatron_peaks, step_table_peaks
from prism_jax.framework.frameworks import MEGATRON_CORE

ROW = {
    "id": "a", "family": "f", "device": "H100", "model_type": "gpt", "optimizer": "adam", "mem_peak_bytes": "2e9",
    "num_layers": "6", "hidden": "512", "heads": "8", "kv_heads": "8", "head_dim": "64", "ffn": "2048",
    "vocab_padded": "50304", "seq_len": "1024", "gated_mlp": "0", "norm": "LayerNorm", "positional": "learned_absolute",
    "tied_embeddings": "1", "bias_linear": "1", "qkv_bias": "0", "qk_layernorm": "0", "experts": "", "mla": "0",
    "mtp_layers": "0", "tp": "1", "pp": "4", "vpp": "1", "cp": "1", "ep": "1", "etp": "", "dp": "2", "micro_batch": "4",
    "global_batch": "32", "sequence_parallel": "0", "fsdp": "", "dist_optimizer": "0", "zero_stage": "0",
    "recompute": "none", "recompute_modules": "", "precision": "bf16", "fp8_param_gather": "0", "grad_reduce_bf16": "0",
    "transformer_impl": "transformer_engine", "legacy_models": "0", "attention_backend": "auto", "container": "26.04",
    "env_nondet": "0", "deterministic": "1", "dropout": "0.1", "moe_grouped_gemm": "", "tp_comm_overlap": "0",
    "grad_accum_fusion": "1", "cuda_graph": "none", "pipeline_layout": "", "uneven_pipeline": "", "linear_attention": "",
    "fp8_recipe": "", "first_last_bf16": "0", "ce_fusion": "none", "commit_date": "2026-04-08T00:00:00+00:00",
    "hybrid_pattern": "", "offload": "", "hyper_connections": "",
}  # fmt: skip


def table(folder: Path, *changes: dict[str, str]) -> Path:
    path = folder / "rows.csv.gz"
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows({**ROW, **change} for change in changes)
    return path


def test_layers_go_where_the_pipeline_layout_puts_them(tmp_path: Path):
    layout = {"pp": "2", "vpp": "4", "num_layers": "15", "pipeline_layout": r"Et*3\|\(tt\|\)*6mL"}
    loss = {"pp": "4", "vpp": "2", "num_layers": "6", "uneven_pipeline": "account-for-loss-in-pipeline-split=True"}
    rows, left_out = read_rows(table(tmp_path, {}, layout, loss))
    assert not left_out
    assert [row.plan.layer_split for row in rows] == [(), (3, 2, 2, 2, 2, 2, 2, 0), (0, 1, 1, 1, 1, 1, 1, 0)]


def test_attention_is_unfused_where_the_software_has_no_other(tmp_path: Path):
    unfused = [
        {"attention_backend": "unfused"},
        {"transformer_impl": "local"},
        {"legacy_models": "1"},
        {"container": "nvcr.io/nvidia/pytorch:24.01-py3"},
    ]
    rows, _ = read_rows(table(tmp_path, {}, *unfused))
    assert [row.plan.attention for row in rows] == ["flash", *["unfused"] * 4]


def test_flags_of_the_software_become_those_of_the_plan(tmp_path: Path):
    fp8 = {"precision": "bf16+fp8", "fp8_recipe": "blockwise", "first_last_bf16": "1"}
    rows, _ = read_rows(table(tmp_path, {}, fp8, {"moe_grouped_gemm": "1.0", "ce_fusion": "native"}))
    assert [(row.plan.fp8_recipe, row.plan.bf16_layers) for row in rows[:2]] == [("delayed", None), ("blockwise", 2)]
    assert [row.plan.software.expert_products for row in rows] == ["apart", "apart", "streams"]
    assert [row.plan.software.cross_entropy for row in rows] == [None, None, "compiled"]
    assert {row.plan.software.date for row in rows} == {"2026-04-08"}


def test_rows_that_the_model_does_not_describe_are_counted_by_reason(tmp_path: Path):
    changes = [
        {"mem_peak_bytes": ""},
        {"model_type": "t5"},
        {"optimizer": "muon"},
        {"optimizer": "muon"},
        {"hybrid_pattern": "M-M"},
    ]
    rows, left_out = read_rows(table(tmp_path, *changes))
    assert not rows
    assert left_out == {
        "no peak memory": 1,
        "not a decoder-only transformer: t5": 1,
        "optimizer: muon": 2,
        "state-space layers": 1,
    }


def test_fp16_gradients_are_summed_in_two_bytes(tmp_path: Path):
    bf16, fp16 = megatron_peaks(read_rows(table(tmp_path, {}, {"precision": "fp16"}))[0], with_flags=True)
    n_last_stage = 50304 * 512 + 2 * 512 + 3_152_384  # head, final norm, one layer
    assert bf16.predicted_bytes - fp16.predicted_bytes == pytest.approx(2 * n_last_stage, rel=1e-9)


def peaks(rng: np.random.Generator, n_family: int, between: float, within: float) -> list[Peak]:
    found = []
    for family in range(n_family):
        shift = between * rng.standard_normal()
        for _ in range(5):
            ratio = np.exp(0.02 + shift + within * rng.standard_normal())
            found.append(Peak(str(family), (), False, 1e9, 1e9 * float(ratio)))
    return found


def test_interval_covers_left_out_families_as_often_as_it_says():
    rng = np.random.default_rng(0)
    shares = [np.mean(list(left_out_coverage(peaks(rng, 12, 0.05, 0.01)).values())) for _ in range(40)]
    assert abs(np.mean(shares) - 0.9) < 4 * np.std(shares) / np.sqrt(len(shares))  # false alarms: 6e-5


def test_law_finds_the_median_and_the_spread():
    law = fit_law(peaks(np.random.default_rng(1), 400, 0.05, 0.02))
    assert law.location == pytest.approx(0.02, abs=4 * 0.05 * 1.25 / 20)
    assert law.scale == pytest.approx(np.hypot(0.05, 0.02), rel=0.15)


def test_the_shipped_law_is_that_of_the_peaks(shared_data: Path):
    """Constants of Megatron-Core are those of the committed study; most peaks with experts lie within a few percent."""
    rows, _ = read_rows(shared_data / "megatron_ci" / "rows.csv.gz")
    peaks = [*megatron_peaks(rows, with_flags=False), *step_table_peaks(shared_data / "steps" / "steps.csv.gz")]
    law, found = MEGATRON_CORE.peak_law, law_record(peaks)
    assert found["dense"] == pytest.approx({"median": law.median, "log_sd": law.log_sd}, abs=1e-3)
    assert found["experts"] == pytest.approx({"median": law.expert_median, "log_sd": law.expert_log_sd}, abs=1e-3)
    errors = np.abs([peak.error for peak in peaks if peak.has_experts])
    assert np.median(errors) <= 0.025
    covered = left_out_coverage(peaks)
    assert np.mean([covered[peak] for peak in peaks if peak.has_experts]) >= 0.85
