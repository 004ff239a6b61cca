"""Registry: things of one kind by name, shipped or added by callers; hints for misspelt names and those of other tools."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Generic, TypeVar

from .errors import PrismError, SpecError

# Our names, or paths of nested fields -> names in Megatron-LM, DeepSpeed, torchtitan and Hugging Face configurations.
_MEANT = {
    "tp": "tensor_parallel tensor_model_parallel_size tensor_parallel_size",
    "pp": "pipeline_parallel pipeline_model_parallel_size pipeline_parallel_size",
    "dp": "data_parallel data_parallel_size",
    "cp": "context_parallel context_parallel_size",
    "ep": "expert_parallel expert_model_parallel_size",
    "dispatcher": (
        "moe_token_dispatcher_type token_dispatcher moe_enable_deepep moe_flex_dispatcher_backend "
        "expert_parallel_comm_backend"
    ),
    "expert_products": "moe_grouped_gemm moe_use_legacy_grouped_gemm",
    "etp": "expert_tensor_parallel expert_tensor_parallel_size expert_tensor_parallel_degree",
    "micro_batch": "mbs",
    "global_batch": "gbs",
    "seq_len": "sequence_length",
    "recompute": (
        "activation_checkpointing activation_checkpoint recompute_activations recompute_granularity selective_ac_option"
    ),
    "state_dtypes.grad_reduce": (
        "grad_dtype reduce_dtype grad_reduce_dtype grad_reduce_in_bf16 grad_reduce_in_fp32 "
        "accumulate_allreduce_grads_in_fp32 mixed_precision_reduce"
    ),
    "state_dtypes.main_grads": "main_grads_dtype",
    "state_dtypes.main_params": "main_params_dtype store_param_remainders",
    "state_dtypes.exp_avg": "exp_avg_dtype",
    "state_dtypes.exp_avg_sq": "exp_avg_sq_dtype",
    "state_dtypes": "use_precision_aware_optimizer",
    "state_dtypes.fp8_params": "fp8_param_gather fp8_param enable_fsdp_float8_all_gather",
    "optimizer": "optim optimizer_type optimizer_name",
    "optimizer_in_backward": "optimizer_in_bwd optim_in_bwd",
    "offload_optimizer": "optimizer_cpu_offload optimizer_offload optimizer_offload_fraction",
    "offload_parameters": "cpu_offload fsdp_cpu_offload fsdp_offload_params offload_param offload_params param_offload",
    "offload_gradients": "grad_offload",
    "offload_activations": "enable_activation_offloading activation_offload cpu_offloading",
    "host_threads": "omp_num_threads",
    "host_memory": "host_ram cpu_memory ram",
    "zero_stage": "use_distributed_optimizer distributed_optimizer zero",
    "virtual_stages": "vpp interleave",
    "dtype": "precision fp8",
    "flash": "fused sdpa",  # fused: attention of cuDNN, in one kernel too
    "n_layers": "num_hidden_layers num_layers",
    "hidden": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "ffn_hidden": "intermediate_size ffn_hidden_size",
    "vocab": "vocab_size",
    "window.size": "sliding_window attention_chunk_size window_size",
    "window.pattern": "layer_types sliding_window_pattern",
    "moe.n_experts": "num_experts num_local_experts",
    "moe.top_k": "num_experts_per_tok",
    "moe.capacity_factor": (
        "moe_expert_capacity_factor expert_capacity_factor train_capacity_factor moe_pad_expert_input_to_capacity"
    ),
    "moe.n_dense_first": "first_k_dense_replace",
    "moe.every": "interleave_moe_layer_step",
    "max_seq_len": "max_position_embeddings",
    "n_devices": "gpus n_gpus world_size",
}
ELSEWHERE = {name: meant for meant, names in _MEANT.items() for name in names.split()}


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
        self._loading: set[int] = set()  # threads that are at it: each has all of them, though another began before

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
        shipped, own = self._shipped, get_ident()
        if shipped is not None and own not in self._loading:
            self._loading.add(own)
            try:
                for item in shipped():
                    self._items.setdefault(self._name_of(item), item)
            finally:
                self._loading.remove(own)
            self._shipped = None
        return self._items
