"""Names of trainers and libraries, and which of our frameworks they run on."""

from __future__ import annotations

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
# Trainers that run on FSDP or DDP, or on DeepSpeed where a plan has ZeRO stages.
_EITHER = (
    "accelerate hf-accelerate lightning pytorch-lightning lightning-fabric fabric axolotl hf-trainer huggingface hf transformers "
    "trainer trl llama-factory llamafactory swift ms-swift"
)
RUNS_ON = {name: framework for framework, names in _RUNS_ON.items() for name in names.split()}
EITHER = frozenset(_EITHER.split())


def runs_on(name: str, zero_stage: int = 0) -> str:
    """The framework that the software of that name runs on; empty where the name says nothing.

    Args:
        name: in any case; spaces and underscores are hyphens.
        zero_stage: of the plan: a trainer that runs on FSDP or on DeepSpeed runs on the latter where there is one.
    """
    spelt = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    if spelt in EITHER:
        return "deepspeed" if zero_stage > 0 else "fsdp"
    return RUNS_ON.get(spelt, "")
