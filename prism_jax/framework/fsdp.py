"""PyTorch's own fully sharded data parallelism: modules as written, whatever trainer runs them."""

from __future__ import annotations

from .base import EAGER, Framework
from .capabilities import Capabilities
from .memory_options import MemoryOptions
from .recognition import by_name, in_notes

FSDP = Framework(
    "fsdp",
    "PyTorch FSDP 1 and 2 under any trainer",
    EAGER,
    # SwiGLU and cross entropy as separate eager operations: logits in 16 bits, in fp32, and their log softmax at once.
    memory=MemoryOptions(fused_gate=False, logits_peak_bytes=10.0),
    capabilities=Capabilities(
        schedules=(),
        sharding=("fsdp",),
        recompute=("none", "full", "selective_op"),
        source="PyTorch, torch/distributed/fsdp: pipelines are a matter of the trainer",
    ),
    memory_source="the operations of torchtitan's model and loss, as PyTorch runs them; no peaks were compared",
    patterns=(
        in_notes(r"torchtitan|litgpt|axolotl|\bvariant (fsdp|ddp)\b|torch\.compile", 60),
        *by_name(
            r"llm-foundry|mosaicml|fms-fsdp|foundation-model-stack|torchtitan|torchtune|pytorch blog|axolotl"
            r"|composer|plain pytorch|open_lm"
            r"|\baccelerate\b|lightning|litgpt|llama-?factory|\bolmo\b|(?<!megatron )(?<!megatron-)\bfsdp\d?\b|opt-175b|metaseq",
            80,
        ),
    ),
)
