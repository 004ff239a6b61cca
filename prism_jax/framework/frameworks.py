"""Training frameworks: plan defaults, kernels and what they hold in memory; and which of them trainers and libraries run on.

Megatron-LM and what is built on it have fused kernels and sum gradients inside the matrix product; nanotron has eager modules,
sums gradients in fp32 in a pass of its own and deals layers out by their cost; DeepSpeed sums either way by precision and
version, so it has no default for that; FSDP runs modules as written, whatever trainer runs them; JAX and MindSpore compile the
step into one program. `OTHER` is known software that is none of them, such as a company's own. `FRAMEWORKS.add(Framework(...))`
adds one of the caller's.
"""

from __future__ import annotations

from ..core.errors import SpecError
from ..core.registry import Registry, did_you_mean
from .base import (
    EAGER,
    FUSED,
    Capabilities as Capabilities,
    Framework as Framework,
    LayerShape,
    MemoryOptions as MemoryOptions,
    PeakLaw,
    PlanDefaults as PlanDefaults,
)

MEASURED = "Megatron-LM, docs/source/api-guide/dist_optimizer.md; peaks in experiments/memory_validation"
# 278 peaks: 30 case families of Megatron-LM's tests, 4 models on B200 (experiments/memory_validation/megatron_ci.py).
PEAKS = PeakLaw(1.007, 0.045, 1.014, 0.053)

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
)

# Without Transformer Engine, on A100 or V100, or in the papers of Megatron-LM itself.
MEGATRON_2021 = Framework(
    "megatron-2021",
    "Megatron-LM before sequence parallelism and the distributed optimizer, 2019-22",
    FUSED,
    memory_source=MEASURED,
    peak_law=PEAKS,
    capabilities=_BEFORE_2022,
)

MEGATRON_DEEPSPEED = Framework(
    "megatron-deepspeed",
    "Megatron-DeepSpeed and GPT-NeoX",
    FUSED,
    plan_defaults=PlanDefaults(offload_gradients=True, host_threads=0),  # as DeepSpeed
    capabilities=Capabilities(
        schedules=("1f1b",),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "selective", "full"),
        max_cp=1,
        source="DeepSpeed, runtime/pipe/engine.py: ZeRO-2 and 3 are incompatible with pipeline parallelism",
    ),
)

FLAGSCALE = Framework("flagscale", "FlagScale and FlagPerf, on Megatron", FUSED, capabilities=_EVEN)

LIBAI = Framework("libai", "OneFlow LiBai", FUSED)


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
    peak_law=PeakLaw(1.025, 0.161, 1.025, 0.169),
    memory_margin=0.15,  # of 61 layouts right below it 90% fit, of all 99% (experiments/memory_validation)
    capabilities=Capabilities(
        schedules=("1f1b", "gpipe"),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "full"),
        max_cp=1,
        source="nanotron, parallel/pipeline_parallel/engine.py and config/parallelism_config.py",
    ),
    layer_split=cost_balanced_split,
)


# SwiGLU and cross entropy as separate eager operations: in its backward pass the logarithm of the softmax, its gradient and that
# of the logits are there at once, all in fp32 (`torch.nn.functional.cross_entropy`).
_PYTORCH = MemoryOptions(fused_gate=False, logits_peak_bytes=12.0, weighted_experts=False)

DEEPSPEED = Framework(
    "deepspeed",
    "DeepSpeed ZeRO without Megatron",
    EAGER,
    plan_defaults=PlanDefaults(offload_gradients=True, host_threads=0),  # ZeRO-Offload, `DeepSpeedCPUAdam`
    memory=_PYTORCH,
    memory_source="the operations of a model and its loss, as PyTorch runs them; no peaks were compared",
    capabilities=Capabilities(
        schedules=(),
        sharding=("none",),
        recompute=("none", "full"),
        max_tp=1,
        source="DeepSpeed, docs/_pages/training.md",
    ),
)


FSDP = Framework(
    "fsdp",
    "PyTorch FSDP 1 and 2 under any trainer",
    EAGER,
    memory=_PYTORCH,
    plan_defaults=PlanDefaults(fp8_recipe="tensorwise"),
    capabilities=Capabilities(
        schedules=(),
        sharding=("fsdp",),
        recompute=("none", "full", "selective_op"),
        source="PyTorch, torch/distributed/fsdp: pipelines are a matter of the trainer",
    ),
    memory_source="the operations of torchtitan's model and loss, as PyTorch runs them; no peaks were compared",
)


COLOSSALAI = Framework(
    "colossalai",
    "Colossal-AI",
    EAGER,
    capabilities=Capabilities(
        schedules=("1f1b", "interleaved", "zb_v"),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "full"),
        source="Colossal-AI, booster/plugin/hybrid_parallel_plugin.py",
    ),
)


