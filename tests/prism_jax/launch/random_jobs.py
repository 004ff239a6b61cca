"""Random jobs of decoders with valid plans, drawn from what a framework has arguments for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prism_jax.core.errors import PrismError
from prism_jax.framework.software import Software
from prism_jax.job.job import Job
from prism_jax.plan.fields import StateDtypes
from prism_jax.plan.plan import Overlap, ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.sizes import MLASpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec


class Draws:
    """Draws of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def coin(self, p: float = 0.5) -> bool:
        return bool(self.rng.random() < p)


def megatron_model(d: Draws) -> TransformerSpec:
    """A model of any size that Megatron-LM can state."""
    heads, head_dim, n_layers = d.one(16, 32, 64), d.one(64, 128), d.one(12, 16, 24, 31, 48)
    hidden = heads * head_dim
    bias = d.coin(0.3)
    moe = None
    if d.coin(0.4):
        shared = d.one(0, 0, 1)
        moe = MoESpec(
            d.one(8, 16, 64),
            d.one(1, 2, 6),
            d.one(512, 1408),
            n_shared=shared,
            shared_ffn_hidden=d.one(1024, 2816) if shared else 0,
            router_bias=d.coin(0.3),
            n_dense_first=(first := d.one(0, 0, 1, 3)),
            every=1 if first else d.one(1, 1, 2),
            capacity_factor=d.one(0.0, 0.0, 1.25),
        )
    mla = MLASpec(d.one(0, 768, 1536), 512, 128, 64, 128) if d.coin(0.2) else None
    return TransformerSpec(
        "drawn",
        n_layers,
        hidden,
        heads,
        d.one(4 * hidden, 11008, 14336),
        128 * 8 * d.one(39, 125, 149),
        n_kv_heads=0 if mla else d.one(heads, 8, 4),
        head_dim=0 if mla else head_dim,
        max_seq_len=8192,
        gated=d.coin(),
        norm=d.one("rms", "layer"),
        position=d.one("rope", "learned", "none"),
        tied_embeddings=d.coin(),
        bias=bias,
        qkv_bias=True if bias else d.coin(0.3),
        qk_norm=d.coin(0.3),
        moe=moe,
        mla=mla,
        dropout=d.coin(),
    )


def megatron_plan(d: Draws, model: TransformerSpec) -> ParallelPlan:
    """A plan that Megatron-Core runs, with even or uneven stages; valid or not."""
    tp, pp, cp, dp = d.one(1, 2, 4, 8), d.one(1, 1, 2, 4, 8), d.one(1, 1, 2), d.one(1, 2, 4, 16)
    v = d.one(1, 1, 2, 3) if pp > 1 else 1
    split: tuple[int, ...] = ()
    if pp > 1 and (d.coin() or model.n_layers % (pp * v)):
        split = parts(d, model.n_layers, pp * v)
    micro = d.one(1, 2, 4)
    recompute = d.one("none", "full", "full", "selective")
    method = d.one("uniform", "block") if recompute == "full" else "uniform"
    modules = tuple(name for name in ("core_attn", "layernorm", "mlp", "moe_act") if d.coin()) or ("mlp",)
    dtype = d.one("bf16", "bf16", "fp16", "fp8", "mxfp8", "fp32", "nvfp4")
    precise = StateDtypes(
        d.one("bf16", "fp32"), main_grads="bf16", main_params="fp16", exp_avg="fp8", exp_avg_sq="bf16"
    )
    attention = d.one(None, "eager", "fused_softmax", "flash2", "flash3")
    return ParallelPlan(
        micro,
        micro * dp * pp * d.one(1, 2, 8),
        d.one(2048, 4096, 8192),
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        ep=d.one(1, 2, 4, 8) if model.moe else 1,
        etp=d.one(1, 0) if model.moe else None,
        virtual_stages=v,
        schedule="interleaved" if v > 1 else "1f1b",
        layer_split=split,
        sequence_parallel=tp > 1 and d.coin(),
        zero_stage=d.one(0, 1, 1, 2, 3) if dp > 1 else d.one(0, 1),
        recompute=recompute,
        recompute_method=method,
        recompute_num_layers=d.one(1, 2) if method == "block" else d.one(0, 2) if recompute == "full" else 0,
        recompute_modules=modules if recompute == "selective" else ("core_attn",),
        dtype=dtype,
        fp8_recipe=d.one("delayed", "tensorwise", "blockwise") if dtype == "fp8" else None,
        bf16_layers=d.one(None, 2, 3) if dtype in ("fp8", "nvfp4") else None,
        state_dtypes=d.one(StateDtypes(), StateDtypes("bf16"), StateDtypes("fp32"), precise),
        software=Software(attention=attention, cuda_graphs=d.one(None, "none", "layers", "step")),
        overlap=Overlap(d.coin(), d.coin(0.3), d.coin(0.7) if v > 1 else True),
        axis_order=d.one(("tp", "cp", "dp", "pp"), ("tp", "cp", "dp", "pp"), ("tp", "cp", "pp", "dp")),
        optimizer=d.one("adam", "adamw", "sgd_momentum", "muon"),
        offload_optimizer=d.one(0.0, 0.0, 0.5, 1.0),
        fused_grad_accumulation=d.one(None, False),
    )


