"""A file of the values that each knob of a plan may take in a search; knobs that are left out keep their default values.

tp: [1, 2, 4, 8]
schedule: [1f1b, interleaved]
recompute: full            # a single value stands for a list of one
overlap_dp: [true, false]
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, create_model

from ..core.errors import ConfigError
from ..core.kernels import RECOMPUTE
from ..core.registry import Registry
from ..job.reading import DocumentReader
from ..job.schema import STRICT, Count, Flag, one_of
from ..plan.plan import SHARDING
from ..schedule.registry import SCHEDULES
from ..tables.yaml_toml import read_mapping
from .space import SWITCH, PlanSpace

FORM = "a space of plans is a mapping of knobs to lists of values, such as `tp: [1, 2, 4]`"
MOST_VALUES = 64
SWITCHES = tuple(knob.name for knob in fields(PlanSpace) if knob.default == SWITCH)
NAMED: dict[str, Iterable[str] | Registry[Any]] = {"schedule": SCHEDULES, "recompute": RECOMPUTE, "sharding": SHARDING}


def read_space(path: str | Path, default: PlanSpace) -> PlanSpace:
    """`default` with the values that a YAML or TOML file gives.

    Raises:
        ConfigError: everything that is wrong, one line per mistake.
    """
    if not os.path.exists(path):
        raise ConfigError.in_file(path, "no such file.")
    document = read_mapping(str(path), FORM, f"{FORM[0].upper()}{FORM[1:]}.")
    reading = DocumentReader(document)
    checked = reading.validated(_model(), document.data, ())
    if checked is None:
        raise ConfigError(reading.found)
    given = {name: tuple(values) for name, values in checked.model_dump(exclude_none=True).items()}
    for name in SWITCHES:
        if name in given:
            given[name] = tuple(int(value) for value in given[name])
    return replace(default, **given)


def _model() -> Any:
    made: dict[str, Any] = {field.name: (_kind(field.name), None) for field in fields(PlanSpace)}
    return create_model("Space", __config__=STRICT, **made)


def _kind(name: str) -> Any:
    if name in SWITCHES:
        item: Any = Flag
    elif name in NAMED:
        item = one_of(NAMED[name])
    elif name == "zero_stage":
        item = Annotated[int, Field(strict=True, ge=0, le=3)]
    else:
        item = Count
    listed: Any = Annotated[list[item], Field(min_length=1, max_length=MOST_VALUES), BeforeValidator(_listed)]
    return listed | None


def _listed(value: object) -> object:
    return value if isinstance(value, list) or value is None else [value]
