"""Rows of the Megatron-LM test table as jobs (model, plan) with the peak that torch allocated on the last pipeline stage.

Arguments have Megatron's defaults resolved. A row that the memory model does not describe is left out with a reason.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prism_jax.core.errors import PrismError
from prism_jax.framework.base import MEGATRON, MIB, MemoryOptions
from prism_jax.framework.software import APART, COMPILED_LOSS, FUSED, STREAMS, Software
from prism_jax.plan.fields import CORE_ATTENTION, StateDtypes
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.transformer.sizes import MLASpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

Row = Mapping[str, str]
_NORMS = {"LayerNorm": "layer", "RMSNorm": "rms"}
_POSITIONS = {"learned_absolute": "learned", "rope": "rope", "none": "none"}
_CROSS_ENTROPY = {"native": COMPILED_LOSS, "te": FUSED}
_LEFT_OUT = {
    "linear_attention": "linear attention",
    "hybrid_pattern": "state-space layers",
    "offload": "activations offloaded to the host",
    "hyper_connections": "hyper-connections",
}


@dataclass(frozen=True)
class MegatronRow:
    """One measured job.

    Attributes:
        peak_bytes: highest allocation on the last pipeline stage.
    """

    id: str
    family: str
    device: str
    features: tuple[str, ...]
    model: TransformerSpec
    plan: ParallelPlan
    options: MemoryOptions
    peak_bytes: float


def read_rows(path: Path) -> tuple[list[MegatronRow], Counter[str]]:
    """Rows with a peak that the model describes, and how many were left out for which reason."""
    rows, left_out = list[MegatronRow](), Counter[str]()
    with gzip.open(path, "rt", newline="") as file:
        for record in csv.DictReader(file):
            reason = reason_to_leave_out(record)
            if reason:
                left_out[reason] += 1
                continue
            try:
                rows.append(_row(record))
            except PrismError as error:
                left_out[str(error)] += 1
    return rows, left_out


def reason_to_leave_out(row: Row) -> str:
    """Why the memory model does not describe a row; empty: it does."""
    if not row["mem_peak_bytes"]:
        return "no peak memory"
    if row["model_type"] not in ("gpt", "moe"):
        return f"not a decoder-only transformer: {row['model_type']}"
    if row["optimizer"] != "adam":
        return f"optimizer: {row['optimizer']}"
    return next((reason for column, reason in _LEFT_OUT.items() if row[column] not in ("", "0")), "")


def _row(row: Row) -> MegatronRow:
    return MegatronRow(
        id=row["id"],
        family=row["family"],
        device=row["device"],
        features=tuple(_features(row)),
        model=_model(row),
        plan=_plan(row),
        options=_options(row),
        peak_bytes=float(row["mem_peak_bytes"]),
    )


def _int(row: Row, column: str, default: int = 0) -> int:
    return int(float(row[column])) if row[column] else default


def _is(row: Row, column: str) -> bool:
    return _int(row, column) == 1


def _model(row: Row) -> TransformerSpec:
    position = _POSITIONS[row["positional"]]
    return TransformerSpec(
        name=row["family"],
        n_layers=_int(row, "num_layers"),
        hidden=_int(row, "hidden"),
        n_heads=_int(row, "heads"),
        ffn_hidden=_int(row, "ffn"),
        vocab=_int(row, "vocab_padded"),
        n_kv_heads=_int(row, "kv_heads"),
        head_dim=_int(row, "head_dim"),
        max_seq_len=_int(row, "seq_len"),
        gated=_is(row, "gated_mlp"),
        norm=_NORMS[row["norm"]],
        position=position,
        tied_embeddings=_is(row, "tied_embeddings"),
        bias=_is(row, "bias_linear"),
        qkv_bias=_is(row, "bias_linear") or _is(row, "qkv_bias"),
        qk_norm=_is(row, "qk_layernorm"),
        moe=_moe(row),
        mla=_mla(row),
        n_mtp=_int(row, "mtp_layers"),
    )


def _moe(row: Row) -> MoESpec | None:
    if not row["experts"]:
        return None
    return MoESpec(
        n_experts=_int(row, "experts"),
        top_k=_int(row, "topk"),
        ffn_hidden=_int(row, "moe_ffn"),
        n_shared=1 if _int(row, "shared_expert_ffn") else 0,
        shared_ffn_hidden=_int(row, "shared_expert_ffn"),
        n_dense_first=_int(row, "num_layers") - _int(row, "moe_layers"),
    )


def _mla(row: Row) -> MLASpec | None:
    if not _is(row, "mla"):
        return None
    rope = _int(row, "qk_rope_dim")
    return MLASpec(
        q_lora_rank=_int(row, "q_lora"),
        kv_lora_rank=_int(row, "kv_lora"),
        qk_nope_head_dim=_int(row, "qk_head_dim"),
        qk_rope_head_dim=rope,
        v_head_dim=_int(row, "v_head_dim"),
    )


def _plan(row: Row) -> ParallelPlan:
    tp, ep, etp = _int(row, "tp"), _int(row, "ep", 1), _int(row, "etp", _int(row, "tp"))
    is_sharded = bool(row["fsdp"])
    modules = tuple(row["recompute_modules"].strip("[]").split()) if row["recompute_modules"] else ()
    precision = row["precision"]
    return ParallelPlan(
        micro_batch=_int(row, "micro_batch"),
        global_batch=_int(row, "global_batch"),
        seq_len=_int(row, "seq_len"),
        tp=tp,
        pp=_int(row, "pp"),
        dp=_int(row, "dp"),
        cp=_int(row, "cp"),
        ep=ep,
        etp=etp,
        virtual_stages=_int(row, "vpp", 1),
        layer_split=_layer_split(row),
        schedule="interleaved" if _int(row, "vpp", 1) > 1 else "1f1b",
        sequence_parallel=_is(row, "sequence_parallel"),
        zero_stage=0 if is_sharded else _int(row, "zero_stage"),
        sharding="fsdp" if is_sharded else "none",
        recompute=row["recompute"],
        recompute_modules=modules or (CORE_ATTENTION,),
        dtype="fp8" if "fp8" in precision else precision,
        fp8_recipe=row["fp8_recipe"] or "delayed",
        bf16_layers=2 if _is(row, "first_last_bf16") else None,
        state_dtypes=StateDtypes(
            grad_reduce="bf16" if _is(row, "grad_reduce_bf16") else None, fp8_params=_is(row, "fp8_param_gather")
        ),
        attention="unfused" if _is_unfused(row) else "flash",
        fused_grad_accumulation=_is(row, "grad_accum_fusion"),
        software=Software(
            date=row["commit_date"][:10],
            cross_entropy=_CROSS_ENTROPY.get(row["ce_fusion"]),
            expert_products=STREAMS if _is(row, "moe_grouped_gemm") else APART,
        ),
    )


def _options(row: Row) -> MemoryOptions:
    """What the flags of a row say about what Megatron-LM holds."""
    is_ampere, fits_default = row["device"] == "A100", not _is(row, "deterministic")
    torch_workspace = (
        8.125 * MIB if is_ampere and fits_default else 32 * MIB
    )  # deterministic: CUBLAS_WORKSPACE_CONFIG=:4096:8
    engine_workspace = 0.0 if _is_local(row) else 4 * MIB if is_ampere else 32 * MIB
    n_engine = 3 if _is(row, "tp_comm_overlap") else 1  # a stream of user-buffer overlap has one each (`initialize_ub`)
    return replace(
        MEGATRON,
        dropout=float(row["dropout"] or 0.0) > 0.0,
        workspace_bytes=2 * torch_workspace + n_engine * engine_workspace,
        expert_workspace_bytes=4 * engine_workspace if _is(row, "moe_grouped_gemm") else 0.0,
    )


def _is_local(row: Row) -> bool:
    """Megatron's own layers, without Transformer Engine."""
    return row["transformer_impl"] == "local" or _is(row, "legacy_models")