PRESETS = ("llama-2-7b", "llama-3-8b", "llama-3-70b", "qwen3-8b", "qwen3-32b", "mixtral-8x7b", "mistral-7b", "gpt2-xl")
OF_TITAN = ("llama-3-8b", "llama-3-70b", "llama-3-405b", "qwen3-4b", "qwen3-8b", "qwen3-30b-a3b", "deepseek-v3")


def known_model(d: Draws) -> TransformerSpec:
    """A model that has a name."""
    return workload(d.one(*PRESETS))  # type: ignore[return-value]


def titan_model(d: Draws) -> TransformerSpec:
    """A model that torchtitan has a flavour of."""
    return workload(d.one(*OF_TITAN))  # type: ignore[return-value]


def deepspeed_plan(d: Draws, model: TransformerSpec) -> ParallelPlan:
    """A plan of ZeRO under the Trainer of Hugging Face; valid or not."""
    dp, micro, stage = d.one(1, 2, 8, 32), d.one(1, 2, 4), d.one(0, 1, 2, 3)
    return ParallelPlan(
        micro,
        micro * dp * d.one(1, 2, 8),
        d.one(2048, 4096),
        tp=d.one(1, 1, 2, 4),
        dp=dp,
        zero_stage=stage,
        recompute=d.one("none", "full"),
        dtype=d.one("bf16", "fp16", "fp32"),
        overlap=Overlap(d.coin(), False, True),
        optimizer=d.one("adamw", "adamw", "sgd", "lion"),
        offload_optimizer=d.one(0.0, 0.0, 1.0),
        offload_parameters=stage == 3 and d.coin(0.3),
        software=Software(attention=d.one(None, "eager", "flash2", "flash3"), compile=d.one(None, True)),
    )


def maxtext_model(d: Draws) -> TransformerSpec:
    """A model of any size that MaxText can state."""
    drawn, is_gpt = megatron_model(d), d.coin(0.2)
    moe = None if drawn.moe is None else MoESpec(
        drawn.moe.n_experts, drawn.moe.top_k, drawn.moe.ffn_hidden, n_shared=drawn.moe.n_shared,
        n_dense_first=drawn.moe.n_dense_first,
    )  # fmt: skip
    return replace(
        drawn,
        norm="layer" if is_gpt else "rms",
        position="learned" if is_gpt else "rope",
        bias=is_gpt,
        qkv_bias=is_gpt,
        max_seq_len=2048,
        moe=None if is_gpt else moe,
        mla=None if is_gpt else drawn.mla,
        dropout=None,
    )


