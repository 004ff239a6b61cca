"""From a row of a steps table to a ParallelPlan; every blank has a documented default."""

from __future__ import annotations

import re

from ..plan import Overlap, ParallelPlan
from .steps_framework import framework_of_record
from .steps_model import UnsupportedRowError
from .steps_record import StepRecord

_ARXIV = re.compile(r"\b(\d{4})\.\d{5}")
_FLASH_ATTENTION_YYMM = 2206  # FlashAttention, arXiv 2205.14135, was published at the end of May 2022
# Sources without an arXiv number whose code had no FlashAttention (2021-22; Megatron-DeepSpeed made it an option in 2023).
_UNFUSED_SOURCES = re.compile(r"bigscience|vTrain|libai|sailor|2022 post|GLM-130B|Azure blog", re.IGNORECASE)
# Megatron-Core recipes: sequence parallelism with tp > 1 and the distributed optimizer are on unless stated.
_MEGATRON_CORE = re.compile(r"NVIDIA|mlcommons|Megatron-MoE|Nemotron|SimuMax|Primus", re.IGNORECASE)
_NVIDIA_RECIPES = re.compile(r"NVIDIA|mlcommons", re.IGNORECASE)
_DTYPES = {"bf16": "bf16", "fp16": "fp16", "amp": "fp16", "fp32": "fp32", "fp8": "fp8", "mxfp8": "fp8"}
_ZERO = {"zero1": 1, "zero2": 2, "zero3": 3}
_NODE_SIZE = 8
_LAYER_SPLIT = re.compile(r"layer split \[([\d, ]+)\]")


def plan_of_record(record: StepRecord) -> ParallelPlan:
    """The parallel plan of a row.

    Notes:
        Blank: cp, ep, vpp 1; dp from the device count; recompute none (also "unknown"); dtype bf16, on V100 fp16;
        micro-batch 1; global batch dp x micro-batch; sequence parallelism and ZeRO-1 as Megatron-Core recipes have them
        in sources that use it, else off. vpp > 1 means the interleaved schedule, which needs at least pp micro-batches:
        with fewer, vpp is taken as unknown. Tensor parallel communication overlaps as NVIDIA's recipes have it.

    Raises:
        UnsupportedRowError: degrees, sequence length or batch cannot be known, or a dtype or training mode is not modelled.
    """
    _refuse_other_training(record)
    seq_len = _known(record.seq_len, "sequence length not stated")
    tp, pp = (_known(degree, "parallel degrees not published") for degree in (record.tp, record.pp))
    cp = record.cp or 1
    dp = _dp(record, tp * pp * cp)
    micro_batch, global_batch = _batches(record, dp)
    virtual_stages = _virtual_stages(record, pp, global_batch // (dp * micro_batch))
    sharding = record.sharding if record.sharding in ("fsdp", "hsdp") else "none"
    return ParallelPlan(
        micro_batch=micro_batch,
        global_batch=global_batch,
        seq_len=seq_len,
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=record.ep or 1,
        virtual_stages=virtual_stages,
        schedule="interleaved" if virtual_stages > 1 else "1f1b",
        sequence_parallel=_sequence_parallel(record, tp),
        zero_stage=_zero_stage(record, dp),
        sharding=sharding,
        dp_shard=_hsdp_group(record, dp) if sharding == "hsdp" else 0,
        recompute=record.recompute if record.recompute in ("selective", "full") else "none",
        dtype=_dtype(record),
        attention="unfused" if is_before_flash_attention(record.source, record.gpu) else "flash",
        overlap=Overlap(tp=_overlaps_tp(record, tp)),
        layer_split=_layer_split(record, pp * virtual_stages),
    )


def is_before_flash_attention(source: str, gpu: str = "") -> bool:
    """The source measured attention as separate kernels: papers before 2206, Megatron-LM's A100 notes of 2021, and others."""
    found = _ARXIV.search(source)
    if found:
        return int(found[1]) < _FLASH_ATTENTION_YYMM
    return bool(_UNFUSED_SOURCES.search(source)) or (source == "NVIDIA/Megatron-LM" and "A100" in gpu)


def _refuse_other_training(record: StepRecord) -> None:
    if "lora" in record.model_name.lower():
        raise UnsupportedRowError("LoRA fine-tuning")
    if re.search(r"off-?load", record.notes, re.IGNORECASE):
        raise UnsupportedRowError("offload to the host")


def _known(value: int | None, reason: str) -> int:
    if value is None:
        raise UnsupportedRowError(reason)
    return value


def _dp(record: StepRecord, n_others: int) -> int:
    n_gpus = _known(record.n_gpus, "number of devices not stated")
    dp = record.dp or n_gpus // n_others
    if dp * n_others != n_gpus:
        raise UnsupportedRowError("degrees do not multiply to the number of devices")
    return dp


def _batches(record: StepRecord, dp: int) -> tuple[int, int]:
    if record.global_batch is None and record.micro_batch is None:
        raise UnsupportedRowError("batch not stated")
    micro_batch = record.micro_batch or 1
    global_batch = record.global_batch or micro_batch * dp
    if global_batch % (dp * micro_batch):
        raise UnsupportedRowError("global batch is no multiple of dp * micro-batch")
    return micro_batch, global_batch


def _virtual_stages(record: StepRecord, pp: int, n_micro_batch: int) -> int:
    stated = record.vpp or 1
    return stated if pp > 1 and n_micro_batch >= pp else 1


def _sequence_parallel(record: StepRecord, tp: int) -> bool:
    if record.sequence_parallel is not None:
        return record.sequence_parallel and tp > 1
    return (
        tp > 1
        and bool(_MEGATRON_CORE.search(record.source))
        and not is_before_flash_attention(record.source, record.gpu)
    )


def _overlaps_tp(record: StepRecord, tp: int) -> bool:
    """NVIDIA's recipes and the MLPerf submissions on its software set `tp_comm_overlap`, which needs sequence parallelism."""
    is_recipe = _NVIDIA_RECIPES.search(record.source) and framework_of_record(record) == "megatron-core"
    return bool(is_recipe) and _sequence_parallel(record, tp)


def _zero_stage(record: StepRecord, dp: int) -> int:
    if record.zero_stage is not None:
        return record.zero_stage
    if record.sharding:
        return _ZERO.get(record.sharding, 0)
    is_megatron_core = _MEGATRON_CORE.search(record.source) and not is_before_flash_attention(record.source, record.gpu)
    return 1 if dp > 1 and is_megatron_core else 0


def _hsdp_group(record: StepRecord, dp: int) -> int:
    """One node, unless it does not divide dp."""
    node = record.gpus_per_node or _NODE_SIZE
    return node if dp % node == 0 else dp


def _dtype(record: StepRecord) -> str:
    if not record.precision:
        if "fp32 by default" in record.notes:
            return "fp32"
        return "fp16" if "V100" in record.gpu else "bf16"
    if record.precision not in _DTYPES:
        raise UnsupportedRowError(f"precision {record.precision} is not modelled")
    return _DTYPES[record.precision]


def _layer_split(record: StepRecord, n_chunk: int) -> tuple[int, ...]:
    """Layers per stage from the notes, less the embedding and the head that some sources count as layers."""
    found = _LAYER_SPLIT.search(record.notes)
    if not found or n_chunk == 1:
        return ()
    sizes = [int(size) for size in found[1].split(",")]
    if "pseudo-layers" in record.notes:
        sizes[0] -= 1
        sizes[-1] -= 1
    return tuple(sizes) if len(sizes) == n_chunk and sum(sizes) == record.n_layers else ()
