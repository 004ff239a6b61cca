r"""Reads the step times of a text with a regular expression of the user, whose named groups say what they find.

    --pattern 'upd (?P<step>\d+) .* took (?P<time_ms>[\d.]+)'

| group | what it finds |
|---|---|
| step | number of the step; without it, lines are counted |
| time, time_s, time_ms, time_us | seconds of the step, in the unit of the name; `time` in that of --unit |
| steps_per_s | rate of steps |
| rate | work per second, with --work-per-step |
| clock | time of day or since the start, in seconds or as text |
| rank | of the process that wrote the line; a step is as slow as its slowest rank |

The expression is searched in another process, which is ended when a few thousand lines take too long: an expression may take time
that grows exponentially with a line, and nothing in Python bounds that from within. Of a line the first 4,096 characters count.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

from ...core.errors import DataError
from ...tables.streams import lines
from ...trace.step_log import Stated, StepLog
from .scalars import ScalarNames, ScalarRow, read_scalars

MOST_CHARACTERS = 4096
BLOCK_LINES = 2000
MOST_SECONDS = 10.0  # for a block
LONGEST_PATTERN = 2000
TIMES = {"time": None, "time_s": 1.0, "time_ms": 1e-3, "time_us": 1e-6}
RATES = ("steps_per_s", "rate")
GROUPS = ("step", *TIMES, *RATES, "clock", "rank")
_SEARCH = """
import json, re, sys
pattern = re.compile(json.loads(sys.stdin.readline()))
for block in sys.stdin:
    found = [(number, match.groupdict()) for number, text in json.loads(block) if (match := pattern.search(text))]
    print(json.dumps(found), flush=True)
"""


def read_by_pattern(path: Path, stated: Stated) -> StepLog:
    """The step times that the stated pattern finds in a text.

    Raises:
        DataError: no regular expression, an unknown group, no time among the groups, nothing found, or it takes too long.
    """
    pattern = stated.pattern or ""
    time, rate, groups = _groups(pattern)
    unit_s = TIMES.get(time or "") or stated.unit_s
    work: float | None = None
    if rate is not None:
        work = 1.0 if rate == "steps_per_s" else stated.per_step
        if work is None:
            raise DataError("--pattern: the group rate needs the work of a step. Add --work-per-step N.")
    names = ScalarNames(
        step="step" if "step" in groups else None,
        time=time or rate,
        unit_s=1.0 if rate is not None else unit_s,
        clock="clock" if "clock" in groups else None,
        clock_unit_s=None,
        is_mean=rate is not None,
        work=work,
        ranks=("rank",) if "rank" in groups and (time or rate) else (),
        is_log=True,
    )
    rows = (row._replace(values=_plain(row.values)) for row in _rows(path, pattern))
    return read_scalars(path, names, rows, "by --pattern")


def _groups(pattern: str) -> tuple[str | None, str | None, set[str]]:
    """The groups of a time and of a rate, and all of them."""
    if len(pattern) > LONGEST_PATTERN:
        raise DataError(f"--pattern: more than {LONGEST_PATTERN:,} characters.")
    try:
        groups = set(re.compile(pattern).groupindex)
    except (re.error, RecursionError, OverflowError) as error:
        raise DataError(f"--pattern: not a regular expression: {error}") from None
    unknown = sorted(groups - set(GROUPS))
    if unknown:
        raise DataError(f"--pattern: unknown group {unknown[0]}. Groups are {', '.join(GROUPS)}.")
    times = [name for name in (*TIMES, *RATES) if name in groups]
    if len(times) > 1:
        raise DataError(f"--pattern: {' and '.join(times)} both say how long a step takes. Keep one.")
    if not times and not {"clock", "step"} <= groups:
        raise DataError(
            "--pattern: no group says how long a step takes. Name one, for example (?P<time_ms>[\\d.]+), or step and clock."
        )
    if "rank" in groups and "step" not in groups:
        raise DataError("--pattern: with a group rank, a group step says which lines are of one step. Name one.")
    found = times[0] if times else None
    return (None, found, groups) if found in RATES else (found, None, groups)


def _rows(path: Path, pattern: str) -> Iterator[ScalarRow]:
    found_any = False
    with _Search(pattern) as search:
        block: list[tuple[int, str]] = []
        for number, line in lines(path, cut=True):
            block.append((number, line[: 4 * MOST_CHARACTERS].decode("utf-8", "replace")[:MOST_CHARACTERS]))
            if len(block) == BLOCK_LINES:
                yield from (found := search.find(path, block))
                found_any, block = found_any or bool(found), []
        found = search.find(path, block)
        yield from found
    if not found_any and not found:
        raise DataError(f"{path}: --pattern {pattern!r} is found in no line.")


class _Search:
    """The process that searches."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._process: Any = None

    def __enter__(self) -> _Search:
        command = [sys.executable, "-I", "-c", _SEARCH]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(self._pattern)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def _send(self, value: object) -> None:
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def find(self, path: Path, block: list[tuple[int, str]]) -> list[ScalarRow]:
        """Finds the pattern in some lines."""
        timer = Timer(MOST_SECONDS, self._process.kill)
        timer.start()
        try:
            self._send(block)
            answer = self._process.stdout.readline()
        except OSError:
            answer = b""
        finally:
            timer.cancel()
        if not answer:
            raise DataError(
                f"{path}: --pattern {self._pattern!r} takes more than {MOST_SECONDS:g} s for {len(block):,} lines. Avoid a "
                "repeat inside a repeat, and say what stands between the groups."
            )
        return [ScalarRow(f"{path}:{number}", groups) for number, groups in json.loads(answer)]


def _plain(values: Any) -> dict[str, Any]:
    return {name: value.replace(",", "") if name != "clock" and value else value for name, value in values.items()}
