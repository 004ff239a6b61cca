"""Chooses among candidates: simulated in the order of their bounds until no other can be best or on the front, then promised.

Bounds hold world by world: what a job takes and costs if nothing interrupts it, at the least price. Worlds are paths of spot
capacity and factors on the step time, the same for all that are compared; in them a candidate has time, money and probabilities,
with Monte Carlo errors. Finalists are promised on fresh draws, each with its own mean step and its own doubts, and the gain of
the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import ceil, isinf, log2
from zlib import crc32

import numpy as np

from ..core.arrays import Floats
from ..core.errors import SpecError
from ..core.executor import ALONE, Workers, answers_in_order
from ..core.processes import Progress, silent
from ..graph.draws import typed_key
from ..horizon.outcome import Estimate
from .availability import Availability
from .candidates import CloudCandidate
from .completion import Ran, simulate
from .offers import Offer
from .requirements import CloudRequirements
from .spot import Paths

TOO_SLOW = "too slow for the deadline even if nothing interrupts it"
TOO_DEAR = "above the budget even at the least price without interruptions"
NEVER = "does not finish within {days:g} days"
MOST_WORK_S = 366 * 86400.0


@dataclass(frozen=True)
class Bound:
    """Lower bounds of one candidate's time and cost.

    Attributes:
        time_s, cost_usd: means over worlds, at most those of any simulation; late_s: the same of the p95.
        reason: why it cannot be feasible; empty if it can.
    """

    time_s: float
    late_s: float
    cost_usd: float
    reason: str


def bound_of(candidate: CloudCandidate, factors: Floats, wish: CloudRequirements) -> Bound:
    """Bound in the worlds of `factors`."""
    task = candidate.task
    busy_s = task.work_s * factors + task.n_interval * task.blocking_s
    time_s, cost_usd = (
        busy_s + (task.restart_s if task.first_s is None else task.first_s),
        busy_s * candidate.least_usd_per_s,
    )
    reason = ""
    if float(time_s.mean()) > MOST_WORK_S:
        reason = NEVER.format(days=MOST_WORK_S / 86400.0)
    elif float((time_s * LEAST <= wish.deadline_s).mean()) < wish.prob:
        reason = TOO_SLOW
    elif float((cost_usd * LEAST <= wish.budget_usd).mean()) < wish.prob:
        reason = TOO_DEAR
    late_s = float(np.quantile(time_s, 0.95, method="lower"))
    return Bound(float(time_s.mean()) * LEAST, late_s * LEAST, float(cost_usd.mean()) * LEAST, reason)


LEAST = 1.0 - 1e-4  # worlds are simulated in single precision


MOST_STRETCH = 4.0  # of the work, that paths are drawn for where there is no deadline
BEYOND = 1.25  # of the deadline
LEAST_S = 3 * 86_400.0  # so that short jobs outlast the gaps between spells
KEPT = 2  # sets of paths: 40 MB each with 10,000 worlds


class SpotDraws:
    """Draws of one seed.

    Args:
        level: [draw] equally likely factors on the step time: what is not known of it.
        fresh: another number gives other worlds.
    """

    def __init__(self, wish: CloudRequirements, level: Floats, fresh: int = 0) -> None:
        self._wish, self._seed = wish, (wish.seed, fresh)
        rng = np.random.default_rng([*self._seed, crc32(b"level")])
        self.factors = np.quantile(level, rng.random(wish.n_worlds))
        self._key = typed_key((wish.seed * 1009 + fresh) % 2**31)
        self._always = Paths.always(1, wish.n_worlds)
        self._paths: dict[tuple[Availability, int, int], Paths] = {}

    def run(self, candidate: CloudCandidate, factors: Floats | None = None) -> Ran:
        """The candidate in all worlds."""
        own = self.factors if factors is None else factors
        paths = self._always if candidate.law is None else self._of_law(candidate.law, candidate)
        return simulate(candidate.task, paths, candidate.policy, own, self._wish.deadline_s, key=self._key)

    def _of_law(self, law: Availability, candidate: CloudCandidate) -> Paths:
        """Paths up to a power of the root of two, in seconds, so that many candidates share them."""
        work_s = (
            candidate.task.work_s * float(self.factors.max()) + candidate.task.n_interval * candidate.task.blocking_s
        )
        deadline_s = self._wish.deadline_s
        needed_s = MOST_STRETCH * work_s if isinf(deadline_s) else max(BEYOND * deadline_s, work_s)
        power = ceil(2.0 * log2(max(needed_s, LEAST_S)))
        key = (law, candidate.count, power)
        if key not in self._paths:
            while len(self._paths) >= KEPT:
                self._paths.pop(next(iter(self._paths)))
            rng = np.random.default_rng([*self._seed, crc32(law.name.encode())])
            self._paths[key] = law.draw(candidate.count, self._wish.n_worlds, 2.0 ** (power / 2.0), rng)
        return self._paths[key]


TAIL = 0.95


@dataclass(frozen=True)
class CandidateOutcome:
    """Outcome of a candidate in the simulated worlds; [world].

    Attributes:
        offer: of the candidate's, the one at which it costs least.
        time_s, cost_usd: infinite where the job is never done.
    """

    candidate: CloudCandidate
    offer: Offer
    ran: Ran
    time_s: Floats
    cost_usd: Floats

    @classmethod
    def of(cls, candidate: CloudCandidate, ran: Ran) -> CandidateOutcome:
        """Returns the outcome of a candidate at its cheapest offer."""
        offer, _ = candidate.cheapest(ran)
        count = candidate.count
        cost = ran.cost_usd(*(count * (price or 0.0) for price in (offer.on_demand_usd_per_h, offer.spot_usd_per_h)))
        return cls(candidate, offer, ran, ran.time_s, np.where(np.isfinite(ran.time_s), cost, np.inf))

    @property
    def mean_usd(self) -> float:
        """Expected cost, USD."""
        return float(self.cost_usd.mean())

    @property
    def mean_s(self) -> float:
        """Expected wall time, seconds."""
        return float(self.time_s.mean())

    @property
    def late_s(self) -> float:
        """p95 of the wall time."""
        return _quantile(self.time_s, TAIL)

    def prob_by(self, deadline_s: float) -> Estimate:
        """Probability that the job is done by the deadline."""
        return _share(np.asarray(self.time_s <= deadline_s, float))

    def prob_within(self, budget_usd: float) -> Estimate:
        """Probability that the job costs at most the budget."""
        return _share(np.asarray(self.cost_usd <= budget_usd, float))

    def keeps(self, wish: CloudRequirements) -> bool:
        """Whether deadline and budget are kept with the probability that is asked for."""
        sure = [self.prob_by(wish.deadline_s), self.prob_within(wish.budget_usd)]
        return all(one.value >= wish.prob for one in sure) and np.isfinite(self.late_s)

    def value(self, wish: CloudRequirements) -> float:
        """Quantity that the search minimises."""
        return self.late_s if wish.wants_time else self.mean_usd

    def time_quantile(self, p: float) -> Estimate:
        """Quantile of the wall time, seconds."""
        return _estimate(self.time_s, lambda x: _quantile(x, p))

    def cost_quantile(self, p: float) -> Estimate:
        """Quantile of the cost, USD."""
        return _estimate(self.cost_usd, lambda x: _quantile(x, p))

    def cost_mean(self) -> Estimate:
        """Expected cost, USD."""
        return _estimate(self.cost_usd, lambda x: float(x.mean()))

    def time_mean(self) -> Estimate:
        """Expected wall time, seconds."""
        return _estimate(self.time_s, lambda x: float(x.mean()))

    def cost_cvar(self, p: float = TAIL) -> Estimate:
        """Mean cost of the worst `1 - p` of the worlds (CVaR), USD."""
        return _estimate(self.cost_usd, lambda x: float(np.sort(x)[int(np.ceil(p * len(x))) - 1 :].mean()))


def _quantile(values: Floats, p: float) -> float:
    """Quantile without interpolation, because a neighbouring world may never end."""
    return float(np.sort(values)[min(int(np.ceil(p * len(values))) - 1, len(values) - 1)])


def _share(kept: Floats) -> Estimate:
    return Estimate(float(kept.mean()), float(kept.std() / np.sqrt(len(kept))))


N_BATCH = 20  # of worlds, for Monte Carlo errors


def _estimate(values: Floats, figure: Callable[[Floats], float]) -> Estimate:
    parts = [figure(part) for part in np.array_split(values, N_BATCH)]
    value = figure(values)
    spread = float(np.std(parts, ddof=1)) if np.isfinite(parts).all() else float("inf")
    return Estimate(value, spread / np.sqrt(N_BATCH))


UNLIKELY_TIME = "misses the deadline too often"
UNLIKELY_MONEY = "exceeds the budget too often"
UNENDING = "some worlds do not end"


@dataclass(frozen=True)
class CloudChoice:
    """Result of a search.

    Attributes:
        best: None: nothing keeps what is asked.
        front: no other simulated or possible one is faster (mean) and cheaper (mean); cheapest first.
        simulated: all that were run, cheapest first.
        infeasible: reason -> candidates.
        n_candidates: all of them.
    """

    best: CandidateOutcome | None
    front: tuple[CandidateOutcome, ...]
    simulated: tuple[CandidateOutcome, ...]
    infeasible: Mapping[str, int]
    n_candidates: int


def search(
    candidates: Sequence[CloudCandidate],
    worlds: SpotDraws,
    wish: CloudRequirements,
    progress: Progress = silent,
    *,
    everything: bool = False,
    workers: Workers = ALONE,
) -> CloudChoice:
    """The best candidate, and the front of time and money, of which bounds leave most candidates out.

    Args:
        everything: leave none out; bounds hold world by world, so that the answer is the same.
        workers: processes that simulate candidates ahead; those that one process would leave out are left out again.
    """
    if not candidates:
        raise SpecError("cloud: no offer can run the job")
    bounds = [bound_of(one, worlds.factors, wish) for one in candidates]
    order = sorted(range(len(candidates)), key=lambda i: (bounds[i].cost_usd, i))
    infeasible: Counter[str] = Counter()
    simulated: list[CandidateOutcome] = []
    kept: list[CandidateOutcome] = []
    ahead: dict[int, CandidateOutcome] = {}
    for place, i in enumerate(order):
        if bounds[i].reason:
            infeasible[bounds[i].reason] += 1
            continue
        if not everything and not _may_matter(bounds[i], kept, wish):
            continue
        progress(place / len(order), f"simulating worlds of {len(order):,} candidates")
        if i not in ahead:
            able = (n for n in order[place:] if not bounds[n].reason)
            wanted = (n for n in able if everything or _may_matter(bounds[n], kept, wish))
            ahead = _simulated(candidates, list(islice(wanted, 1 if workers.is_alone else AHEAD)), worlds, workers)
        outcome = ahead[i]
        simulated.append(outcome)
        reason = _reason(outcome, wish)
        if reason:
            infeasible[reason] += 1
        else:
            kept.append(outcome)
    best = min(kept, key=lambda one: one.value(wish), default=None)
    return CloudChoice(best, front_of(kept), tuple(simulated), dict(infeasible), len(candidates))


AHEAD = 64  # candidates that workers simulate together


def _simulated(
    candidates: Sequence[CloudCandidate], chosen: Sequence[int], worlds: SpotDraws, workers: Workers
) -> dict[int, CandidateOutcome]:
    """Outcomes of some candidates; those with the same paths of spot capacity are one task."""
    groups: dict[object, list[int]] = {}
    for n in chosen:
        own = candidates[n]
        groups.setdefault(n if own.law is None else (own.law.name, own.count), []).append(n)
    tasks = [[candidates[n] for n in group] for group in groups.values()]
    found = answers_in_order(partial(_outcomes, worlds=worlds), tasks, workers)
    return {
        n: one for group, own in zip(groups.values(), found, strict=True) for n, one in zip(group, own, strict=True)
    }


def _outcomes(candidates: Sequence[CloudCandidate], *, worlds: SpotDraws) -> list[CandidateOutcome]:
    return [CandidateOutcome.of(one, worlds.run(one)) for one in candidates]


def _may_matter(bound: Bound, kept: Sequence[CandidateOutcome], wish: CloudRequirements) -> bool:
    """Whether a candidate can be best, or on the front."""
    best = min((one.value(wish) for one in kept), default=float("inf"))
    if (bound.late_s if wish.wants_time else bound.cost_usd) <= best:
        return True
    return not any(one.mean_usd <= bound.cost_usd and one.mean_s <= bound.time_s for one in kept)


def front_of(outcomes: Sequence[CandidateOutcome]) -> tuple[CandidateOutcome, ...]:
    """Returns the Pareto-optimal outcomes in mean time and mean cost, cheapest first; of equals the first."""
    found: list[CandidateOutcome] = []
    for one in sorted(outcomes, key=lambda o: (o.mean_usd, o.mean_s)):
        if not found or one.mean_s < found[-1].mean_s:
            found.append(one)
    return tuple(found)


def _reason(outcome: CandidateOutcome, wish: CloudRequirements) -> str:
    if outcome.prob_by(wish.deadline_s).value < wish.prob:
        return UNLIKELY_TIME
    if outcome.prob_within(wish.budget_usd).value < wish.prob:
        return UNLIKELY_MONEY
    return "" if outcome.keeps(wish) else UNENDING


N_RESAMPLED = 400
MOST_TRIED = 6
Refine = Callable[[CloudCandidate], tuple[float, Floats]]
"""Step of a candidate: its mean over the noise-free step, and sorted draws [draw] of its uncertainty."""


@dataclass(frozen=True)
class CloudGain:
    """The best against a reference in the same fresh worlds.

    Attributes:
        saved_usd, saved_s: [world].
        share, share_interval: of the mean cost that is saved, and its 90% interval over samples of the worlds.
    """

    reference: CandidateOutcome
    saved_usd: Floats
    saved_s: Floats
    share: float
    share_interval: tuple[float, float]


class Fresh:
    """Fresh worlds, in which candidates are run as they are promised."""

    def __init__(self, wish: CloudRequirements, refine: Refine) -> None:
        self._wish, self._refine = wish, refine
        self._ranks = np.random.default_rng([wish.seed, 1, 7]).random(wish.n_worlds)
        self._worlds = SpotDraws(wish, np.ones(1), fresh=1)
        self._kept: dict[int, CandidateOutcome] = {}

    def outcome(self, candidate: CloudCandidate) -> CandidateOutcome:
        """The candidate with its own factors; the same rank of them in every world for all candidates."""
        if id(candidate) not in self._kept:
            ratio, level = self._refine(candidate)
            self._kept[id(candidate)] = self._run(candidate, ratio * np.quantile(level, self._ranks))
        return self._kept[id(candidate)]

    def _run(self, candidate: CloudCandidate, factors: Floats) -> CandidateOutcome:
        mean = float(factors.mean())
        longer = replace(candidate, task=replace(candidate.task, work_s=candidate.task.work_s * mean))
        return CandidateOutcome.of(longer, self._worlds.run(longer, factors / mean))


def promised(candidates: Sequence[CloudCandidate], fresh: Fresh, wish: CloudRequirements) -> CandidateOutcome | None:
    """Returns the first of some candidates, best first, that keeps the requirements on fresh draws, too."""
    found = (fresh.outcome(one) for one in candidates[:MOST_TRIED])
    return next((one for one in found if one.keeps(wish)), None)


def gain_of(best: CandidateOutcome, reference: CandidateOutcome, seed: int) -> CloudGain:
    """Compares two candidates in the same worlds."""
    saved = reference.cost_usd - best.cost_usd
    rng = np.random.default_rng([seed, 2])
    n = len(saved)
    rows = rng.integers(0, n, (N_RESAMPLED, min(n, 2000)))
    shares = np.sort(saved[rows].mean(axis=1) / reference.cost_usd[rows].mean(axis=1))
    scale = (rows.shape[1] / n) ** 0.5  # of the spread of fewer worlds
    share = float(saved.mean() / reference.cost_usd.mean())
    low, high = (share + scale * (float(np.quantile(shares, p)) - share) for p in (0.05, 0.95))
    return CloudGain(reference, saved, reference.time_s - best.time_s, share, (low, high))
