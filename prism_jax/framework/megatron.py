"""Megatron-LM, and what is built on it: fused kernels, gradients summed inside the matrix product, its own memory rules."""

from __future__ import annotations

from .base import FUSED, Framework
from .capabilities import Capabilities
from .peak_law import PeakLaw
from .recognition import OWN_PAPERS, SourcePattern, by_name, in_notes

MEASURED = "Megatron-LM, docs/source/api-guide/dist_optimizer.md; peaks in experiments/memory_validation"
# 278 peaks: 30 case families of Megatron-LM's tests, 4 models on B200 (experiments/memory_validation/megatron_ci.py).
PEAKS = PeakLaw(1.007, 0.045, 0.988, 0.084)
_NO_TPU = r"\A(?!.*\btpu)"  # on a TPU those names stand for somebody's JAX code

_EVEN = Capabilities(
    schedules=("1f1b", "interleaved"),
    zero_stages=(0, 1),
    sharding=("none",),
    recompute=("none", "selective", "full"),
    even_chunks=True,
    source="Megatron-LM, megatron/training/arguments.py; ZeRO-2 and 3 only with --use-megatron-fsdp",
)
_BEFORE_2022 = Capabilities(
    schedules=("1f1b", "interleaved"),
    zero_stages=(0,),
    sharding=("none",),
    recompute=("none", "full"),
    max_cp=1,
    sequence_parallel=False,
    even_chunks=True,
    source="arXiv 2104.04473",
)

MEGATRON_CORE = Framework(
    "megatron-core",
    "Megatron-Core and what is built on it: NeMo, Megatron-Bridge, Primus",
    FUSED,
    memory_source=MEASURED,
    peak_law=PEAKS,
    capabilities=_EVEN,
    patterns=(
        in_notes(r"^megatron-lm .*\bTE \d", 50),  # Transformer Engine: a version of after 2022
        in_notes(r"megatron-core|megatron-bridge|\bnemo\b", 80),
        *by_name(r"nvidia|nemo\b|nemotron|megatron|mcore|mlcommons|simumax|primus", 90, gpu=_NO_TPU),
    ),
)

# Without Transformer Engine, on A100 or V100, or in the papers of Megatron-LM itself.
MEGATRON_2021 = Framework(
    "megatron-2021",
    "Megatron-LM before sequence parallelism and the distributed optimizer, 2019-22",
    FUSED,
    memory_source=MEASURED,
    peak_law=PEAKS,
    capabilities=_BEFORE_2022,
    patterns=(
        SourcePattern(notes=r"^megatron-lm\b", rank=OWN_PAPERS),
        SourcePattern(source=r"1909\.08053|2104\.04473|2201\.11990|2205\.05198", rank=OWN_PAPERS),
        SourcePattern(source=r"\A(?-i:NVIDIA/Megatron-LM)\Z", gpu=r"(?-i:[AV]100)", rank=OWN_PAPERS),
    ),
)

MEGATRON_DEEPSPEED = Framework(
    "megatron-deepspeed",
    "Megatron-DeepSpeed and GPT-NeoX",
    FUSED,
    capabilities=Capabilities(
        schedules=("1f1b",),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "selective", "full"),
        max_cp=1,
        source="DeepSpeed, runtime/pipe/engine.py: ZeRO-2 and 3 are incompatible with pipeline parallelism",
    ),
    patterns=(
        in_notes(r"megatron-deepspeed|gpt-neox", 20),
        *by_name(
            r"megatron[\s_-]*deepspeed|deepspeed megatron|megatron-lm \(3d\) / deepspeed"
            r"|bigscience|\bbloom\b|vtrain|gpt-?neox|pythia|glm-?130b|argonne|sailor",
            30,
        ),
    ),
)

FLAGSCALE = Framework(
    "flagscale", "FlagScale and FlagPerf, on Megatron", FUSED, capabilities=_EVEN, patterns=by_name(r"flagscale", 50)
)

LIBAI = Framework("libai", "OneFlow LiBai", FUSED, patterns=(in_notes(r"^libai\b", 40), *by_name(r"oneflow", 50)))
