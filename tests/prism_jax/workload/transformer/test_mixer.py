"""Layers with a state in place of attention: published counts, FLOPs linear in the sequence, blocks against totals."""

from dataclasses import replace

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.cost.memory import memory
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system.catalog import cluster
from prism_jax.workload.base.workload import distinct_runs
from prism_jax.workload.transformer.mixers import MixerSpec
from prism_jax.workload.transformer.sizes import MoESpec
from prism_jax.workload.transformer.spec import TransformerSpec

MAMBA2 = TransformerSpec(
    "mamba2-2.7b",
    64,
    2560,
    80,
    1,
    50288,
    norm="rms",
    position="none",
    bias=False,
    mixer=MixerSpec(80, 64, has_mlp=False),
)
GATED = MixerSpec(
    32, 128, n_groups=16, state=128, kind="gated_linear", pattern=("mixer", "mixer", "mixer", "attention")
)
HYBRID = TransformerSpec(
    "hybrid", 8, 2048, 16, 5632, 32000, n_kv_heads=2, gated=True, norm="rms", position="rope", bias=False, mixer=GATED
)
PLAN = ParallelPlan(micro_batch=2, global_batch=32, seq_len=2048, dp=16)


def test_mamba_2_has_the_published_count() -> None:
    assert MAMBA2.n_params() == 2_702_599_680  # state-spaces/mamba2-2.7b
    assert replace(MAMBA2, n_layers=24, hidden=768, mixer=MixerSpec(24, 64, has_mlp=False), n_heads=24).n_params() == (
        128_989_632  # state-spaces/mamba2-130m
    )


def test_gated_delta_layers_have_the_parts_of_the_published_ones() -> None:
    """Qwen3NextGatedDeltaNet: in_proj_qkvz and in_proj_ba, conv1d, A_log and dt_bias, norm, out_proj."""
    parts = 2048 * (2 * 2048 + 2 * 4096) + 2048 * 64 + 4 * (2 * 2048 + 4096) + 2 * 32 + 128 + 4096 * 2048
    assert GATED.in_params(2048) + GATED.out_params(2048) == parts


@pytest.mark.parametrize("model", [MAMBA2, HYBRID])
@pytest.mark.parametrize("recompute", ["none", "full", "selective"])
def test_blocks_hold_parameters_and_do_the_flops(model: TransformerSpec, recompute: str) -> None:
    plan = replace(PLAN, recompute=recompute)
    runs = distinct_runs(model)
    flops = sum(run.count * model.block(run.kind, plan).kernels.flops() for run in runs) * plan.n_micro_batch * plan.dp
    assert flops == pytest.approx(model.step_flops(plan, recomputed=True), rel=1e-9)
    parts = [(run.count, part) for run in runs for part in model.block(run.kind, plan).parameters]
    total = sum(n * part.count for n, part in parts if not part.shared)
    assert total + model.vocab * model.hidden * (1 if model.tied_embeddings else 0) == model.n_params()


def test_kinds_of_layers_follow_the_pattern() -> None:
    body = [(run.kind, run.count) for run in HYBRID.layout if run.place == "body"]
    assert body == [("gated_linear_dense_layer", 3), ("dense_layer", 1)] * 2
    experts = replace(HYBRID, moe=MoESpec(8, 2, 1024))
    assert {run.kind for run in experts.layout if run.place == "body"} == {"gated_linear_moe_layer", "moe_layer"}


def test_a_state_costs_the_same_per_token_however_long_the_sequence() -> None:
    assert MAMBA2.token_flops(4096).total == MAMBA2.token_flops(65536).total
    assert HYBRID.token_flops(65536).total > HYBRID.token_flops(4096).total
    scores = [replace(HYBRID, mixer=mixer).token_flops(8192).scores for mixer in (GATED, None)]
    assert scores[0] == scores[1] / 4


def test_recomputation_saves_memory() -> None:
    machine = cluster("dgx-a100", 16)
    saved = [
        memory(HYBRID, machine, replace(PLAN, recompute=kind)).stages[0].activations_bytes for kind in ("none", "full")
    ]
    assert saved[1] < 0.5 * saved[0]


def test_what_is_not_modelled_is_refused() -> None:
    assert [problem.field for problem in HYBRID.problems(replace(PLAN, cp=2, recompute="selective_op"))] == [
        "cp",
        "recompute",
    ]
    with pytest.raises(SpecError, match="not modelled together with causal = False"):
        replace(HYBRID, causal=False)
    for changes in ({"kind": "x"}, {"state": 0}, {"pattern": ()}, {"n_groups": 3}):
        with pytest.raises(SpecError, match=f"mixer: .*{next(iter(changes))}"):
            replace(GATED, **changes)  # pyright: ignore[reportArgumentType]
