"""Hugging Face nanotron: eager modules, gradients summed in fp32 by a pass of their own, layers dealt out by their cost."""

from __future__ import annotations

from .base import EAGER, Framework, LayerShape, PlanDefaults
from .capabilities import Capabilities
from .memory_options import MemoryOptions
from .peak_law import PeakLaw
from .recognition import by_name


def cost_balanced_split(model: LayerShape, pp: int) -> tuple[int, ...]:
    """Layers per stage when blocks are dealt out by compute, the head counting as one block.

    A stage takes blocks until their running cost exceeds its share of the total. The cost of a block is its matrix
    parameters; embedding and norms are free.

    Source: nanotron, `models/base.py` (`build_model`) and `LlamaForTraining.get_block_compute_costs`.
    """
    layer = 4 * model.n_heads * model.qk_head_dim * model.hidden + 3 * model.ffn_hidden * model.hidden
    total = model.n_layers * layer + model.vocab * model.hidden
    sizes = [0] * pp
    stage = 0
    for n_dealt in range(1, model.n_layers + 1):
        sizes[stage] += 1
        if n_dealt * layer > total * (stage + 1) / pp and stage < pp - 1:
            stage += 1
    return tuple(sizes)


NANOTRON = Framework(
    "nanotron",
    "Hugging Face nanotron",
    EAGER,
    plan_defaults=PlanDefaults(fused_grad_accumulation=False),  # `FP32GradientAccumulator`
    # bf16 gradients beside the fp32 accumulator (parallel/data_parallel, optim/gradient_accumulator.py), gathered inputs
    # recomputed (`tp_recompute_allgather`, its default), SwiGLU and cross entropy as separate eager operations.
    # fragmentation: the value of a grid of 0.05 with the least median error of the peak.
    memory=MemoryOptions(
        model_grad_bytes=2.0, fused_gate=False, logits_peak_bytes=10.0, dropout=False, fragmentation=0.2
    ),
    memory_source="3,682 measured layouts and their peaks in experiments/memory_validation",
    # 1,765 peaks of 5 models; with experts none: Megatron-LM's spread on top.
    peak_law=PeakLaw(1.025, 0.161, 1.025, 0.182),
    memory_margin=0.15,  # of 61 layouts right below it 90 % fit, of all 99 % (experiments/memory_validation)
    capabilities=Capabilities(
        schedules=("1f1b", "gpipe"),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "full"),
        max_cp=1,
        source="nanotron, parallel/pipeline_parallel/engine.py and config/parallelism_config.py",
    ),
    layer_split=cost_balanced_split,
    patterns=by_name(r"nanotron", 10),
)
