"""What fits of start-up and of saves say of a job in the cloud: the time of a restart, and what a checkpoint costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._inference_loader import inference
from ...errors import DataError, FailedFitError
from ...horizon.checkpoint import Checkpoint, checkpoint_bytes
from ...job import Job

N_NODES = 8  # machines that are asked for together: a restart waits for the last of them
JOB_START_S = 120.0  # processes, communicators, compilation; where no --restart says it
SAVES, STARTUP = "saves", "startup"


@dataclass(frozen=True)
class SmallLaws:
    """What fits say.

    Attributes:
        start_up_s: until the last of `N_NODES` machines runs, on average; None: no fit says it.
        checkpoint: None: no fit says it.
        notes: what they are made of.
    """

    start_up_s: float | None = None
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()


def small_laws(job: Job, files: Sequence[str], *, seed: int = 0, force: bool = False) -> SmallLaws:
    """Of the files of `prism-jax fit` that are no calibration.

    Raises:
        DataError: a file is no fit, one of something else, or there are two of one kind.
        FailedFitError: a fit failed its checks and `force` is not set.
    """
    found = SmallLaws()
    kinds: dict[str, str] = {}
    for file in files:
        fit = inference().Fit.load(file)
        kind = fit.model.name
        if kind not in (STARTUP, SAVES):
            raise DataError(
                f"--fit {file}: a fit of {kind}, but a choice of cloud takes fits of startup and saves. Leave it out."
            )
        if kind in kinds:
            raise DataError(f"--fit: {kinds[kind]} and {file} both speak of {kind}. Name one of them.")
        kinds[kind] = file
        try:
            found = _with_start_up(found, fit, seed, force) if kind == STARTUP else _with_saves(found, fit, job, force)
        except FailedFitError as error:
            raise FailedFitError(error.why, file) from None
    return found


def _with_start_up(found: SmallLaws, fit: Any, seed: int, force: bool) -> SmallLaws:
    """The slower of the tiers that were measured."""
    rng = np.random.default_rng(seed)
    laws = [fit.law(tier, force=force) for tier in fit.data.tiers]
    seconds = [float(law.last_of(N_NODES, rng).mean()) for law in laws]
    at = int(np.argmax(seconds))
    note = f"machines start in {seconds[at]:.0f} s, the last of {N_NODES}: {laws[at].source}"
    return replace(found, start_up_s=seconds[at], notes=(*found.notes, note))


def _with_saves(found: SmallLaws, fit: Any, job: Job, force: bool) -> SmallLaws:
    law, n_bytes = fit.law(force=force), checkpoint_bytes(job)
    made = law.checkpoint(n_bytes)
    beyond = n_bytes > law.most_bytes
    far = f"; the largest that was measured is {law.most_bytes / 1e9:.3g} GB: its rate is taken on" if beyond else ""
    note = f"a checkpoint takes {made.blocking_s:.3g} s: {made.source}{far}"
    return replace(found, checkpoint=made, notes=(*found.notes, note))
