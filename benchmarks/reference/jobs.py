"""Jobs and searches of `benchmarks.reference`: a grid of job documents that turns every knob, and five spaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Document = dict[str, Any]

SECTIONS = ("model", "cluster", "variability", "framework")
BASE: dict[str, Any] = {
    "model": "llama-3-8b",
    "cluster": "dgx-h100",
    "plan": {"tp": 2, "pp": 4, "dp": 4, "micro_batch": 1, "global_batch": 64, "seq_len": 4096, "zero_stage": 1},
    "framework": "megatron-core",
}
FLAT = {"tp": 1, "pp": 1, "dp": 16}  # no pipeline
PIPELINES: dict[str, Document] = {
    "gpipe": {"schedule": "gpipe"},
    "1f1b": {"schedule": "1f1b"},
    "interleaved2": {"schedule": "interleaved", "virtual_stages": 2},
    "interleaved4": {"schedule": "interleaved", "virtual_stages": 4},
    "zb_h1": {"schedule": "zb_h1"},
    "zb_h2": {"schedule": "zb_h2"},
    "zb_v": {"schedule": "zb_v", "virtual_stages": 2},
    "dualpipe": {"schedule": "dualpipe"},
}
SHARDINGS: dict[str, Document] = {
    **{f"zero{stage}": {"sharding": "none", "zero_stage": stage} for stage in range(4)},
    "fsdp": {"sharding": "fsdp", "zero_stage": 0},
    "hsdp": {"sharding": "hsdp", "dp_shard": 2, "zero_stage": 0},
}
FSDP: Document = {**FLAT, **SHARDINGS["fsdp"]}
OVERLAPS = {
    "no_overlap": {"dp": False, "tp": False, "pp": False},
    "all_overlap": {"dp": True, "tp": True, "pp": True},
}
FRAMEWORKS = (
    "megatron-core", "megatron-2021", "megatron-deepspeed", "flagscale", "libai", "jax", "paddle", "fsdp", "deepspeed",
    "nanotron", "colossalai", "other",
)  # fmt: skip
CLUSTERS = (
    "dgx-v100", "jean-zay-v100", "dgx-a100", "dgx-a100-40gb", "azure-nd-a100-v4", "aws-p4d", "jean-zay-a100", "a800",
    "pcie-a100", "pcie-l40s", "dgx-h100", "llama3-h100", "aws-p5", "pcie-h100", "h800", "h200", "gh200-alps", "b200",
    "b300", "gb200-nvl72", "gb300-nvl72", "mi300x", "mi325x", "mi355x", "tpu-v4-pod", "tpu-v5e-pod", "tpu-v5p-pod",
    "tpu-v6e-pod", "tpu-v7x-pod", "aurora",
)  # fmt: skip
OWN_CLUSTER = {
    "device": "a100-80gb",
    "node_size": 4,
    "tiers": [
        {"name": "node", "n_devices": 4, "bandwidth": "200 GB/s", "latency": "2 us", "in_switch": True},
        {"name": "fabric", "bandwidth": "100 Gbit/s", "latency": "5 us", "oversubscription": 2},
    ],
}
VARIABILITIES: dict[str, Any] = {
    "none": "none",
    "v100": "v100-longhorn",
    "b200": "b200-default",
    "mi300x": "mi300x-default",
    "doubled": {"preset": "h100-default", "scale": 2.0},
    "families": {
        "gemm": {"gpu": {"kind": "mixture", "bulk_cv": 0.011, "slow_prob": 0.01, "slow_factor": 1.05, "slow_cv": 0.02}},
        "attention": {"gpu": {"kind": "gamma", "cv": 0.02}, "node": 0.01},
        "memory": {"call": {"kind": "student_t", "scale_cv": 0.01, "df": 6.0}},
        "all_reduce": {"regime": 0.03, "call": {"kind": "normal", "cv": 0.01}},
        "step": {"kind": "normal", "cv": 0.002},
    },
    "stalls": {
        "preset": "a100-default",
        "step_ar1": 0.3,
        "stalls": [{"gpu_prob": 1e-5, "mean_fraction": 0.05}, {"step_prob": 0.01, "mean_fraction": 0.1}],
    },
}
OWN_MODEL = {
    "n_layers": 24, "hidden": 2048, "n_heads": 16, "n_kv_heads": 4, "head_dim": 160, "ffn_hidden": 5632, "vocab": 50304,
    "gated": True, "norm": "rms", "position": "none", "qkv_bias": True, "bias": False, "qk_norm": True,
}  # fmt: skip
OWN_MOE = {"n_experts": 16, "top_k": 2, "ffn_hidden": 1408, "n_shared": 2, "n_dense_first": 1, "imbalance": 1.5}


def job(**changes: Any) -> Document:
    """`BASE` with other sections, or without those that are None; all other names are fields of the plan."""
    sections = BASE | {name: changes.pop(name) for name in SECTIONS if name in changes}
    whole = {**sections, "plan": BASE["plan"] | changes}
    return {name: value for name, value in whole.items() if value is not None}


def grid() -> Iterator[tuple[str, Document]]:
    """Ids and documents."""
    for make in (
        schedules, sharding, precision, tensor_parallel, context_parallel, attention, gradients, mixtures, latent,
        embeddings, frameworks, clusters, variabilities, refusals,
    ):  # fmt: skip
        for name, made in make():
            yield f"grid/{make.__name__}/{name}", made


def schedules() -> Iterator[tuple[str, Document]]:
    """Every pipeline schedule; communication hidden or not, other models and layouts, few micro-batches."""
    for name, plan in PIPELINES.items():
        yield name, job(**plan)
        yield f"{name}-no_overlap", job(**plan, overlap=OVERLAPS["no_overlap"], recompute="full")
    for name in ("1f1b", "zb_h1", "zb_v"):
        yield f"{name}-gpt2-xl-fp32", job(model="gpt2-xl", tp=1, dp=2, dtype="fp32", **PIPELINES[name])
    yield "layer_split", job(layer_split=[7, 9, 9, 7])
    yield "pp8-2_micro_batches", job(pp=8, dp=2, global_batch=4, schedule="gpipe")
    yield "pp_within_node", job(axis_order=["pp", "tp", "cp", "dp"])


def sharding() -> Iterator[tuple[str, Document]]:
    """ZeRO stages, FSDP, HSDP; with and without a pipeline, communication hidden or not."""
    for name, plan in SHARDINGS.items():
        for overlap, switches in OVERLAPS.items():
            yield f"{name}-{overlap}", job(**FLAT, **plan, micro_batch=2, overlap=switches)
        yield f"{name}-pipeline", job(**plan, tp=4, pp=2)
    yield "hsdp-nodes", job(tp=1, pp=1, dp=64, sharding="hsdp", dp_shard=8, zero_stage=0)


def precision() -> Iterator[tuple[str, Document]]:
    """Every precision with every recomputation."""
    for dtype in ("bf16", "fp16", "fp8", "fp32"):
        for recompute in ("none", "selective", "full"):
            yield f"{dtype}-{recompute}", job(pp=2, dtype=dtype, recompute=recompute)


def tensor_parallel() -> Iterator[tuple[str, Document]]:
    """With and without sequence parallelism and overlap, within a node and across two."""
    for parallel in (False, True):
        for overlap in (False, True):
            made = job(tp=8, pp=2, dp=2, sequence_parallel=parallel, overlap={"tp": overlap})
            yield f"sequence_{parallel}-overlap_{overlap}", made
    yield "two_nodes", job(tp=16, pp=1, dp=2, sequence_parallel=True)


def context_parallel() -> Iterator[tuple[str, Document]]:
    """Ring attention, beside tp, sharding and experts, and in another order of ranks."""
    long = {"seq_len": 32768, "global_batch": 16}
    yield "cp2", job(**long, dp=2, cp=2, pp=2)
    yield "cp8", job(**long, dp=2, cp=8, pp=1, sequence_parallel=True)
    yield "cp4-fsdp", job(**long, cp=4, tp=1, pp=1, dp=4, **SHARDINGS["fsdp"])
    yield "cp4-innermost", job(**long, dp=2, cp=4, pp=2, axis_order=["cp", "tp", "dp", "pp"])
    yield "cp2-ep4", job(model="mixtral-8x7b", cp=2, ep=4, pp=2)


def attention() -> Iterator[tuple[str, Document]]:
    """Scores written to memory, with every recomputation; a long sequence without."""
    for recompute in ("none", "selective", "full"):
        yield f"unfused-{recompute}", job(attention="unfused", recompute=recompute, pp=2)
    yield "flash-32k", job(tp=8, pp=1, seq_len=32768, global_batch=16)


def gradients() -> Iterator[tuple[str, Document]]:
    """Gradients summed in a pass of their own; small and large buckets."""
    for name in ("zero0", "zero2", "fsdp"):
        yield f"unfused-{name}", job(**FLAT, **SHARDINGS[name], fused_grad_accumulation=False)
    yield "unfused-1f1b", job(fused_grad_accumulation=False)
    for bucket in (5_000_000, 1_000_000_000):
        yield f"bucket-{bucket}", job(grad_bucket=bucket, zero_stage=2)


def mixtures() -> Iterator[tuple[str, Document]]:
    """Mixtures of experts: expert parallelism, shared experts, imbalance, sharding."""
    for ep in (1, 2, 8):
        yield f"mixtral-ep{ep}", job(model="mixtral-8x7b", pp=2, dp=8, ep=ep)
    yield "mixtral-ep4-full", job(model="mixtral-8x7b", ep=4, recompute="full", sequence_parallel=True)
    yield "mixtral-fsdp", job(model="mixtral-8x7b", **FSDP, ep=4)
    yield "qwen3-ep8", job(model="qwen3-30b-a3b", ep=8, dp=8, pp=2, overlap=OVERLAPS["no_overlap"])
    yield "deepseek-moe-ep4", job(model="deepseek-moe-16b", ep=4, tp=1, schedule="zb_h1")
    yield "written_out", job(model={**OWN_MODEL, "moe": OWN_MOE}, ep=4, pp=2)


def latent() -> Iterator[tuple[str, Document]]:
    """Multi-head latent attention, and modules that predict more tokens."""
    lite, v3 = "deepseek-v2-lite", {"model": "deepseek-v3", "cluster": "h800", "tp": 1}
    yield "v2-lite", job(model=lite, **FLAT, ep=8)
    yield "v2-lite-full", job(model=lite, recompute="full", pp=3, ep=2)
    yield "v2-lite-unfused", job(model=lite, attention="unfused", pp=1, ep=4)
    yield "v3-zb_h1-fp8", job(**v3, pp=16, dp=16, ep=16, global_batch=512, dtype="fp8", schedule="zb_h1")
    yield "v3-dualpipe", job(**v3, pp=8, dp=32, ep=32, global_batch=1024, recompute="selective", schedule="dualpipe")


def embeddings() -> Iterator[tuple[str, Document]]:
    """Tied embeddings, on one stage and on two; other positions, norms and biases."""
    yield "gpt2-xl-flat", job(model="gpt2-xl", **FLAT, seq_len=1024)
    yield "gpt2-xl-pp4", job(model="gpt2-xl", tp=1, dp=8, seq_len=1024)
    yield "llama-1b-zb_v", job(model="llama-3.2-1b", **PIPELINES["zb_v"])
    yield "llama-1b-dualpipe", job(model="llama-3.2-1b", **PIPELINES["dualpipe"])
    yield "qwen-0.5b-interleaved", job(model="qwen2.5-0.5b", **PIPELINES["interleaved2"])
    yield "untied-gpt2", job(model={"preset": "gpt2-xl", "tied_embeddings": False}, tp=1, dp=8)
    yield "tied-fsdp", job(model="llama-3.2-3b", **FSDP)
    yield "bloom", job(model="bloom-176b", cluster="jean-zay-a100", tp=4, pp=12, dp=8, global_batch=2048)
    yield "neox", job(model="gpt-neox-20b", cluster="dgx-a100", framework="megatron-deepspeed")
    yield "mpt-hsdp", job(model="mpt-7b", framework="fsdp", **FLAT, **SHARDINGS["hsdp"])
    yield "written_out", job(model=OWN_MODEL)


def frameworks() -> Iterator[tuple[str, Document]]:
    """Every framework, and none stated."""
    for name in FRAMEWORKS:
        yield name, job(framework=name)
    yield "not_stated", job(framework=None)
    for name in ("fsdp", "deepspeed", "jax"):
        yield f"{name}-fsdp", job(framework=name, **FSDP)


def clusters() -> Iterator[tuple[str, Document]]:
    """Every cluster with its own variability; changed ones and one written out."""
    for name in CLUSTERS:
        yield name, job(cluster=name, tp=4, pp=2, dtype="fp16" if "v100" in name else "bf16")
    yield "reference_design", job(cluster={"device": "h200"})
    yield "written_out", job(cluster=OWN_CLUSTER)
    faster = {"preset": "dgx-h100", "device": {"hbm": "96 GiB", "peak": {"bf16": "1200 TFLOP/s"}}}
    yield "faster_device", job(cluster=faster)
    slow = {"preset": "llama3-h100", "tiers": {"pod": {"oversubscription": 4}}}
    yield "oversubscribed", job(cluster=slow, dp=512, global_batch=4096)


def variabilities() -> Iterator[tuple[str, Document]]:
    """Presets, scaled and written out."""
    for name, tree in VARIABILITIES.items():
        yield name, job(variability=tree)
        yield f"{name}-fsdp", job(variability=tree, **FSDP)


def refusals() -> Iterator[tuple[str, Document]]:
    """Jobs that must be refused."""
    yield "tp_does_not_divide_heads", job(tp=3)
    yield "unknown_schedule", job(schedule="2f2b")
    yield "interleaved_once", job(schedule="interleaved")
    yield "unknown_field", job(micro_batchs=2)
    yield "batch_does_not_divide", job(global_batch=63)
    yield "experts_of_a_dense_model", job(ep=2)
    yield "v100_has_no_bf16", job(cluster="dgx-v100")
    yield "unknown_framework", job(framework="megatron")


# The searches: a job, what its space is restricted to, and how it is searched.
TINY_7B = job(model="llama-2-7b", cluster="dgx-a100", framework="fsdp", **FLAT)
SMALL_13B = job(model="llama-2-13b", cluster="dgx-a100", framework="fsdp", tp=1, pp=1, dp=64, global_batch=256)
TINY_MOE = job(model="deepseek-v2-lite", framework=None, tp=1, pp=1, dp=32, global_batch=128)
SearchOf = tuple[Document | str, Document, Document]
SEARCHES: dict[str, SearchOf] = {
    "llama2_7b_16": (TINY_7B, {
        "tp": (1, 2, 4), "pp": (1, 2, 4), "cp": (1, 2), "micro_batch": (1, 2), "virtual_stages": (1, 2),
        "recompute": ("none", "full"), "zero_stage": (0, 1), "overlap_tp": (0,),
    }, {}),
    "llama2_13b_64_hsdp": (SMALL_13B, {
        "tp": (1, 2), "pp": (1,), "cp": (1,), "micro_batch": (1, 2, 4), "sharding": ("fsdp", "hsdp"),
        "dp_shard": (8, 16),
    }, {"objective": "cvar95", "seed": 1}),
    "deepseek_v2_lite_32": (TINY_MOE, {
        "tp": (1, 2), "pp": (1, 2, 4), "cp": (1,), "ep": (2, 4, 8), "micro_batch": (1, 2), "virtual_stages": (1, 2),
        "zero_stage": (1,), "sharding": ("none",), "recompute": ("none", "full"), "overlap_dp": (1,),
        "overlap_tp": (0,),
    }, {"objective": "p50"}),
    "gpt3_175b_1024": ("gpt3_175b_1024", {
        "tp": (4, 8), "pp": (4, 8), "cp": (1,), "micro_batch": (1, 2), "zero_stage": (1,), "sharding": ("none",),
        "schedule": ("1f1b", "interleaved"), "virtual_stages": (1, 2, 3),
    }, {}),
    "gpt3_175b_1024_gradient": ("gpt3_175b_1024", {
        "tp": (4, 8), "pp": (8, 16), "cp": (1,), "micro_batch": (1, 2), "zero_stage": (0, 1),
        "schedule": ("1f1b", "zb_h1", "interleaved"), "virtual_stages": (1, 2, 3),
    }, {"method": "gradient"}),
}  # fmt: skip
