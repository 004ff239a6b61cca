"""Steps of four models on three meshes, from `examples/capture/jax_transformer.py`: functions to be captured."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples" / "capture"))

from jax_transformer import Model, build  # pyright: ignore[reportMissingImports]

MODELS = {  # vocabulary of GPT-2 and BERT padded to a multiple of 64, as everybody does
    "gpt2": (Model(12, 768, 12, 12, 3072, 50304, gated=False), 1024),
    "llama-2-7b": (Model(32, 4096, 32, 32, 11008, 32000), 4096),
    "mixtral-8x7b": (Model(32, 4096, 32, 8, 14336, 32000, n_experts=8), 4096),
    "bert-large": (Model(24, 1024, 16, 16, 4096, 30528, gated=False, causal=False), 512),
}
MESHES = {"dp8": {"dp": 8}, "tp4": {"tp": 4}, "fsdp8": {"fsdp": 8}}
PER_RANK = 2  # sequences


def _step(model: str, mesh: str, again: bool) -> tuple[Any, Any]:
    sizes, seq_len = MODELS[model]
    along = MESHES[mesh]
    batch = PER_RANK * along.get("dp", 1) * along.get("fsdp", 1)
    return build(sizes, **along, batch=batch, seq_len=seq_len, again=again)


def name_of(model: str, mesh: str, again: bool = False) -> str:
    """The function of a case."""
    return f"{model}_{mesh}{'_again' if again else ''}".replace("-", "_")


for _model in MODELS:
    for _mesh in MESHES:
        for _again in (False, True):
            globals()[name_of(_model, _mesh, _again)] = partial(_step, _model, _mesh, _again)