def _layer_split(row: Row) -> tuple[int, ...]:
    """Layers per chunk from `--pipeline-model-parallel-layout`, or where embedding and loss count as a layer each."""
    n_chunk = _int(row, "pp") * _int(row, "vpp", 1)
    if row["pipeline_layout"]:
        layout = row["pipeline_layout"].replace("\\", "")
        grouped = re.sub(r"\(([^)]*)\)\*(\d+)", lambda found: found[1] * int(found[2]), layout)
        spelled = re.sub(r"(\w)\*(\d+)", lambda found: found[1] * int(found[2]), grouped)
        return tuple(chunk.count("t") for chunk in spelled.split("|"))
    if row["uneven_pipeline"]:
        each = (_int(row, "num_layers") + 2) // n_chunk
        return (each - 1, *[each] * (n_chunk - 2), each - 1)
    return ()


def _is_unfused(row: Row) -> bool:
    """Megatron's own layers know no fused attention; Transformer Engine 1.2 (container 24.01) has no deterministic one."""
    is_old = "pytorch:24.01" in row["container"] and row["env_nondet"] == "0"
    return "unfused" in row["attention_backend"] or _is_local(row) or is_old


def _features(row: Row) -> Iterator[str]:
    yield "experts" if row["experts"] else "dense"
    yield "Megatron's own layers" if _is_local(row) else "Transformer Engine"
    said = {
        "distributed optimizer": _is(row, "dist_optimizer"),
        "FSDP": bool(row["fsdp"]),
        "fp8": "fp8" in row["precision"],
        "fp16": row["precision"] == "fp16",
        "recompute": row["recompute"] != "none",
        "cp": _int(row, "cp") > 1,
        "vpp": _int(row, "vpp", 1) > 1,
        "unfused attention": _is_unfused(row),
        "MLA": _is(row, "mla"),
        "MTP": _int(row, "mtp_layers") > 0,
        "expert tp unlike tp": bool(row["etp"]) and _int(row, "etp") != _int(row, "tp"),
        "CUDA graph": row["cuda_graph"] != "none",
    }
    yield from (feature for feature, is_so in said.items() if is_so)
