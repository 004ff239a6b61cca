"""How nanotron deals layers out to pipeline stages."""

from __future__ import annotations

from ....workload.transformer.spec import TransformerSpec


def cost_balanced_split(model: TransformerSpec, pp: int) -> tuple[int, ...]:
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
