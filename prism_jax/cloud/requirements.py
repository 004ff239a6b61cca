"""Requirements of a choice of instances: work, time, money and probability; and what a running job has done and spent so far.

The latter is a page of JSON that `prism-jax cloud --resume` takes; `running` may be left out:

    {"steps_done": 120000, "elapsed": "3d", "spent_usd": 8123.5,
     "running": {"instance": "p5.48xlarge", "where": "use1-az2", "count": 4, "policy": "spot"}}
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isinf
from pathlib import Path
from typing import Any

from ..core.errors import DataError, PrismError, Problem, SpecError
from ..core.read_file import parse_json, read_text
from ..core.registry import did_you_mean
from ..core.units import parse
from ..tables.csv_rows import integer_field, number_field
from ..tables.document import short

MOST_WORLDS = 200_000
LEAST_WORLDS = 200


@dataclass(frozen=True)
class CloudRequirements:
    """Work, deadline, budget and settings of a search.

    Attributes:
        n_steps: to be done.
        deadline_s, budget_usd: infinite: none. Without a deadline but with a budget the shortest p95 time is looked for, else
            the least expected cost.
        prob: with which each of both is to be kept.
        restart_s: from available nodes to the first new step, without loading the checkpoint.
        interval_s: of work between checkpoints; None: the best.
        n_worlds, seed: simulated worlds.

    Raises:
        SpecError: a figure is out of range.
    """

    n_steps: int
    deadline_s: float = inf
    budget_usd: float = inf
    prob: float = 0.95
    restart_s: float = 300.0
    interval_s: float | None = None
    n_worlds: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field, told in (("deadline_s", "deadline"), ("budget_usd", "budget")):
            if not getattr(self, field) > 0.0:
                raise SpecError.of(Problem(told, f"{getattr(self, field):g}, but it must be above 0"))
        if not 0.0 < self.prob < 1.0:
            raise SpecError.of(Problem("prob", f"{self.prob:g}, but it must lie between 0 and 1"))
        if not 0.0 <= self.restart_s < 1e7:
            raise SpecError.of(Problem("restart", f"{self.restart_s:g} s, but it must be at least 0 and below 1e7"))
        if self.interval_s is not None and not 0.0 < self.interval_s < inf:
            raise SpecError.of(Problem("checkpoint", f"{self.interval_s:g} s, but it must be finite and above 0"))
        if not LEAST_WORLDS <= self.n_worlds <= MOST_WORLDS:
            text = f"{self.n_worlds:,}, but it must be between {LEAST_WORLDS:,} and {MOST_WORLDS:,}"
            raise SpecError.of(Problem("worlds", text))

    @property
    def wants_time(self) -> bool:
        """Whether time is to be short and money bounded, not the other way round."""
        return isinf(self.deadline_s) and not isinf(self.budget_usd)


MAX_BYTES = 2**16
KEYS = ("steps_done", "elapsed", "spent_usd", "running")
PLACE_KEYS = ("instance", "where", "count", "policy")
WHAT = 'a page of JSON: {"steps_done": 120000, "elapsed": "3d", "spent_usd": 8123.5}'


@dataclass(frozen=True)
class WorkDone:
    """Work that a running job has already done, and the time and money spent."""

    steps_done: int
    elapsed_s: float
    spent_usd: float


@dataclass(frozen=True)
class Running:
    """Instances that are rented now; names as reports spell them."""

    instance: str
    where: str
    count: int
    policy: str


@dataclass(frozen=True)
class CloudState:
    """Work done and money spent; `running` is None where the rented instances are not stated."""

    done: WorkDone
    running: Running | None = None


def read_cloud_state(path: str | Path) -> CloudState:
    """The state that a file describes.

    Raises:
        DataError: the file cannot be read, is no JSON, lacks a field, or says what no job can; names file and field.
    """
    found = _object(parse_json(read_text(path, MAX_BYTES, f"Give {WHAT}."), str(path)), KEYS, str(path))
    missing = [key for key in KEYS[:3] if key not in found]
    if missing:
        raise DataError(f"{path}: {missing[0]} is missing. Give {WHAT}.")
    steps = integer_field(found["steps_done"], "steps_done", str(path))
    spent = number_field(found["spent_usd"], "spent_usd", str(path))
    if steps is None or spent is None:
        raise DataError(f"{path}: steps_done or spent_usd is blank. Give {WHAT}.")
    running = found.get("running")
    done = WorkDone(steps, _elapsed(found["elapsed"], path), spent)
    return CloudState(done, None if running is None else _running(running, path))


def _elapsed(value: Any, path: str | Path) -> float:
    if not isinstance(value, str):
        raise DataError(f'{path}: elapsed = {short(value)}: write a time with its unit in quotes, such as "3d"')
    try:
        return parse(value, "time")
    except PrismError as error:
        raise DataError(f"{path}: elapsed: {error}") from None


def _running(value: Any, path: str | Path) -> Running:
    where = f"{path}: running"
    found = _object(value, PLACE_KEYS, where)
    missing = [key for key in PLACE_KEYS if key not in found]
    if missing:
        raise DataError(f"{where}: {missing[0]} is missing. State {', '.join(PLACE_KEYS)}.")
    count = integer_field(found["count"], "count", where)
    if not count:
        raise DataError(f"{where}: count = {short(found['count'])}, but at least one instance runs")
    return Running(str(found["instance"]), str(found["where"]), count, str(found["policy"]))


def _object(value: Any, keys: tuple[str, ...], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: {short(value)} is no JSON object. Give {WHAT}.")
    for key in value:
        if key not in keys:
            raise DataError(f"{where}: unknown field {short(key)}{did_you_mean(key, keys)}")
    return value
