"""What a person should know of a model under a plan, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from ..plan.plan import ParallelPlan
from ..units import format_count
from .base import Workload
from .captured.model import CapturedModel
from .captured.notes import capture_notes
from .transformer.spec import TransformerSpec


def workload_notes(model: Workload, plan: ParallelPlan) -> Iterator[str]:
    """Sentences about what of a model is left out, or cannot be as it is published.

    Notes:
        How long a sequence may be is known of published models, which have a source; of models written by hand it is known
        where positions are learned.
    """
    if isinstance(model, CapturedModel):
        yield from capture_notes(model.program)
    if not isinstance(model, TransformerSpec):
        return
    for part in model.left_out:
        yield f"model {model.name}: {part} of the published model is left out"
    if model.adapters is not None:
        of = f"{format_count(model.n_params_trained())} of {format_count(model.n_params())} parameters"
        yield f"adapters: {of} are trained; MFU counts no weight gradients of the others"
    is_stated = bool(model.source) or model.position == "learned"
    if is_stated and plan.seq_len > model.max_seq_len:
        yield (
            f"seq_len = {plan.seq_len} is longer than the {model.max_seq_len} tokens that model {model.name} is made for "
            "(max_seq_len, max_position_embeddings of its config)"
        )
    if model.window is not None and not plan.is_flash and model.window.size < plan.seq_len:
        yield f"attention = unfused computes all scores: the window of {model.window.size} tokens saves nothing"
