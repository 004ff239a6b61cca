"""Registry: things of one kind by name, shipped or added by callers; hints for misspelt names and those of other tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from .errors import PrismError, SpecError

# Names from Megatron-LM, DeepSpeed, torchtitan and Hugging Face configurations -> ours, or the path of a nested field.
ELSEWHERE = {
    "tensor_parallel": "tp",
    "tensor_model_parallel_size": "tp",
    "tensor_parallel_size": "tp",
    "pipeline_parallel": "pp",
    "pipeline_model_parallel_size": "pp",
    "pipeline_parallel_size": "pp",
    "data_parallel": "dp",
    "data_parallel_size": "dp",
    "context_parallel": "cp",
    "context_parallel_size": "cp",
    "expert_parallel": "ep",
    "expert_model_parallel_size": "ep",
    "moe_token_dispatcher_type": "dispatcher",
    "token_dispatcher": "dispatcher",
    "moe_grouped_gemm": "expert_products",
    "moe_use_legacy_grouped_gemm": "expert_products",
    "moe_enable_deepep": "dispatcher",
    "moe_flex_dispatcher_backend": "dispatcher",
    "expert_parallel_comm_backend": "dispatcher",
    "expert_tensor_parallel": "etp",
    "expert_tensor_parallel_size": "etp",
    "expert_tensor_parallel_degree": "etp",
    "mbs": "micro_batch",
    "gbs": "global_batch",
    "sequence_length": "seq_len",
    "activation_checkpointing": "recompute",
    "activation_checkpoint": "recompute",
    "recompute_activations": "recompute",
    "recompute_granularity": "recompute",
    "selective_ac_option": "recompute",
    "grad_dtype": "state_dtypes.grad_reduce",
    "reduce_dtype": "state_dtypes.grad_reduce",
    "grad_reduce_dtype": "state_dtypes.grad_reduce",
    "grad_reduce_in_bf16": "state_dtypes.grad_reduce",
    "grad_reduce_in_fp32": "state_dtypes.grad_reduce",
    "accumulate_allreduce_grads_in_fp32": "state_dtypes.grad_reduce",
    "mixed_precision_reduce": "state_dtypes.grad_reduce",
    "main_grads_dtype": "state_dtypes.main_grads",
    "main_params_dtype": "state_dtypes.main_params",
    "store_param_remainders": "state_dtypes.main_params",
    "exp_avg_dtype": "state_dtypes.exp_avg",
    "exp_avg_sq_dtype": "state_dtypes.exp_avg_sq",
    "use_precision_aware_optimizer": "state_dtypes",
    "fp8_param_gather": "state_dtypes.fp8_params",
    "fp8_param": "state_dtypes.fp8_params",
    "enable_fsdp_float8_all_gather": "state_dtypes.fp8_params",
    "optim": "optimizer",
    "optimizer_type": "optimizer",
    "optimizer_name": "optimizer",
    "optimizer_in_bwd": "optimizer_in_backward",
    "optim_in_bwd": "optimizer_in_backward",
    "optimizer_cpu_offload": "offload_optimizer",
    "optimizer_offload": "offload_optimizer",
    "optimizer_offload_fraction": "offload_optimizer",
    "cpu_offload": "offload_parameters",
    "fsdp_cpu_offload": "offload_parameters",
    "fsdp_offload_params": "offload_parameters",
    "offload_param": "offload_parameters",
    "offload_params": "offload_parameters",
    "param_offload": "offload_parameters",
    "grad_offload": "offload_gradients",
    "enable_activation_offloading": "offload_activations",
    "activation_offload": "offload_activations",
    "cpu_offloading": "offload_activations",
    "omp_num_threads": "host_threads",
    "host_ram": "host_memory",
    "cpu_memory": "host_memory",
    "ram": "host_memory",
    "use_distributed_optimizer": "zero_stage",
    "distributed_optimizer": "zero_stage",
    "zero": "zero_stage",
    "vpp": "virtual_stages",
    "interleave": "virtual_stages",
    "precision": "dtype",
    "fp8": "dtype",
    "fused": "flash",  # attention of cuDNN, in one kernel too
    "sdpa": "flash",
    "num_hidden_layers": "n_layers",
    "num_layers": "n_layers",
    "hidden_size": "hidden",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "ffn_hidden",
    "ffn_hidden_size": "ffn_hidden",
    "vocab_size": "vocab",
    "sliding_window": "window.size",
    "attention_chunk_size": "window.size",
    "window_size": "window.size",
    "layer_types": "window.pattern",
    "sliding_window_pattern": "window.pattern",
    "num_experts": "moe.n_experts",
    "num_local_experts": "moe.n_experts",
    "num_experts_per_tok": "moe.top_k",
    "moe_expert_capacity_factor": "moe.capacity_factor",
    "expert_capacity_factor": "moe.capacity_factor",
    "train_capacity_factor": "moe.capacity_factor",
    "moe_pad_expert_input_to_capacity": "moe.capacity_factor",
    "first_k_dense_replace": "moe.n_dense_first",
    "interleave_moe_layer_step": "moe.every",
    "max_position_embeddings": "max_seq_len",
    "gpus": "n_devices",
    "n_gpus": "n_devices",
    "world_size": "n_devices",
}


def did_you_mean(name: object, known: Iterable[str], otherwise: str | None = None) -> str:
    """Text to append to "unknown ...": the nearest known name; where none is near `otherwise`, by default all of them."""
    names = list(known)
    close = nearest(name, names)
    if close:
        return f", did you mean {close}?"
    return f"; known are {', '.join(names)}" if otherwise is None else otherwise


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name that is meant by `name` elsewhere, or most like it, in its own case or in small letters, if one is near."""
    from difflib import get_close_matches  # only where something is wrong

    text, names = str(name), list(known)
    lowered = text.lower()
    meant = ELSEWHERE.get(lowered.lstrip("-").replace("-", "_"), "")
    if meant.split(".")[0] in names:
        return meant
    return next(
        (close[0] for word in (text, lowered) if (close := get_close_matches(word, names, n=1, cutoff=0.6))), None
    )


