"""What a change moved: predictions now over those that were written, by quantity and by groups of jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .jobs import GateJob
from .predicted import NAMES, Predicted

STEPS = (0.005, 0.02, 0.10)  # relative changes that are told apart
LARGEST = 10
ROUNDED = 1e-4  # changes below this are those of five digits
GROUPS = ("framework", "generation", "precision", "n_devices")


class Move(NamedTuple):
    """Relative change of one quantity of one job."""

    job: GateJob
    quantity: str
    old_s: float
    new_s: float

    @property
    def change(self) -> float:
        """New over old, minus one."""
        return self.new_s / self.old_s - 1.0


@dataclass(frozen=True)
class Comparison:
    """Moves of all jobs that both sides know, and names of the others."""

    moves: tuple[Move, ...]
    only_now: tuple[str, ...]
    only_before: tuple[str, ...]

    @property
    def largest(self) -> list[Move]:
        """Moves, largest first."""
        return sorted(self.moves, key=lambda move: (-abs(move.change), move.job.job.name, move.quantity))

    def exceeds(self, limit: float) -> bool:
        """Whether a quantity moved by more than `limit`, or jobs differ."""
        return bool(self.only_now or self.only_before) or any(abs(move.change) > limit for move in self.moves)


def compare(
    jobs: Sequence[GateJob], now: Mapping[str, Predicted], before: Mapping[str, Predicted], *, is_whole: bool = True
) -> Comparison:
    """Predictions against those that were written; `is_whole`: `jobs` are all there are, so that others are missing."""
    moves = [
        Move(one, name, getattr(before[one.job.name], name), getattr(now[one.job.name], name))
        for one in jobs
        if one.job.name in before
        for name in NAMES
    ]
    return Comparison(
        tuple(moves),
        tuple(sorted(set(now) - set(before))),
        tuple(sorted(set(before) - set(now))) if is_whole else (),
    )


def lines(found: Comparison) -> Iterator[str]:
    """The comparison as text."""
    n_job = len(found.moves) // len(NAMES)
    yield f"{n_job} jobs; {len(found.only_now)} new, {len(found.only_before)} gone"
    yield from (f"  {sign} {name}" for sign, names in _unmatched(found) for name in names[:LARGEST])
    yield ""
    yield f"{'':<28}{'jobs':>6}" + "".join(f"{f'up > {step:.1%}':>14}{f'down > {step:.1%}':>14}" for step in STEPS)
    for name in NAMES:
        yield _counts(name, [move for move in found.moves if move.quantity == name])
    for group in GROUPS:
        yield f"p50_s by {group}"
        by = defaultdict(list)
        for move in found.moves:
            if move.quantity == NAMES[0]:
                by[getattr(move.job, group)].append(move)
        yield from (_counts(f"  {name}", by[name]) for name in sorted(by))
    large = [move for move in found.largest[:LARGEST] if abs(move.change) > ROUNDED]
    yield "largest" if large else "nothing moved by more than 0.01%"
    for move in large:
        yield f"  {move.change:+8.2%}  {move.quantity:<7}{move.old_s:>11.5g} -> {move.new_s:<11.5g}{move.job.job.name}"


def _unmatched(found: Comparison) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (("+", found.only_now), ("-", found.only_before))


def _counts(name: str, moves: Sequence[Move]) -> str:
    """How many moved up and down by more than each step."""
    cells = [f"{sum(sign * move.change > step for move in moves) or '.':>14}" for step in STEPS for sign in (1.0, -1.0)]
    return f"{name:<28}{len(moves):>6}" + "".join(cells)
