"""Predicting a whole training run: when it is done, with what probability; what `prism-jax job` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..._core.archive import kind_of
from ..._inference_loader import inference
from ...errors import DataError, Problem, SpecError
from ...horizon.checkpoint import DISK, Checkpoint, checkpoint_bytes
from ...horizon.recovery import Recovery
from ...horizon.reliability import Reliability, of_mtbf
from ...io.reliability import load_reliability
from ...io.write import run_record
from ...job import Job
from ...progress import Progress, silent
from ...report.types.horizon.run import RunReport
from ...start_jax import keep_programs
from ..fitted.load_fits import FitFiles, calibrated_job, with_variability
from ..jobs import JobSource, loaded, source_of

if TYPE_CHECKING:
    from ...horizon.outcome import RunOutcome
    from ...horizon.run import TrainingRun
    from ...plot.figure import Figure

RESTART_S = 660.0  # median retry of 504 B200: 11 min (arXiv 2605.09370)
DEFAULT_WORLDS = 10_000
MOST_WORLDS = 1_000_000


@dataclass(frozen=True)
class HorizonRun:
    """A run with what its report was made of.

    Attributes:
        outcome, known: over all, and over chance alone; None where nothing is said of failures.
    """

    report: RunReport
    run: TrainingRun
    outcome: RunOutcome | None
    known: RunOutcome | None

    def figure(self) -> Figure:
        """When the run is done, and where its time goes; the response over the time between failures where that is not known."""
        from ...horizon.advice import response
        from ...plot import plot_run, plot_unknown_run  # here, so that runs without a picture do not pay for it

        told = self.report
        title = f"{told.job.name}: {told.n_steps:,} steps on {told.job.n_devices:,} x {told.job.device}"
        if self.outcome is not None and self.known is not None:
            return plot_run(self.outcome, self.known, title, told.deadline and told.deadline.deadline_s)
        return plot_unknown_run(response(self.run), told.n_steps * told.step_s, f"{title}: nothing is said of failures")


def predict_run(job: JobSource, **options: object) -> RunReport:
    """When a training run is done, with what probability, and where its time goes; arguments as those of `run_horizon`.

    Example:
        >>> print(predict_run("llama3_405b_16384", n_steps=100_000, reliability="llama3-2024"))  # doctest: +SKIP
    """
    return run_horizon(job, **options).report  # type: ignore[arg-type]


FIT = "fit"  # kind of archive


def run_horizon(
    job: JobSource,
    *,
    n_steps: int | None = None,
    n_tokens: float | None = None,
    overrides: Sequence[str] = (),
    reliability: Reliability | str | Path | None = None,
    mtbf_h: float | None = None,
    checkpoint: Checkpoint | None = None,
    interval_s: float | None = None,
    recovery: Recovery | None = None,
    deadline_s: float | None = None,
    fits: FitFiles = (),
    force: bool = False,
    n_worlds: int = DEFAULT_WORLDS,
    seed: int = 0,
    progress: Progress = silent,
) -> HorizonRun:
    """Predicts a training run.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        n_steps, n_tokens: one of both; tokens are what the job counts (samples, images).
        overrides: "section.field=value" texts that replace fields of a file.
        reliability: what interrupts the job: an object, a preset, a file, or a fit of `fit failures` or `fit repairs` (what it
            says of a cluster that was not measured; `Fit.reliability` names one that was).
        mtbf_h: instead, the mean hours between its interruptions.
        checkpoint: None: from the size of the states, written to a parallel file system; told as assumed.
        interval_s: of work between checkpoints; None: that of `checkpoint`, or the best one.
        recovery: None: a restart of 11 minutes; told as assumed.
        deadline_s: None: no deadline.
        fits: files of `prism-jax fit` or `calibrate` to apply.
        force: use a fit even where its verdict is failed.
        n_worlds: simulated.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        ConfigError, DataError, FitError, SpecError: a file or an argument is wrong, or the job makes no progress.
    """
    from ...horizon.run import steps_of

    keep_programs()
    own, rest = calibrated_job(loaded(job, overrides), fits)
    threats = _threats(own, reliability, mtbf_h, force)
    _check_numbers(deadline_s, n_worlds)
    count = steps_of(own, n_steps, n_tokens)
    assumed: list[str] = []
    made = _checkpoint(own, checkpoint, interval_s, assumed)
    after = recovery or _recovery(assumed)
    fitted = with_variability(own, rest, seed=seed, force=force, progress=progress)
    inputs = {
        "job": source_of(job),
        "set": list(overrides),
        "steps": n_steps,
        "tokens": n_tokens,
        "reliability": threats.name if threats else None,
        "mtbf_h": mtbf_h,
        "checkpoint": made.interval_s,
        "deadline_s": deadline_s,
        "fit": list(fits),
        "worlds": n_worlds,
    }
    from .simulated import Asked, simulated  # needs JAX, which mistakes above do not wait for

    asked = Asked(count, threats, made, after, deadline_s, n_worlds, seed, tuple(assumed))
    return HorizonRun(*simulated(fitted, asked, run_record(inputs, seed), progress))


def _threats(
    job: Job, reliability: Reliability | str | Path | None, mtbf_h: float | None, force: bool
) -> Reliability | None:
    """What interrupts the job; None where nothing is said."""
    if reliability is not None and mtbf_h is not None:
        raise DataError("reliability and mtbf: both say how often the job is interrupted. Keep one.")
    if mtbf_h is not None:
        return of_mtbf(mtbf_h, job.plan.n_devices)
    return threats_of(reliability, force=force)


def threats_of(reliability: Reliability | str | Path | None, *, force: bool = False) -> Reliability | None:
    """What interrupts jobs, by an object, a preset, a file, or a fit; None where nothing is said.

    Raises:
        DataError, FitError, SpecError: the file is none of these, or a fit whose verdict is failed, without `force`.
    """
    if reliability is None or isinstance(reliability, Reliability):
        return reliability
    if kind_of(reliability) == FIT:
        return inference().Fit.load(str(reliability)).reliability(force=force)
    return load_reliability(reliability)


def _check_numbers(deadline_s: float | None, n_worlds: int) -> None:
    if deadline_s is not None and not 0.0 < deadline_s < float("inf"):
        raise SpecError.of(Problem("deadline", f"{deadline_s:g} s, but it must be finite and above 0"))
    if not 100 <= n_worlds <= MOST_WORLDS:
        raise SpecError.of(Problem("worlds", f"{n_worlds:,}, but it must be between 100 and {MOST_WORLDS:,}"))


def _checkpoint(job: Job, stated: Checkpoint | None, interval_s: float | None, assumed: list[str]) -> Checkpoint:
    """What checkpoints cost; where that is not stated, by size and a parallel file system."""
    if stated is not None:
        return stated if interval_s is None else replace(stated, interval_s=interval_s)
    n_node = -(-job.plan.n_devices // job.cluster.node_size)
    made = Checkpoint.of_bytes(checkpoint_bytes(job), n_node, (DISK,), interval_s)
    assumed.append(
        f"checkpoints block {made.blocking_s:.3g} s: {made.source} at {DISK.gb_per_s_node:g} GB/s each, at most "
        f"{DISK.gb_per_s_cluster:g} GB/s (as BLOOM and Llama 3 report); state --checkpoint-write"
    )
    return made


def _recovery(assumed: list[str]) -> Recovery:
    assumed.append(
        f"a restart takes {RESTART_S / 60:g} min (median of 504 B200, arXiv 2605.09370) besides the load; state --restart"
    )
    return Recovery(RESTART_S)