JAX = Framework(
    "jax",
    "MaxText, PaxML, T5X and other JAX code",
    FUSED,
    # MaxText: `qk_product` is an einsum over groups; the axis "mlp" of experts is sharded over `tensor`, as in dense layers;
    # weights of the router multiply outputs of experts (`unpermute`).
    memory=MemoryOptions(weighted_experts=False),
    memory_source="as Megatron-LM, with the outputs of experts kept: no peaks of this framework were compared",
    plan_defaults=PlanDefaults(grouped_queries=True, etp=0, host_threads=0),
)


MINDSPORE = Framework("mindspore", "MindSpore and MindFormers, in graph mode", FUSED)


PADDLE = Framework(
    "paddle",
    "PaddleNLP",
    FUSED,
    capabilities=Capabilities(
        schedules=("1f1b", "interleaved"),
        zero_stages=(0, 1),
        sharding=("none",),
        recompute=("none", "selective", "full"),
        source="PaddleNLP, docs/trainer.md",
    ),
)


OTHER = Framework(
    "other",
    "known, none of the others",
)

UNKNOWN = Framework("", "not stated: the population's average")


FRAMEWORKS: Registry[Framework] = Registry(
    "framework",
    lambda: (
        MEGATRON_CORE,
        MEGATRON_2021,
        MEGATRON_DEEPSPEED,
        FLAGSCALE,
        LIBAI,
        JAX,
        PADDLE,
        FSDP,
        DEEPSPEED,
        NANOTRON,
        COLOSSALAI,
        MINDSPORE,
        OTHER,
    ),
)


def framework_of(framework: str | Framework, zero_stage: int = 0, sharding: str = "none") -> Framework:
    """The framework of that name, or that software of that name runs on, or the framework itself; empty: it is not known.

    Args:
        framework: a name, or a framework.
        zero_stage, sharding: of the plan, as in `runs_on`.

    Raises:
        SpecError: the name is unknown; names those that are known.
    """
    if isinstance(framework, Framework):
        return framework
    if not framework:
        return UNKNOWN
    if framework not in FRAMEWORKS and (meant := runs_on(framework, zero_stage, sharding)):
        return FRAMEWORKS.named(meant)
    if framework not in FRAMEWORKS:
        known = FRAMEWORKS.names
        raise SpecError(
            f"framework {framework!r} is unknown; known are {', '.join(known)}{did_you_mean(framework, known)}"
        )
    return FRAMEWORKS.named(framework)


def style_of(name: str) -> str:
    """`fused`, `eager`, or empty where the framework or its style is not known."""
    return FRAMEWORKS.named(name).style if name in FRAMEWORKS else UNKNOWN.style


_RUNS_ON = {
    "megatron-core": (
        "megatron megatron-lm mcore nemo nemo-megatron nvidia-nemo megatron-bridge nemo-rl primus slime mindspeed mindspeed-llm "
        "modellink megatron-swift megatron-fsdp"
    ),
    "fsdp": (
        "torchtitan fsdp1 fsdp2 pytorch torch torch-fsdp ddp pytorch-ddp torch-ddp distributeddataparallel simplefsdp torchtune "
        "litgpt lit-gpt composer llm-foundry llmfoundry mosaicml olmo olmo-core xtuner verl nemo-automodel nanogpt nanochat timm "
        "lingua meta-lingua torchvision torchrec fairseq fairseq2 unsloth open-clip openclip diffusers peft "
        "modded-nanogpt"
    ),
    "deepspeed": "zero deepspeed-zero ds deepspeed-chat deepspeed-pytorch openrlhf",
    "megatron-deepspeed": "gpt-neox neox gptneox megatron-ds",
    "jax": (
        "maxtext max-text paxml pax praxis t5x levanter haliax flax haiku equinox easylm axlearn big-vision scenic tunix "
        "maxdiffusion marin alpa keras-jax"
    ),
    "paddle": "paddlenlp paddlepaddle paddleformers",
    "mindspore": "mindformers",
    "colossalai": "colossal-ai colossal hpc-ai",
    "libai": "oneflow",
    "flagscale": "flagperf",
}
# Trainers that run on FSDP or DDP, or on DeepSpeed where a plan has ZeRO stages and no `sharding`.
_EITHER = (
    "accelerate hf-accelerate lightning pytorch-lightning lightning-fabric fabric axolotl hf-trainer huggingface hf transformers "
    "trainer trl llama-factory llamafactory swift ms-swift"
)
RUNS_ON = {name: framework for framework, names in _RUNS_ON.items() for name in names.split()}
EITHER = frozenset(_EITHER.split())


def runs_on(name: str, zero_stage: int = 0, sharding: str = "none") -> str:
    """The framework that the software of that name runs on; empty where the name says nothing.

    Args:
        name: in any case; spaces and underscores are hyphens.
        zero_stage, sharding: of the plan: a trainer that runs on FSDP or on DeepSpeed runs on the latter where there is a stage
            and no sharding, which are words of FSDP.
    """
    spelt = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    if spelt in EITHER:
        return "deepspeed" if zero_stage > 0 and sharding == "none" else "fsdp"
    return RUNS_ON.get(spelt, "")
