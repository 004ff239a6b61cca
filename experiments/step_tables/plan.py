"""From a row of a table of published steps to a ParallelPlan: its software, kernels, recomputation, batches and degrees.

Every blank has a documented default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from experiments.step_tables.dates import date_of_record
from experiments.step_tables.frameworks import recognised
from experiments.step_tables.records import StepRecord, UnsupportedRowError, offloads_of_record
from prism_jax.calibration.open_fields import Odds, usual_recompute
from prism_jax.framework.frameworks import FRAMEWORKS, framework_of
from prism_jax.framework.software import EAGER, FUSED, LINEAR, TYPICAL, VENDOR, Software
from prism_jax.plan.fields import DTYPES
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.schedule.registry import SCHEDULES
from prism_jax.system.catalog import default_cluster


def framework_of_record(record: StepRecord) -> str:
    """Name of a framework in `framework.FRAMEWORKS`; empty where nothing says. How each is recognised stands in `frameworks`.

    A column of its own decides where one of the frameworks is recognised in it.
    """
    stated = record.framework
    if stated.strip().lower() in FRAMEWORKS:
        return stated.strip().lower()
    before_2022 = (
        stated if record.date and record.date < "2023-03" else ""
    )  # before the first release of Megatron-Core its name stands for Megatron-LM of 2021
    own = recognised(notes=before_2022, table=stated, source="", gpu="") if stated else ""
    return own or recognised(notes=record.notes, table=record.table, source=record.source, gpu=record.gpu)


# What a row of a steps table says of the kernels it ran with; fields it says nothing of stay open.

Words = Sequence[tuple[str, Any]]  # regular expressions and what each means; the first found decides

_ATTENTION: Words = (
    (r"fused[\s_-]*softmax|unfused \(megatron", "fused_softmax"),
    (r"unfused|^eager", "eager"),
    (
        r"flash[34]|flash-?attention-?[34]|\bfa[34]\b|cudnn attention|sdpa cudnn|^te\b|transformer ?engine|aiter",
        "flash3",
    ),
    (r"flash1|flash-?attention-1|xformers|triton flash", "flash1"),
    (r"^(?!.*sdpa).*cudnn", "flash3"),
    (r"flash2|flash-?attention-?2|\bfa2\b|flex ?attention|flash-attention varlen|ring flash", "flash2"),
)
_NORM: Words = ((r"^(eager|false|no)\b", EAGER), (r"\w", FUSED))
_COMPILE: Words = ((r"^none|^no\b|^false", False), (r"^unknown", None), (r"\w", True))
_GRAPHS: Words = ((r"^(no|none|false)\b", "none"), (r"sink|full|step|iteration", "step"), (r"\w", "layers"))
_ROPE: Words = ((r"fused_rope", FUSED),)
_CROSS_ENTROPY: Words = ((r"fused_cross_entropy|fused_linear_cross_entropy|chunked_cross_entropy", FUSED),)
_ACTIVATION: Words = ((r"fused_mlp|fused_dense|fused_swiglu", FUSED),)
_DISPATCHER: Words = (
    (r"hybrid-?ep", "hybridep"),
    (r"deep-?ep", "deepep"),
    (r"dispatcher a2a|all-?to-?all dispatcher", "alltoall"),
    (r"all-?gather dispatcher", "allgather"),
)
_ETP = re.compile(r"\bETP (\d{1,6})\b|expert TP follows attention TP")
# Results of those who make the device, or who submit its benchmarks with them.
_VENDORS = re.compile(
    r"mlcommons|mlperf|nvidia|nemotron|megatron-moe|2104\.04473|2205\.05198|1909\.08053|2201\.11990|maxtext|tpu-recipes|amd-agi|intel\.com|habana|neuron",
    re.IGNORECASE,
)
# Throughput tables of MosaicML run the Triton port of FlashAttention 1: `attn_impl` is triton in their script of 2023.
_TRITON = re.compile(r"mosaicml/(?:llm-foundry|examples)")
_KERNELS_IN_NOTES = re.compile(r"\bFA[234]\b|\bflash-?attention-?[234]\b", re.IGNORECASE)  # where no column names them
_LIGER = re.compile(r"\bliger\b", re.IGNORECASE)  # with its loss, as `apply_liger_kernel_to_*` puts it in
# A post that compiles all of its models; the notes of one of its tables alone repeat it. Added in sight of its rows.
_COMPILED_BY_SOURCE = re.compile(r"float8 \+ FSDP2")
_COMPILED_IN_NOTES = re.compile(r"\btorch\.?compile\b(?! (off|disabled|=? ?false))", re.IGNORECASE)


def software_of_record(record: StepRecord) -> Software:
    """Kernels, compilation, graphs and date as the row states them."""
    compiled = _meaning(_COMPILE, record.compile)
    if compiled is None and not record.compile:
        compiled = bool(_COMPILED_IN_NOTES.search(record.notes) or _COMPILED_BY_SOURCE.search(record.source)) or None
    named = record.attention_kernel or " ".join(_KERNELS_IN_NOTES.findall(record.notes))
    return Software(
        attention=_meaning(_ATTENTION, named) or ("flash1" if _TRITON.search(record.source) else None),
        norm=_meaning(_NORM, record.norm_fused),
        activation=_meaning(_ACTIVATION, record.features),
        rope=_meaning(_ROPE, record.features),
        cross_entropy=_meaning(_CROSS_ENTROPY, record.features) or (LINEAR if _LIGER.search(record.notes) else None),
        compile=compiled,
        cuda_graphs=_meaning(_GRAPHS, record.cuda_graphs),
        tuning=VENDOR if (record.vendor == "yes" if record.vendor else _VENDORS.search(record.source)) else TYPICAL,
        date=date_of_record(record),
        dispatcher=_meaning(_DISPATCHER, f"{record.features} {record.notes}"),
    )


def _meaning(words: Words, text: str) -> Any:
    return next((value for pattern, value in words if re.search(pattern, text, re.IGNORECASE)), None)


# What a row of a steps table recomputes in the backward pass: its own column, corrected by what its notes say or
# count.

_WORDS = (
    (r"activation checkpointing=(full ac|true)\b|recompute modules: full\b|full (activation )?recompute", "full"),
    (r"activation checkpointing=(no ac|false)\b|recompute modules: -", "none"),
    (r"(activation|gradient) checkpointing on\b", "full"),
    (r"\bper-op selective ac\b", "selective_op"),
)
STATED = ("none", "selective", "full")  # what the column says where it says something
_HFU = re.compile(r"\bHFU (\d{1,12}(?:\.\d{1,12})?)")
_MODULES = re.compile(r"recompute modules:?\s{0,9}(\[[^\]]{0,200}\]|[\w, ]{1,200})", re.IGNORECASE)
# Modules whose forward pass is memory-bound or a few per cent of a layer: running them again costs next to nothing.
_CHEAP = {"norm", "layernorm", "act", "moe_act", "mla_up_proj"}
# Recomputing every layer adds a forward pass to forward and backward: HFU/MFU = 4/3; one layer's attention core adds 2 to 5%.
_FULL_RATIO, _NONE_RATIO = 1.2, 1.015


def recompute_of_record(record: StepRecord) -> str:
    """`none`, `selective`, `selective_op` or `full`.

    Notes:
        Words of the notes decide first, then the ratio of HFU to MFU where both are given, then the column. Selective
        recomputation of nothing but norms, activation functions and the up-projection of latent attention counts as none.
        What is unknown is none, on TPU full, which is MaxText's default (`remat_policy: full`); see `open_recompute`.
    """
    for pattern, kind in _WORDS:
        if re.search(pattern, record.notes, re.IGNORECASE):
            return kind
    ratio = _hfu_over_mfu(record)
    if ratio is not None:
        return "full" if ratio > _FULL_RATIO else "none" if ratio < _NONE_RATIO else "selective"
    if record.recompute == "selective" and _recomputes_only_cheap(record.notes):
        return "none"
    if record.recompute in STATED:
        return record.recompute
    return "full" if _is_tpu(record) else usual_recompute(framework_of_record(record))[0][0]


def open_recompute(record: StepRecord) -> Odds:
    """What it may be where the row says nothing, most likely first; empty where something is said, or nothing else is likely.

    Notes:
        On TPU, and where the source's rates fix it, it is taken as known.
    """
    is_said = any(re.search(pattern, record.notes, re.IGNORECASE) for pattern, _ in _WORDS)
    if is_said or record.recompute in STATED or _is_tpu(record) or _hfu_over_mfu(record) is not None:
        return ()
    odds = usual_recompute(framework_of_record(record))
    return odds if len(odds) > 1 else ()


def _is_tpu(record: StepRecord) -> bool:
    return record.gpu.lower().startswith("tpu")


def _hfu_over_mfu(record: StepRecord) -> float | None:
    found = _HFU.search(record.notes)
    if not found or not record.mfu:
        return None
    hfu = float(found[1])
    return (hfu / 100.0 if hfu > 1.5 else hfu) / record.mfu  # sources print either per cent or fractions


def _recomputes_only_cheap(notes: str) -> bool:
    found = _MODULES.search(notes)
    modules = set(re.findall(r"[a-z_]+", found[1])) if found else set()
    return bool(modules) and modules <= _CHEAP


# Micro-batch and global batch, in sequences, of a row of a steps table, from its columns or from words of its notes.

_TOKENS = re.compile(
    r"\b(\d{1,12}(?:\.\d{1,12})?)\s{0,9}M[ -]tokens?\b(?:\s{0,9}(?:/|per)\s{0,9}|\s{1,9})batch", re.IGNORECASE
)
_MEBI = 2**20  # "16M tokens" of a batch that is a power of two of sequences: 2048 x 8192
_PER_REPLICA = re.compile(r"\bbatch per DP (\d{1,9})\b", re.IGNORECASE)
_ACCUMULATION = re.compile(r"\b(?:GAS|GA|grad_accum|gradient accumulation) (\d{1,9})\b", re.IGNORECASE)


def batches_of_record(record: StepRecord, dp: int, seq_len: int) -> tuple[int, int]:
    """Micro-batch and global batch in sequences.

    Notes:
        A blank micro-batch is 1, on TPU all of a chip's sequences (MaxText accumulates no gradients by default). A blank
        global batch is read from the notes (tokens per batch, batch per replica, accumulation steps), else one micro-batch
        per replica.

    Raises:
        UnsupportedRowError: neither is stated, or the global batch is no multiple of dp * micro-batch.
    """
    global_batch = record.global_batch or noted_global_batch(record, dp, seq_len)
    if global_batch is None and record.micro_batch is None:
        raise UnsupportedRowError("batch not stated")
    micro_batch = record.micro_batch or _default_micro_batch(record, dp, global_batch)
    global_batch = global_batch or micro_batch * dp
    if global_batch % (dp * micro_batch):
        raise UnsupportedRowError("global batch is no multiple of dp * micro-batch")
    return micro_batch, global_batch


def _default_micro_batch(record: StepRecord, dp: int, global_batch: int | None) -> int:
    if not record.gpu.lower().startswith("tpu") or global_batch is None:
        return 1
    if global_batch % dp:
        raise UnsupportedRowError("parallel degrees not published")  # fewer sequences than chips need another axis
    return global_batch // dp


def noted_global_batch(record: StepRecord, dp: int, seq_len: int) -> int | None:
    """Sequences of a step by the words of the notes; None if they say nothing."""
    tokens = _TOKENS.search(record.notes)
    if tokens:
        return round(float(tokens[1]) * _MEBI / seq_len)
    per_replica = _PER_REPLICA.search(record.notes)
    if per_replica:
        return int(per_replica[1]) * dp
    steps = _ACCUMULATION.search(record.notes)
    return int(steps[1]) * record.micro_batch * dp if steps and record.micro_batch else None


# From a row of a steps table to a ParallelPlan; every blank has a documented default.

_ARXIV = re.compile(r"\b(\d{4})\.\d{5}")
_FLASH_ATTENTION_YYMM = 2206  # FlashAttention, arXiv 2205.14135, was published at the end of May 2022
# Sources without an arXiv number whose code had no FlashAttention (2021-22; Megatron-DeepSpeed made it an option in 2023).
_UNFUSED_SOURCES = re.compile(r"bigscience|vTrain|libai|sailor|2022 post|GLM-130B|Azure blog", re.IGNORECASE)
# Megatron-Core recipes: sequence parallelism with tp > 1 and the distributed optimizer are on unless stated.
_MEGATRON_CORE = re.compile(r"NVIDIA|mlcommons|Megatron-MoE|Nemotron|SimuMax|Primus", re.IGNORECASE)
_NVIDIA_RECIPES = re.compile(r"NVIDIA|mlcommons|Nemotron", re.IGNORECASE)
_DTYPES = {name: name for name in DTYPES} | {"amp": "fp16"}
_ZERO = {"zero1": 1, "zero2": 2, "zero3": 3}
_NODE_SIZE = 8
_FEW_PER_STAGE = 3  # micro-batches per stage
_SHARDED = ("fsdp", "hsdp", "zero3")
_SLICES = re.compile(r"\b([1-9]\d{0,6}) slice\(s\)")
_INTERLEAVED = re.compile(r"\binterleaved\b", re.IGNORECASE)
_DDP_BUCKET = re.compile(r"DDP bucket (\d{1,12}(?:\.\d{1,12})?) MB")
_LIST = re.compile(r"\[( ?\d{1,6}(?: ?, ?\d{1,6}){0,999} ?)\]")
_LAYER_SPLIT = re.compile(r"layer split \[( ?\d{1,6}(?: ?, ?\d{1,6}){0,999} ?)\]")


def plan_of_record(record: StepRecord) -> ParallelPlan:
    """The parallel plan of a row.

    Notes:
        Blank: cp, ep, vpp 1; tp and pp 1 where parameters are sharded (fsdp, hsdp, zero3) and on TPU; dp from the device
        count; dtype bf16, on V100 fp16; sequence parallelism and ZeRO-1 as Megatron-Core recipes have them in sources that
        use it, else off. On TPU parameters are sharded over the chips of a slice and slices are replicas (MaxText's
        `ici_fsdp_parallelism: -1`, `dcn_data_parallelism: -1`). Batches: see `steps_batch`; recomputation: `steps_recompute`.
        vpp > 1 means the interleaved schedule, which needs at least pp micro-batches: with fewer, vpp is taken as unknown.
        Tensor parallel communication overlaps as NVIDIA's recipes have it; hand-overs between stages run beside compute in
        interleaved schedules only (Megatron-LM's `--overlap-p2p-communication` asks for one).

    Raises:
        UnsupportedRowError: degrees, sequence length or batch cannot be known, or a dtype is not modelled.
    """
    seq_len = _known(record.seq_len, "sequence length not stated")
    tp, pp = (_degree(record, degree) for degree in (record.tp, record.pp))
    cp = record.cp or 1
    dp = _dp(record, tp * pp * cp)
    micro_batch, global_batch = batches_of_record(record, dp, seq_len)
    virtual_stages = _virtual_stages(record, pp, global_batch // (dp * micro_batch))
    sharding, dp_shard = _sharding(record, dp, pp)
    offloads = offloads_of_record(record)
    return ParallelPlan(
        micro_batch=micro_batch,
        global_batch=global_batch,
        seq_len=seq_len,
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=_ep(record, tp * dp * cp),
        etp=_etp(record),
        virtual_stages=virtual_stages,
        schedule=_schedule(record, pp, virtual_stages),
        sequence_parallel=_sequence_parallel(record, tp),
        zero_stage=_zero_stage(record, dp, pp),
        sharding=sharding,
        dp_shard=dp_shard,
        recompute=recompute_of_record(record),
        dtype=_dtype(record),
        bf16_layers=_bf16_layers(record),
        attention="unfused" if is_before_flash_attention(record.source, record.gpu) else "flash",
        software=software_of_record(record),
        overlap=Overlap(tp=_overlaps_tp(record, tp), pp=virtual_stages > 1),
        layer_split=_layer_split(record, pp * virtual_stages),
        fused_grad_accumulation=_fuses_accumulation(record),
        grad_bucket=_grad_bucket(record),
        offload_optimizer="offload_optimizer" in offloads,
        offload_parameters="offload_parameters" in offloads,
        offload_activations="offload_activations" in offloads,
    )


def is_before_flash_attention(source: str, gpu: str = "") -> bool:
    """The source measured attention as separate kernels: papers before 2206, Megatron-LM's A100 notes of 2021, and others."""
    found = _ARXIV.search(source)
    if found:
        return int(found[1]) < _FLASH_ATTENTION_YYMM
    return bool(_UNFUSED_SOURCES.search(source)) or (source == "NVIDIA/Megatron-LM" and "A100" in gpu)


def _known(value: int | None, reason: str) -> int:
    if value is None:
        raise UnsupportedRowError(reason)
    return value


def _degree(record: StepRecord, stated: int | None) -> int:
    """Of tp or pp."""
    if stated is None and not _needs_no_degrees(record):
        raise UnsupportedRowError("parallel degrees not published")
    return stated or 1


def states_degrees(record: StepRecord) -> bool:
    """Whether tp and pp are known."""
    return _needs_no_degrees(record) or (record.tp is not None and record.pp is not None)


def _needs_no_degrees(record: StepRecord) -> bool:
    """Parameters are sharded, and the notes do not speak of a degree that they do not give; or a TPU."""
    is_sharded = record.sharding in _SHARDED and not re.search(r"tensor parallel|pipeline parallel", record.notes)
    return is_sharded or _is_tpu(record)


def _dp(record: StepRecord, n_others: int) -> int:
    n_gpus = _known(record.n_gpus, "number of devices not stated")
    dp = record.dp or n_gpus // n_others
    if dp * n_others != n_gpus:
        raise UnsupportedRowError("degrees do not multiply to the number of devices")
    return dp


def _schedule(record: StepRecord, pp: int, virtual_stages: int) -> str:
    """As a column names it, where that takes as many chunks; else by their number."""
    if pp > 1 and virtual_stages == 1 and record.schedule in SCHEDULES and record.schedule != "interleaved":
        return record.schedule
    return "interleaved" if virtual_stages > 1 else "1f1b"


def _virtual_stages(record: StepRecord, pp: int, n_micro_batch: int) -> int:
    is_interleaved = (
        record.schedule == "interleaved"
        or _INTERLEAVED.search(record.notes)
        or _needs_interleaving(record, pp, n_micro_batch)
    )
    stated = record.vpp or (_one_layer_chunks(record, pp) if is_interleaved else 1)
    return stated if pp > 1 and n_micro_batch >= pp else 1


def _needs_interleaving(record: StepRecord, pp: int, n_micro_batch: int) -> bool:
    """A depth that nobody states, where plain 1F1B would idle a third of the step, in software that can interleave."""
    if record.schedule in SCHEDULES:
        return False
    known = framework_of(framework_of_record(record)).capabilities.schedules
    able = known is None or "interleaved" in known
    return record.vpp is None and able and n_micro_batch < _FEW_PER_STAGE * pp


def _one_layer_chunks(record: StepRecord, pp: int) -> int:
    """What an interleaved schedule of unknown depth is taken for: NVIDIA's recipes mostly cut a stage into single layers."""
    layers = record.n_layers or 0
    cut = layers if layers % pp == 0 else layers + 2  # embedding and head may stand for a layer each
    return cut // pp if layers and cut % pp == 0 else 1


def _sequence_parallel(record: StepRecord, tp: int) -> bool:
    if record.sequence_parallel is not None:
        return record.sequence_parallel and tp > 1
    return (
        tp > 1
        and bool(_MEGATRON_CORE.search(record.source))
        and not is_before_flash_attention(record.source, record.gpu)
    )


def _overlaps_tp(record: StepRecord, tp: int) -> bool:
    """NVIDIA's recipes and the MLPerf submissions on its software set `tp_comm_overlap`; it needs sequence parallelism."""
    is_recipe = _NVIDIA_RECIPES.search(record.source) and framework_of_record(record) == "megatron-core"
    return bool(is_recipe) and _sequence_parallel(record, tp)


def _zero_stage(record: StepRecord, dp: int, pp: int) -> int:
    if record.zero_stage is None and record.sharding == "fsdp" and pp > 1:
        return 2
    if _is_tpu(record):
        return 0
    if record.zero_stage is not None:
        return record.zero_stage
    if record.sharding:
        return _ZERO.get(record.sharding, 0)
    is_megatron_core = _MEGATRON_CORE.search(record.source) and not is_before_flash_attention(record.source, record.gpu)
    return 1 if dp > 1 and is_megatron_core else 0


def _sharding(record: StepRecord, dp: int, pp: int) -> tuple[str, int]:
    """How parameters are sharded and, for hsdp, over how many ranks.

    FSDP under a pipeline keeps the gathered parameters between micro-batches (arXiv 2407.21783, section 3.3.2; the default
    of `reshard_after_forward` in torchtitan), which is ZeRO-2.
    """
    if record.sharding == "fsdp" and pp > 1:
        return "none", 0
    if _is_tpu(record) and not record.sharding:
        return _in_slices(record, dp)
    if record.sharding == "hsdp":
        return "hsdp", _hsdp_group(record, dp)
    return ("fsdp" if record.sharding == "fsdp" else "none"), 0


def _hsdp_group(record: StepRecord, dp: int) -> int:
    """One node, unless it does not divide dp."""
    node = record.gpus_per_node or _NODE_SIZE
    return node if dp % node == 0 else dp


def _in_slices(record: StepRecord, dp: int) -> tuple[str, int]:
    """Over the chips of one slice: as many slices as the notes say, and at least as many as the interconnect's reach needs."""
    found = _SLICES.search(record.notes)
    group = min(max(1, dp // int(found[1])) if found else dp, default_cluster(record.gpu, dp).tiers[0].n_devices)
    return ("fsdp", 0) if group == dp or dp % group else ("hsdp", group)


def _dtype(record: StepRecord) -> str:
    if not record.precision:
        if "fp32 by default" in record.notes:
            return "fp32"
        return "fp16" if "V100" in record.gpu else "bf16"
    if record.precision not in _DTYPES:
        raise UnsupportedRowError(f"precision {record.precision} is not modelled")
    return _DTYPES[record.precision]


def _bf16_layers(record: StepRecord) -> int | None:
    """Megatron-Bridge's recipe `bf16_with_nvfp4_mixed` keeps no layer in 16 bits."""
    return 0 if record.precision == "nvfp4" and "Megatron-Bridge" in record.source else None


def _ep(record: StepRecord, n_ranks: int) -> int:
    """Expert parallelism over the ranks of a stage."""
    ep = record.ep or 1
    if n_ranks % (ep * (_etp(record) or 1)):
        raise UnsupportedRowError("ep * etp does not divide tp * dp * cp")
    return ep


def _etp(record: StepRecord) -> int | None:
    """Ranks that an expert is split over, where a column or the notes say it; 0: as tp."""
    if record.etp is not None:
        return record.etp
    found = _ETP.search(record.notes)
    return int(found[1] or 0) if found else None


def _fuses_accumulation(record: StepRecord) -> bool:
    """Unless the row says that gradients are added up in fp32 by code that does so in a pass of its own."""
    if "fp32 grad accumulation True" not in record.notes:
        return True
    return framework_of(framework_of_record(record)).plan_defaults.fused_grad_accumulation


def _grad_bucket(record: StepRecord) -> int | None:
    """Elements of a bucket of PyTorch's DDP, where the notes give its bytes; gradients are reduced in fp32."""
    found = _DDP_BUCKET.search(record.notes)
    return max(1, int(float(found[1]) * 2**20 / 4)) if found else None


def _layer_split(record: StepRecord, n_chunk: int) -> tuple[int, ...]:
    """Layers per stage from a column or the notes, less the embedding and the head that some sources count as layers."""
    found = _LIST.search(record.layer_split) or _LAYER_SPLIT.search(record.notes)
    if n_chunk == 1:
        return ()
    if "hold one layer fewer" in record.layer_split:
        each = ((record.n_layers or 0) + 2) // n_chunk
        sizes = [each - 1, *[each] * (n_chunk - 2), each - 1]
        return tuple(sizes) if min(sizes) > 0 and sum(sizes) == record.n_layers else ()
    if not found:
        return ()
    sizes = [int(size) for size in found[1].split(",")]
    if "pseudo-layers" in record.notes:
        sizes[0] -= 1
        sizes[-1] -= 1
    return tuple(sizes) if len(sizes) == n_chunk and sum(sizes) == record.n_layers else ()
