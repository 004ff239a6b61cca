"""Which model a row trains: the plug for families of models.

A family is a module with `MODELS`, a tuple of `ModelOf`; it is one name in `FAMILIES`. The first rule whose pattern matches the
name of a row and that returns a model wins; a row that none knows is no job.
"""

from __future__ import annotations

import re

from experiments.nonllm_tables import cnns, encoders
from experiments.nonllm_tables.row import TableRow
from experiments.nonllm_tables.rule import Made

FAMILIES = (encoders, cnns)


def model_of(row: TableRow) -> Made | None:
    """The model of a row; None if no family knows it."""
    rules = (rule for family in FAMILIES for rule in family.MODELS)
    found = (rule.make(row) for rule in rules if re.match(rule.pattern, row.name, re.IGNORECASE))
    return next((made for made in found if made is not None), None)
