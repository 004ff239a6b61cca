"""Fused and eager kernels: bytes by hand count, and what may never happen."""

from dataclasses import replace

import pytest

from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.workload import catalog
from prism_jax.workload.transformer.op_lists import cross_entropy_kernels, norm_kernels, rope_kernels
from prism_jax.workload.transformer.ops import head_ops, layer_ops
from prism_jax.workload.transformer.shard import Shard

LLAMA = catalog.model("llama-2-7b")
PLAN = ParallelPlan(micro_batch=2, global_batch=16, seq_len=4096, dp=8)
EAGER = Software(attention="eager", norm="eager", activation="eager", rope="eager", cross_entropy="eager")
FUSED = Software(attention="flash2", norm="fused", activation="fused", rope="fused", cross_entropy="fused")


def shard(software: Software) -> Shard:
    return Shard.of(LLAMA, replace(PLAN, software=software))


def bytes_of(kernels, name: str, phase: str) -> float:
    return sum(op.hbm_bytes for op in kernels if op.name == name and op.phase == phase)


def test_bytes_of_a_norm_follow_the_operations() -> None:
    n, apart, one = 1000.0, shard(EAGER), shard(FUSED)
    assert bytes_of(norm_kernels("norm", n, one, rms=True), "norm", "F") == 4 * n
    # cast 2+4, square 4+4, mean 4, scale 4+4, cast 4+2, weight 2+2
    assert bytes_of(norm_kernels("norm", n, apart, rms=True), "norm", "F") == (6 + 8 + 4 + 8 + 6 + 4) * n
    assert norm_kernels("norm", n, apart, rms=False) == norm_kernels("norm", n, one, rms=False)


def test_a_compiler_fuses_what_runs_apart() -> None:
    compiled = shard(replace(EAGER, compile=True))
    assert rope_kernels(8.0, compiled) == rope_kernels(8.0, shard(FUSED))
    assert cross_entropy_kernels(8.0, compiled) != cross_entropy_kernels(8.0, shard(FUSED))


@pytest.mark.parametrize("name", ["attention", "norm", "activation", "rope", "cross_entropy"])
def test_fusing_one_thing_saves_bytes_and_changes_no_flops(name: str) -> None:
    plan = replace(PLAN, software=EAGER)
    better = replace(plan, software=replace(EAGER, **{name: getattr(FUSED, name)}))
    before, after = (layer_ops(LLAMA, each, 0) + head_ops(LLAMA, each) for each in (plan, better))
    assert after.column("hbm_bytes").sum() < before.column("hbm_bytes").sum()
    if name != "attention":  # flash attention skips the masked half
        assert after.flops() == before.flops()


def test_a_softmax_apart_moves_more_than_a_fused_one() -> None:
    eager, fused = (
        layer_ops(LLAMA, replace(PLAN, software=replace(EAGER, attention=name)), 0)
        for name in ("eager", "fused_softmax")
    )
    n_score = PLAN.micro_batch * LLAMA.n_heads * PLAN.seq_len**2
    more = sum(
        op.hbm_bytes * sign for table, sign in ((eager, 1), (fused, -1)) for op in table.ops if op.name == "softmax"
    )
    assert more == pytest.approx((12 - 4 + 12 - 6) * n_score)
