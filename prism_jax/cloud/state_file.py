"""Work done and money spent so far by a running job: a page of JSON that `prism-jax cloud --resume` takes.

    {"steps_done": 120000, "elapsed": "3d", "spent_usd": 8123.5,
     "running": {"instance": "p5.48xlarge", "where": "use1-az2", "count": 4, "policy": "spot"}}

`running` may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import DataError, PrismError
from ..core.read_file import parse_json, read_text
from ..core.registry import did_you_mean
from ..core.units import parse
from ..tables.csv_rows import integer_field, number_field
from ..tables.document import short
from .requirements import WorkDone

MAX_BYTES = 2**16
KEYS = ("steps_done", "elapsed", "spent_usd", "running")
PLACE_KEYS = ("instance", "where", "count", "policy")
WHAT = 'a page of JSON: {"steps_done": 120000, "elapsed": "3d", "spent_usd": 8123.5}'


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
    steps, spent = (
        integer_field(found["steps_done"], "steps_done", str(path)),
        number_field(found["spent_usd"], "spent_usd", str(path)),
    )
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