T = TypeVar("T")
MODULES_THAT_ADDED: set[str] = set()  # to any registry: their code decides answers, too


class Registry(Generic[T]):
    """Items by name, in the order in which they were added.

    Args:
        kind: what an item is, for messages: "schedule".
        shipped: makes the items of the package, called on first use; every item has a `name`, or `name_of` says it.
        error: raised where a name is unknown or taken.

    Example:
        >>> numbers = Registry("number", name_of=lambda item: item)
        >>> numbers.add("one")
        'one'
        >>> numbers.names
        ('one',)
    """

    def __init__(
        self,
        kind: str,
        shipped: Callable[[], Iterable[T]] = tuple,
        *,
        name_of: Callable[[T], str] = lambda item: item.name,  # type: ignore[attr-defined]
        error: type[PrismError] = SpecError,
    ) -> None:
        self.kind = kind
        self._shipped: Callable[[], Iterable[T]] | None = shipped
        self._name_of = name_of
        self._error = error
        self._items: dict[str, T] = {}

    def add(self, item: T) -> T:
        """Adds `item` and returns it, so that it can decorate a class or follow a definition.

        Raises:
            PrismError: the name is taken.
        """
        items, name = self._loaded(), self._name_of(item)
        if name in items:
            raise self._error(f"a {self.kind} called {name!r} is there already. Give yours another name.")
        items[name] = item
        MODULES_THAT_ADDED.add(sys._getframe(1).f_globals.get("__name__", ""))
        return item

    @contextmanager
    def with_item(self, item: T) -> Iterator[T]:
        """`item` is known inside the block only."""
        self.add(item)
        try:
            yield item
        finally:
            del self._items[self._name_of(item)]

    def named(self, name: str) -> T:
        """The item called `name`.

        Raises:
            PrismError: there is none; names those that are.
        """
        items = self._loaded()
        if name not in items:
            raise self._error(f"{self.kind} {name!r} is unknown{did_you_mean(name, items)}")
        return items[name]

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(self._loaded())

    def __contains__(self, name: object) -> bool:
        return name in self._loaded()

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._loaded().values()))

    def __len__(self) -> int:
        return len(self._loaded())

    def _loaded(self) -> dict[str, T]:
        if self._shipped is not None:
            shipped, self._shipped = self._shipped, None
            for item in shipped():
                self._items[self._name_of(item)] = item
        return self._items