def maxtext_plan(d: Draws, model: TransformerSpec) -> ParallelPlan:
    """A plan of MaxText's mesh; valid or not."""
    pp, dp, sharding = d.one(1, 1, 2, 4), d.one(1, 2, 8, 32), d.one("none", "fsdp", "fsdp", "hsdp")
    ep = min(d.one(1, 2, 4), dp) if model.moe and sharding == "fsdp" else 1
    micro = d.one(1, 2, 4)
    return ParallelPlan(
        micro,
        micro * dp * pp * d.one(1, 2, 8),
        d.one(2048, 4096, 8192),
        tp=d.one(1, 2, 4, 8),
        pp=pp,
        cp=d.one(1, 1, 2) if sharding == "fsdp" and dp > 1 else 1,
        dp=dp,
        ep=ep,
        sharding=sharding,
        dp_shard=d.one(2, 4) if sharding == "hsdp" else 0,
        recompute=d.one("none", "full", "selective_op"),
        dtype=d.one("bf16", "fp16", "fp32", "fp8"),
        optimizer=d.one("adamw", "adam", "sgd", "muon"),
        software=Software(attention=d.one(None, "eager")),
    )


def titan_plan(d: Draws, model: TransformerSpec) -> ParallelPlan:
    """A plan of torchtitan's mesh; valid or not."""
    pp, dp, tp = d.one(1, 1, 2, 4), d.one(1, 2, 8, 32), d.one(1, 2, 4, 8)
    sharding, schedule = d.one("none", "fsdp", "fsdp", "hsdp"), d.one("1f1b", "interleaved", "gpipe", "zb_v")
    micro = d.one(1, 2, 4)
    dtype = d.one("bf16", "bf16", "fp8", "mxfp8", "fp32")
    return ParallelPlan(
        micro,
        micro * dp * pp * d.one(1, 2, 8),
        d.one(2048, 4096, 8192),
        tp=tp,
        pp=pp,
        cp=d.one(1, 1, 2) if sharding == "fsdp" else 1,
        dp=dp,
        ep=(ep := d.one(1, 2, 8) if model.moe else 1),
        etp=(1 if ep > 1 else 0) if model.moe else None,
        schedule=schedule if pp > 1 else "1f1b",
        virtual_stages=2 if pp > 1 and schedule in ("interleaved", "zb_v") else 1,
        sharding=sharding,
        dp_shard=d.one(2, 4) if sharding == "hsdp" else 0,
        sequence_parallel=tp > 1,
        overlap=Overlap(True, tp > 1 and d.coin(), True),
        recompute=d.one("none", "full", "selective_op"),
        dtype=dtype,
        state_dtypes=d.one(StateDtypes(), StateDtypes(main_params="none")),
        offload_parameters=sharding != "none" and dp > 1 and d.coin(0.2),
        software=Software(compile=d.one(None, True, False)),
    )


def parts(d: Draws, total: int, n: int) -> tuple[int, ...]:
    """`n` numbers of 0 and more that add up to `total`, most of them alike."""
    sizes = [total // n] * n
    for _ in range(total - sum(sizes)):
        sizes[int(d.rng.integers(n))] += 1
    for _ in range(d.one(0, 1, 2)):
        one, other = d.rng.integers(n, size=2)
        if sizes[one] > 0:
            sizes[one] -= 1
            sizes[other] += 1
    return tuple(sizes)


def jobs(draw_model: Any, draw_plan: Any, n: int, seed: int, framework: str, clusters: Sequence[str]) -> Iterator[Job]:
    """The first `n` drawn jobs that are valid."""
    d, found = Draws(seed), 0
    while found < n:
        model = draw_model(d)
        plan = draw_plan(d, model)
        try:
            job = Job(model, cluster(d.one(*clusters), plan.n_devices), plan, preset("none"), framework=framework)
            job.check()
        except PrismError:
            continue
        found += 1
        yield replace(job, name=f"drawn {found}")
