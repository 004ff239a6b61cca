"""The hosts of a job in the order of ranks: a file with one per line, or names with commas."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import DataError
from ..tables.csv_rows import read_packed_text
from ..tables.document import short

HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")  # what launchers take in a file of hosts
RANGE = re.compile(r"([^\[\],\s]*)\[([0-9,-]{1,2000})\]([^\[\],\s]*)")  # as Slurm writes lists: gpu[001-004,007]
NAMES = re.compile(r"(?:[^,\[\]\s]|\[[^\[\]]*\])+")
MAX_HOSTS = 1_000_000
MAX_NUMBER = 9  # digits


def read_hosts(source: str | Path | Sequence[str]) -> tuple[str, ...]:
    """Names of the job's hosts in the order of ranks.

    Args:
        source: names; or a file of hosts, a name first in each line, as mpirun, DeepSpeed and `scontrol show hostnames`
            write them;
            or a list with commas, as in Slurm's SLURM_JOB_NODELIST: `gpu[001-004,007]`.

    Raises:
        DataError: the file cannot be read, a name is none, or one stands there twice.
    """
    if not isinstance(source, (str, Path)):
        found, where = [*source], "--hosts"
    elif isinstance(source, Path) or Path(source).is_file():
        text = read_packed_text(Path(source), "a list of hosts")
        lines = (line.split("#")[0].split() for line in text.splitlines())
        found, where = [name for line in lines if line for name in _expanded(line[0], str(source))], str(source)
    else:
        found, where = _expanded(source, "--hosts"), "--hosts"
    seen: set[str] = set()
    for name in found:
        if not HOST.fullmatch(name):
            text = f"{short(name)} is no host name (letters, digits, dots, - and _), nor a file"
            raise DataError(f"{where}: {text}. Give a file with a host per line, or names with commas.")
        if name in seen:
            raise DataError(f"{where}: {name} stands there twice. Name every host once, in the order of ranks.")
        seen.add(name)
    if not found:
        raise DataError(f"{where}: no hosts. Give at least one name, or leave the option out.")
    return tuple(found)


def _expanded(text: str, where: str) -> list[str]:
    """Names of a list with commas; ranges in brackets are spelled out."""
    found: list[str] = []
    for part in NAMES.findall(text):
        ranged = RANGE.fullmatch(part)
        found += [part] if ranged is None else [ranged[1] + n + ranged[3] for n in _numbers(ranged[2], where)]
        if len(found) > MAX_HOSTS:
            raise DataError(f"{where}: more than {MAX_HOSTS:,} hosts")
    return [name for name in found if name]


def _numbers(text: str, where: str) -> list[str]:
    """Numbers of a range such as 001-004,007, with their leading zeros."""
    found: list[str] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if not (low.isdecimal() and (high or low).isdecimal()) or max(len(low), len(high)) > MAX_NUMBER:
            raise DataError(f"{where}: {short(part)} is no range of numbers such as 001-004")
        last = int(high or low)
        if last - int(low) >= MAX_HOSTS:
            raise DataError(f"{where}: more than {MAX_HOSTS:,} hosts")
        found += [str(n).zfill(len(low)) for n in range(int(low), last + 1)]
    return found
