"""A plan as one stack of layers sees it: with the length of its own sequences.

Layers, embeddings and heads are written for `plan.seq_len` tokens of a sample. An encoder without padding, the decoder of an
encoder-decoder, an encoder of images and a head that reads some of the tokens work on other numbers of them.
"""

from __future__ import annotations

from typing import Any, cast

from ...plan.plan import ParallelPlan


class _WithLength:
    """`plan` with another `seq_len`; everything else is asked of the plan itself, so that a plan that notes what is read does."""

    def __init__(self, plan: ParallelPlan, seq_len: float) -> None:
        self._plan = plan
        self.seq_len = seq_len

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def with_seq_len(plan: ParallelPlan, seq_len: float) -> ParallelPlan:
    """`plan` where a sample has `seq_len` tokens, a mean that need not be whole."""
    return cast(ParallelPlan, _WithLength(plan, seq_len))
