"""What one run trains, and the numbers every process derives from it alone: its place, its schedule, the lengths of its data."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

SEQUENCE_QUANTUM = 8  # lengths are multiples of it, so that matrix products stay efficient


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        dp, pp: data and pipeline parallel degrees; dp * pp processes.
        n_micro_batch: micro-batches of every replica and step.
        n_step, n_warmup: recorded steps, and steps before them that are not.
        seed: of the weights and the data.
        n_token: mean sequence length of a micro-batch, which is one sequence.
        sigma: standard deviation of the logarithm of the sequence lengths; 0: all are equal.
        slow_rank: the process that does extra work; -1: none does.
        slow_factor: its work per micro-batch over that of the others, >= 1.
        d_model, n_layer, n_head, n_vocab: width, layers per stage, attention heads, vocabulary.

    Raises:
        ValueError: counts below one, a slow rank the job does not have, a factor below 1.
    """

    dp: int = 2
    pp: int = 2
    n_micro_batch: int = 6
    n_step: int = 60
    n_warmup: int = 5
    seed: int = 0
    n_token: int = 128
    sigma: float = 0.0
    slow_rank: int = -1
    slow_factor: float = 1.5
    d_model: int = 384
    n_layer: int = 1
    n_head: int = 6
    n_vocab: int = 256

    def __post_init__(self) -> None:
        if min(self.dp, self.pp, self.n_micro_batch, self.n_step) < 1 or self.n_warmup < 1:
            raise ValueError("dp, pp, micro-batches, steps and warm-up steps must be at least 1")
        if not -1 <= self.slow_rank < self.n_rank:
            raise ValueError(f"slow rank {self.slow_rank}: the job has ranks 0 to {self.n_rank - 1}")
        if self.slow_factor < 1.0:
            raise ValueError(f"slow factor {self.slow_factor} is below 1: extra work cannot make a rank faster")

    @property
    def n_rank(self) -> int:
        return self.dp * self.pp

    def place(self, rank: int) -> tuple[int, int]:
        """(replica, stage) of a rank; replicas of a stage are neighbours, as in Megatron."""
        return rank % self.dp, rank // self.dp

    def rank(self, replica: int, stage: int) -> int:
        return stage * self.dp + replica

    def length(self, step: int, replica: int, micro_batch: int) -> int:
        """Sequence length of a micro-batch: log-normal with mean `n_token`, the same on every stage of the replica."""
        normal = random.Random(f"{self.seed} {step} {replica} {micro_batch}").gauss(0.0, 1.0)
        tokens = self.n_token * math.exp(self.sigma * normal - 0.5 * self.sigma**2)
        clipped = min(max(tokens, 0.25 * self.n_token), 4.0 * self.n_token)
        return max(SEQUENCE_QUANTUM, round(clipped / SEQUENCE_QUANTUM) * SEQUENCE_QUANTUM)

    def schedule(self, stage: int) -> list[tuple[str, int]]:
        """1F1B: ("forward" or "backward", micro-batch) in the order the stage runs them.

        A stage runs as many forwards ahead as there are stages behind it, then alternates, then drains.
        """
        n_ahead = min(self.pp - 1 - stage, self.n_micro_batch)
        order = [("forward", micro_batch) for micro_batch in range(n_ahead)]
        for micro_batch in range(n_ahead, self.n_micro_batch):
            order += [("forward", micro_batch), ("backward", micro_batch - n_ahead)]
        n_done = self.n_micro_batch - n_ahead
        return order + [("backward", micro_batch) for micro_batch in range(n_done, self.n_micro_batch)]
