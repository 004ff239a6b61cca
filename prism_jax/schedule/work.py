"""PipelineWork: what the stages of plans have to do, in seconds, for the closed-form step times of the schedules."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .._typing import Counts, Floats


@dataclass(frozen=True, eq=False)
class PipelineWork:
    """Noise-free seconds of plans that share a pipeline; kinds are F, B, W in this order.

    Attributes:
        pp: pipeline stages.
        virtual_stages: model chunks per stage.
        n_micro_batch: [plan].
        bound_s: [plan] lower bound of the step time.
        compute_s: [plan, kind, chunk] of a micro-batch.
        comm_s: [plan, kind, chunk] communication in front of compute.
        hidden_s: [plan, kind, chunk] communication beside compute.
        end_s: [plan, stage] at the end of the step.
    """

    pp: int
    virtual_stages: int
    n_micro_batch: Counts
    bound_s: Floats
    compute_s: Floats
    comm_s: Floats
    hidden_s: Floats
    end_s: Floats

    @cached_property
    def whole_s(self) -> Floats:
        """[plan, kind, chunk] compute and the communication in front of it."""
        return self.compute_s + self.comm_s

    @cached_property
    def mean_s(self) -> Floats:
        """[plan, kind] mean over the chunks of `whole_s`."""
        return self.whole_s.mean(axis=2)
