"""What is needed to repeat a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..codec import Json


@dataclass(frozen=True)
class RunRecord:
    """Versions, inputs and seed of a run.

    Attributes:
        versions: package -> version; None where it is not installed.
        git_revision: of the checkout; None outside one.
        inputs: what was asked for.
        seed: None where nothing is drawn.
    """

    versions: Mapping[str, str | None]
    git_revision: str | None
    inputs: Mapping[str, Json]
    seed: int | None
