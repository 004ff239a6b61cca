"""StateDtypes: number formats of what training keeps per parameter, and their bytes."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}
GRAD_DTYPES = ("fp32", "bf16", "fp16")
MOMENT_DTYPES = ("fp32", "bf16", "fp16", "fp8")
MAIN_PARAM_BYTES = {"fp32": 4.0, "fp32_remainder": 2.0, "fp16": 2.0, "bf16": 2.0}


@dataclass(frozen=True)
class StateDtypes:
    """Formats of gradients, master parameters and optimizer state.

    Attributes:
        grad_reduce: of the buffer that gradients are summed in and reduced from; None: as the framework does. bf16: Megatron-LM
            `--grad-reduce-in-bf16`. Under fsdp and hsdp it is the format of the exchange alone (torchtitan
            `mixed_precision_reduce`): sharded gradients have the format of the parameters.
        main_grads: as the optimizer reads them; a buffer in 16 bits is copied to fp32 for the update (`--main-grads-dtype`).
        main_params: the copy that the optimizer updates (`--main-params-dtype`); fp32_remainder: the 16 bits that bf16 parameters
            lack (Megatron-LM `store_param_remainders`, with the precision-aware optimizer). Under fsdp and hsdp it is the
            format of the sharded parameters themselves (torchtitan `training.dtype`).
        exp_avg, exp_avg_sq: Adam's moments (`--exp-avg-dtype`, `--exp-avg-sq-dtype`).
        fp8_params: parameters are kept, or under fsdp and hsdp gathered, in fp8 (Megatron-LM `--fp8-param-gather`, torchtitan
            `enable_fsdp_float8_all_gather`); embedding, head and norms stay in 16 bits.

    Source: Megatron-LM, docs/source/api-guide/dist_optimizer.md and arguments.py; torchtitan, config/job_config.py.
    """

    grad_reduce: str | None = None
    main_grads: str = "fp32"
    main_params: str = "fp32"
    exp_avg: str = "fp32"
    exp_avg_sq: str = "fp32"
    fp8_params: bool = False

    @property
    def moments_bytes(self) -> float:
        """Of both moments, per parameter."""
        return ELEMENT_BYTES[self.exp_avg] + ELEMENT_BYTES[self.exp_avg_sq]

    @property
    def main_params_bytes(self) -> float:
        """Of the copy that the optimizer updates, per parameter."""
        return MAIN_PARAM_BYTES[self.main_params]


STATE_DTYPE_VALUES = {
    "grad_reduce": GRAD_DTYPES,
    "main_grads": GRAD_DTYPES,
    "main_params": tuple(MAIN_PARAM_BYTES),
    "exp_avg": MOMENT_DTYPES,
    "exp_avg_sq": MOMENT_DTYPES,
}
