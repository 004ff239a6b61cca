"""ZB-H1, ZB-H2, ZB-V and DualPipe: schedules whose backward is split, with the weight gradients put off into the bubbles.

With F, B, W the mean seconds of a chunk, p stages, m micro-batches, pair the seconds of a forward with a backward and x+ the
positive part of x, a step takes about

    ZB-H1, ZB-H2    bound + (p - 1) (B - min(w, (m - 1) / (p - 1)) W)+        w = 1, 2
    ZB-V            max_s busy_s + (p - 1) max(F, B, 2 B - 2 W)               from 2 p micro-batches on
    DualPipe        max_s (n_pair pair_s + n_alone (F + B + W)_s) + (p / 2 - 1) (pair + B - 2 W)+

ZB-H: stage s runs `ahead` forwards before its first B and holds back `held` weight gradients; from there on it repeats B W F.
The two differ in these two numbers only. ZB-V: two chunks per stage, placed as a V, so that the stage that starts a micro-batch
also ends it: chunk q < p lives on stage q, others on stage 2 p - 1 - q; memory of 1F1B, no bubble when F = B = W. DualPipe:
micro-batches enter at both ends of the pipeline, and a forward of one direction overlaps a backward of the other; the first
half of them flows from stage 0 to p - 1, the second half from p - 1 to 0, so stage s holds the parameters of chunks s and p - 1
- s. Eight phases; "near" is the direction that reaches the stage first.

Source: Qi et al., arXiv 2401.10241, sections 2 and 6, table 1 and figure 3, and arXiv 2405.15362; the bubble of ZB-H is
corrected for few micro-batches by what the orders do; phases of ZB-V as in `handcrafted_zb_v` of
sail-sg/zero-bubble-pipeline-parallelism. DualPipe: DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1 and table 2;
phases as in deepseek-ai/DualPipe, `dualpipe.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from ..core.arrays import Counts, Flags, Floats
from ..core.lazy import np
from .base import ArraySchedule
from .order import PipelineWork, StepOps, Turn


@dataclass(frozen=True)
class ZeroBubble(ArraySchedule):
    """Base of the two zero-bubble schedules.

    Attributes:
        filled: weight gradients that fill the wait for a gradient.
    """

    filled: ClassVar[float]
    fills_one_way: ClassVar[bool] = True
    loss_goes_back_at_once: ClassVar[bool] = True

    @abstractmethod
    def ahead(self, stage: int, pp: int) -> int:
        """Forwards before the first B."""

    @abstractmethod
    def held(self, stage: int) -> int:
        """Returns the number of weight gradients held back."""

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Forwards ahead, then B W F in turn, then the weight gradients that are left."""
        stage, m = np.arange(pp)[:, None], np.arange(n_micro_batch)
        ahead = np.array([[self.ahead(s, pp)] for s in range(pp)])
        held = np.array([[self.held(s)] for s in range(pp)])
        turns = {"F": 3 * (m - ahead) + 2, "B": 3 * (m + 0 * held), "W": 3 * (m + held) + 1}
        return StepOps.in_turn(*(Turn((kind,), turn, m, stage) for kind, turn in turns.items()))

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Forwards ahead, and activations kept for the weight gradients held back."""
        n_ahead = min(self.ahead(stage, pp), n_micro_batch)
        return n_ahead + kept_for_w * min(self.held(stage), n_micro_batch - n_ahead)

    def step_s(self, work: PipelineWork) -> Floats:
        """The bound, and the part of the wait for a gradient that weight gradients do not fill."""
        b, w = work.mean_s[:, 1:].T
        filled = np.minimum(self.filled, (work.n_micro_batch - 1) / max(work.pp - 1, 1))
        return work.bound_s + (work.pp - 1) * np.maximum(b - filled * w, 0.0)


@dataclass(frozen=True)
class ZBH1(ZeroBubble):
    """Memory of 1F1B, a third of its bubble when F = B = W."""

    name: str = "zb_h1"
    filled: ClassVar[float] = 1.0

    def ahead(self, stage: int, pp: int) -> int:
        """Returns as many forwards as 1F1B holds."""
        return pp - stage

    def held(self, stage: int) -> int:
        """Returns the number of stages before this one."""
        return stage


@dataclass(frozen=True)
class ZBH2(ZeroBubble):
    """Twice the memory of 1F1B, no bubble when F = B = W and there are 2 pp - 1 micro-batches or more."""

    name: str = "zb_h2"
    filled: ClassVar[float] = 2.0

    def ahead(self, stage: int, pp: int) -> int:
        """Returns as many forwards as fill the way there and back."""
        return 2 * (pp - 1 - stage) + 1

    def held(self, stage: int) -> int:
        """Twice as many as there are stages before."""
        return 2 * stage


@dataclass(frozen=True)
class ZBV(ArraySchedule):
    """V-shaped zero-bubble order; with fewer than 2 pp - 1 micro-batches the order of 2 pp - 1, less what does not exist."""

    name: str = "zb_v"
    loss_goes_back_at_once: ClassVar[bool] = True
    fixed_virtual_stages: ClassVar[int | None] = 2

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Phases of the authors' schedule."""
        chunks = np.arange(pp)[:, None] * [1, -1] + [0, 2 * pp - 1]
        ops = StepOps.by_name([_zb_v_names(stage, pp, n_micro_batch) for stage in range(pp)], chunks, 0 * chunks)
        there = ops.micro_batch[:, 0] < n_micro_batch
        n_op = np.bincount(ops.stage[there], minlength=pp)
        return StepOps(n_op, *(own[there] for own in (ops.kind, ops.micro_batch, ops.chunk)))

    def placements(self, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
        """Returns placements that go down the stages and up again."""
        rounds = [range(pp) if turn % 2 == 0 else reversed(range(pp)) for turn in range(virtual_stages)]
        return (tuple(stage for turn in rounds for stage in turn),)

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """Returns the activations on the way down and on the way up: 2 pp once the pipeline is full."""
        return float(min(2 * pp - 1 - stage, n_micro_batch) + min(stage + 1, n_micro_batch))

    def step_s(self, work: PipelineWork) -> Floats:
        """The busiest stage, and a bubble per further stage."""
        m, shares = work.n_micro_batch, self.stage_shares(work.pp, work.virtual_stages)
        busy = m[:, None] * (work.whole_s.sum(axis=1) @ shares) + work.end_s
        return busy.max(axis=1) + (work.pp - 1) * _bubble_s(work.mean_s, m, work.pp)


def _bubble_s(mean: Floats, m: Counts, pp: int) -> Floats:
    """Bubble per further stage, [plan], of mean seconds [plan, kind]: of many, of pp, and of fewer micro-batches."""
    f, b, w = mean.T
    many = np.maximum(np.maximum(f, b), 2.0 * (b - w))
    few = 2.0 * b + 2.0 * f * np.maximum(1.0 - (m - 1) / max(pp - 1, 1), 0.0)
    share = np.clip(m / pp - 1.0, 0.0, 1.0)
    return share * many + (1.0 - share) * few


def _zb_v_names(stage: int, pp: int, n_micro_batch: int) -> list[str]:
    """Ops by name: F, B and W with the chunk of the stage, 0 on the way down and 1 on the way up."""
    n_pass, rest = max(2 * pp - 1, n_micro_batch), pp - stage
    n_steady, with_f0 = n_pass - pp, n_pass - (2 * pp - 1 - stage)
    names = ["F0"] * (2 * rest - 1) + ["F1", "F0"] * stage + ["F1", "B1", "W1"] * rest
    names += ["F0", "B0", "W0", "F1", "B1", "W1"] * with_f0 + ["B0", "W0", "F1", "B1", "W1"] * (n_steady - with_f0)
    return names + ["B0", "B1"] * stage + ["B0", "W0"] * rest + ["W1"] * stage + ["W0"] * stage


@dataclass(frozen=True)
class DualPipe(ArraySchedule):
    """Bidirectional order; ops that hold F, B and W overlap a forward with a whole backward."""

    name: str = "dualpipe"
    loss_goes_back_at_once: ClassVar[bool] = True
    overlaps_passes: ClassVar[bool] = True

    def ops(self, pp: int, n_micro_batch: int, virtual_stages: int) -> StepOps:
        """Eight phases; each half of the stages names ops by the end that is nearer to it."""
        half, stage = n_micro_batch // 2, np.arange(pp)[:, None]
        mirrored = stage >= pp // 2
        direction = np.where(mirrored, [1, 0], [0, 1])
        chunks = np.where(direction == 0, stage, pp - 1 - stage)
        return StepOps.by_name([_dual_pipe_names(s, pp, half) for s in range(pp)], chunks, half * direction)

    def placements(self, pp: int, virtual_stages: int) -> tuple[tuple[int, ...], ...]:
        """Stages in turn, and the same from the other end."""
        down = tuple(chunk % pp for chunk in range(pp * virtual_stages))
        return down, tuple(pp - 1 - stage for stage in down)

    def direction(self, micro_batch: int, n_micro_batch: int) -> int:
        """0 for the first half of the micro-batches, 1 for the second."""
        return int(micro_batch >= n_micro_batch // 2)

    def enough_micro_batches(self, pp: int, n_micro_batch: Counts, virtual_stages: int) -> Flags:
        """Even numbers of stages and micro-batches, and twice as many micro-batches as stages."""
        return (n_micro_batch % 2 == 0) & (n_micro_batch >= 2 * pp) & (pp % 2 == 0)

    def micro_batches_needed(self, pp: int, virtual_stages: int) -> str:
        """Even numbers of stages and micro-batches, and twice as many micro-batches as stages."""
        return "an even pp and an even number of at least 2*pp micro-batches"

    def in_flight(self, stage: int, pp: int, n_micro_batch: int, virtual_stages: int, kept_for_w: float = 1.0) -> float:
        """One more than there are stages, on every stage."""
        return float(pp + 1)

    def step_s(self, work: PipelineWork) -> Floats:
        """The bound, or the busiest stage and the bubble."""
        return np.maximum(work.bound_s, _dual_pipe_s(work))


def _dual_pipe_s(work: PipelineWork) -> Floats:
    """Step seconds [plan] of a schedule in which a forward of chunk q overlaps a backward of its mirror image on the stage."""
    pp, pair, alone = work.pp, _pair_s(work), work.whole_s.sum(axis=1)
    pair, alone = (0.5 * (part + part[:, ::-1]) for part in (pair, alone))
    stage = np.arange(pp)
    inner = np.minimum(stage, pp - 1 - stage)
    outer = pp // 2 - 1 - inner
    n_alone = 2 * pp - 2 - 2 * inner - outer + (outer == 0)
    _, b, w = work.mean_s.T
    bubble = (pp // 2 - 1) * np.maximum(pair.mean(axis=1) + b - 2.0 * w, 0.0)
    return ((work.n_micro_batch[:, None] - n_alone) * pair + n_alone * alone + work.end_s).max(axis=1) + bubble


def _pair_s(work: PipelineWork) -> Floats:
    """Returns the seconds [plan, chunk] of a chunk's forward that overlaps the backward of its mirror image."""
    sides = (slice(0, 1), slice(1, 3))
    busy = [work.compute_s[:, side].sum(axis=1) for side in sides]
    sent = [work.comm_s[:, side].sum(axis=1) for side in sides]
    free = [np.maximum(own - work.hidden_s[:, side].sum(axis=1), 0.0) for own, side in zip(busy, sides, strict=True)]
    forward_s = busy[0] + np.maximum(sent[0] - free[1][:, ::-1], 0.0)
    backward_s = busy[1] + np.maximum(sent[1] - free[0][:, ::-1], 0.0)
    return forward_s + backward_s[:, ::-1]


def _dual_pipe_names(stage: int, pp: int, half: int) -> list[str]:
    """Ops by name: F, B and W with the direction of their micro-batch, 0 from the near end and 1 from the far one."""
    inner = min(stage, pp - 1 - stage)  # distance from the nearer end
    outer = pp // 2 - 1 - inner  # distance from the middle
    fill = ["F0"] * (2 * outer) + ["F0", "F1"] * (inner + 1) + ["B1", "W1", "F1"] * outer
    steady = ["F0B1W1", "F1B0W0"] * (half - pp + inner + 1)
    if outer == 0:  # the middle stages run their first pair apart, which shortens the bubble
        steady[:1] = ["F0", "B1W1"]
    both = ("B1W1", "B0W0") * (inner + 1)
    put_off = ["W1" if index % 2 == 0 else "W0" for index in range(inner + 1, 2 * (inner + 1))] + ["W0"] * outer
    drain = ["B1W1", "F1B0W0"] * outer + [name if i <= inner else name[:2] for i, name in enumerate(both)]
    drain += [name for put in put_off[:outer] for name in (put, "B0")] + put_off[outer:]
    return fill + steady + drain
