"""The search: candidates in the order of their bounds, simulated until no other can be best or on the front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import SpecError
from ...progress import Progress, silent
from .bounds import Bound, bound_of
from .candidate import Candidate
from .outcome import Outcome
from .wish import Wish
from .worlds import Worlds

UNLIKELY_TIME = "misses the deadline too often"
UNLIKELY_MONEY = "exceeds the budget too often"
UNENDING = "some worlds do not end"


@dataclass(frozen=True)
class Choice:
    """What a search found.

    Attributes:
        best: None: nothing keeps what is asked.
        front: no other simulated or possible one is faster (mean) and cheaper (mean); cheapest first.
        simulated: all that were run, cheapest first.
        infeasible: reason -> candidates.
        n_candidates: all of them.
    """

    best: Outcome | None
    front: tuple[Outcome, ...]
    simulated: tuple[Outcome, ...]
    infeasible: Mapping[str, int]
    n_candidates: int


def search(candidates: Sequence[Candidate], worlds: Worlds, wish: Wish, progress: Progress = silent) -> Choice:
    """The best candidate, and the front of time and money, of which bounds leave most candidates out.

    Notes: bounds hold world by world, so that the answer is that of simulating everything (`exhaustive`).
    """
    return _search(candidates, worlds, wish, progress, everything=False)


def exhaustive(candidates: Sequence[Candidate], worlds: Worlds, wish: Wish) -> Choice:
    """The same without bounds: for tests, and for small catalogues."""
    return _search(candidates, worlds, wish, silent, everything=True)


def _search(
    candidates: Sequence[Candidate], worlds: Worlds, wish: Wish, progress: Progress, *, everything: bool
) -> Choice:
    if not candidates:
        raise SpecError("cloud: no offer can run the job")
    bounds = [bound_of(one, worlds.factors, wish) for one in candidates]
    order = sorted(range(len(candidates)), key=lambda i: (bounds[i].cost_usd, i))
    infeasible: Counter[str] = Counter()
    simulated: list[Outcome] = []
    kept: list[Outcome] = []
    for place, i in enumerate(order):
        if bounds[i].reason:
            infeasible[bounds[i].reason] += 1
            continue
        if not everything and not _may_matter(bounds[i], kept, wish):
            continue
        progress(place / len(order), f"simulating worlds of {len(order):,} candidates")
        outcome = Outcome.of(candidates[i], worlds.run(candidates[i]))
        simulated.append(outcome)
        reason = _reason(outcome, wish)
        if reason:
            infeasible[reason] += 1
        else:
            kept.append(outcome)
    best = min(kept, key=lambda one: one.value(wish), default=None)
    return Choice(best, front_of(kept), tuple(simulated), dict(infeasible), len(candidates))


def _may_matter(bound: Bound, kept: Sequence[Outcome], wish: Wish) -> bool:
    """Whether a candidate can be best, or on the front."""
    best = min((one.value(wish) for one in kept), default=float("inf"))
    if (bound.late_s if wish.wants_time else bound.cost_usd) <= best:
        return True
    return not any(one.mean_usd <= bound.cost_usd and one.mean_s <= bound.time_s for one in kept)


def front_of(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Those that no other beats in mean time and mean cost, cheapest first; of equals the first."""
    found: list[Outcome] = []
    for one in sorted(outcomes, key=lambda o: (o.mean_usd, o.mean_s)):
        if not found or one.mean_s < found[-1].mean_s:
            found.append(one)
    return tuple(found)


def _reason(outcome: Outcome, wish: Wish) -> str:
    if outcome.prob_by(wish.deadline_s).value < wish.prob:
        return UNLIKELY_TIME
    if outcome.prob_within(wish.budget_usd).value < wish.prob:
        return UNLIKELY_MONEY
    return "" if outcome.keeps(wish) else UNENDING
