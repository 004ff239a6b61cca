"""Small models of every kind of decoder layer, and sums over the blocks of a model."""

from dataclasses import replace

from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload.base.kernels import KernelTable
from prism_jax.workload.base.workload import Workload, distinct_runs
from prism_jax.workload.transformer.sizes import MLASpec, MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

GPT = TransformerSpec(name="gpt", n_layers=4, hidden=1024, n_heads=16, ffn_hidden=4096, vocab=51200)
LLAMA = replace(
    GPT, gated=True, norm="rms", position="rope", tied_embeddings=False, bias=False, n_kv_heads=4, ffn_hidden=2816
)
MOE = replace(LLAMA, moe=MoESpec(n_experts=8, top_k=2, ffn_hidden=512, n_shared=1, n_dense_first=1))
MLA = replace(MOE, mla=MLASpec(256, 128, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64), n_kv_heads=0)


def kernels_of(model: Workload, plan: ParallelPlan) -> KernelTable:
    """Of one micro-batch on one device."""
    blocks = [model.block(run.kind, plan) for run in model.layout for _ in range(run.count)]
    return sum((block.kernels for block in blocks), KernelTable(()))


def flops_of_kernels(model: Workload, plan: ParallelPlan) -> float:
    """Of a step on all devices."""
    per_micro_batch = sum(run.count * model.block(run.kind, plan).kernels.flops() for run in distinct_runs(model))
    return per_micro_batch * plan.n_micro_batch * plan.dp * plan.tp


def params_of_blocks(model: Workload, plan: ParallelPlan) -> float:
    """Sum over blocks on one device; a tensor that several share counts once."""
    total, shared = 0.0, {}
    for run in distinct_runs(model):
        for part in model.block(run.kind, plan).parameters:
            if part.shared:
                shared[part.shared] = part.count
            else:
                total += run.count * part.count
    return total + sum(shared.values())
