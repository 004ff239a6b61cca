"""What a training framework does with memory, where frameworks differ; the default is Megatron-LM.

Bytes per element, per parameter or per device. Nothing here depends on a model, a plan or a measured row.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB, MIB = 2.0**30, 2.0**20


@dataclass(frozen=True)
class MemoryOptions:
    """Choices of a framework that change what it holds in memory.

    Attributes:
        grad_bytes: per parameter, of the buffer gradients are accumulated in. 4: fp32 main gradients, which Megatron-LM
            keeps for bf16 training (docs/source/api-guide/dist_optimizer.md: 18 bytes per parameter, `6 + 12/d` with the
            distributed optimizer); 2: gradients in the model's dtype (ZeRO paper, arXiv 1910.02054, section 3.1).
        model_grad_bytes: per parameter, of low-precision gradients kept beside that buffer.
        optimizer_bytes: per parameter: Adam's fp32 master copy and two moments; a plan's `state_dtypes` take off what they save.
        fp8_copy_bytes: per parameter of a layer, of its fp8 copy and the transposed one, which Transformer Engine keeps from the
            first micro-batch of a step to the last; none where parameters are sharded, or are in fp8 themselves
            (supported by the memory that two of Megatron-LM's functional tests log with and without fp8, not measured apart).
        keeps_gathered_inputs: under sequence parallelism the gathered input of a column-parallel product is saved
            instead of gathered again in the backward pass.
        fused_gate: silu(gate) * up in one kernel, which saves its two inputs only.
        logits_peak_bytes: per logit, while the loss is computed: bf16 logits beside their fp32 copy (6), which an
            in-place softmax reuses; 10 if an eager softmax writes to a tensor of its own.
        dropout: None: the GPT recipe (LayerNorm, plain MLP) has it, Llama-style models do not.
        bucket_elements: parameters per gradient bucket of ZeRO-2 and up. Source: Megatron-LM, `ddp_bucket_size`
            default max(40e6, 1e6 * dp); we take the constant part.
        n_gathered_layers: layers held unsharded at a time under parameter sharding: the current one and the one
            prefetched (PyTorch FSDP `backward_prefetch=BACKWARD_PRE`).
        workspace_bytes: of cuBLAS and Transformer Engine, held by the allocator from the first product on. PyTorch gives each
            of two threads (forward, autograd) 32 MiB on Hopper and later, Transformer Engine has 32 MiB of its own
            (`CUDABlas.cpp`, `getChosenWorkspaceSize`; `transformer_engine/pytorch/module/base.py`).
        expert_workspace_bytes: beside it, of a model with experts: 32 MiB for each of the four streams of a grouped product.
        context_bytes: CUDA context and kernels.
        nccl_bytes: per communicator. NCCL allocates NCCL_BUFFSIZE = 4 MiB per channel, direction and protocol group
            (NCCL user guide, environment variables); with 16-24 channels about 0.2 GiB.
        fragmentation: share of the activations and temporaries that the caching allocator holds but cannot reuse: blocks
            of odd sizes, and blocks that a communication stream still owns. The default is an allowance; what Megatron-LM
            allocates is met without it (experiments/memory_validation).
    """

    grad_bytes: float = 4.0
    model_grad_bytes: float = 0.0
    optimizer_bytes: float = 12.0
    fp8_copy_bytes: float = 2.0
    keeps_gathered_inputs: bool = False
    fused_gate: bool = True
    logits_peak_bytes: float = 6.0
    dropout: bool | None = None
    bucket_elements: float = 40e6
    n_gathered_layers: int = 2
    workspace_bytes: float = 96 * MIB
    expert_workspace_bytes: float = 128 * MIB
    context_bytes: float = 0.65 * GIB
    nccl_bytes: float = 0.2 * GIB
    fragmentation: float = 0.05


MEGATRON = MemoryOptions()
