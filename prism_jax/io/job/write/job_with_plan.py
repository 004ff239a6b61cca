"""A job file with another plan in it: what a search found, as a file that every command takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..override import apply_overrides
from ..read_job_file import read_job_file


def job_with_plan(
    job: str | Path, overrides: Sequence[str], chosen: Mapping[str, Any], dropped: Sequence[str], comment: str
) -> str:
    """YAML of the job of a file, with the fields of its plan that were chosen.

    Args:
        job, overrides: as in `load_job`.
        chosen: fields of the plan, as a job file spells them.
        dropped: fields of the plan that do not hold beside the chosen ones.
        comment: stands above everything.

    Raises:
        ConfigError: the file cannot be read, or an override is wrong.
    """
    data = apply_overrides(read_job_file(job), list(overrides)).data
    kept = {name: value for name, value in data["plan"].items() if name not in dropped}
    text = yaml.safe_dump({**data, "plan": {**kept, **chosen}}, sort_keys=False, allow_unicode=True)
    return "".join(f"# {line}\n" for line in comment.splitlines()) + text
