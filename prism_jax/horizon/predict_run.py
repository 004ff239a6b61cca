"""Predicting a whole training run: when it is done, with what probability; what `prism-jax run` does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Annotated, Any

from .._inference_loader import inference
from ..core.archive import kind_of
from ..core.errors import DataError, Problem, SpecError
from ..core.processes import Progress, keep_programs, silent
from ..core.units import seconds_of
from ..core.use_case import NOT_TYPED, Option, OptionGroup, noted, use_case
from ..fits.load_fits import calibrated_job, with_variability
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..result.parameters import Fits, Force, Overrides, Seed
from .checkpoint import DISK, Checkpoint, Recovery, checkpoint_bytes
from .reliability import Reliability, of_mtbf
from .reliability_file import load_reliability, preset_for
from .report import RunReport

RESTART_S = 660.0  # median retry of 504 B200: 11 min (arXiv 2605.09370)
RELIABILITY = "Failures: a preset (`prism-jax show reliability`), a YAML or TOML file, or a fit of failures."
INTERVAL = "Work between checkpoints, 600s; auto: the best by the exact form."
AUTO = "auto"
COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
DEFAULT_WORLDS = 10_000
MOST_WORLDS = 1_000_000
MOST_DIGITS = 7  # of a number of nodes


def hours_of(option: str, text: str) -> float:
    """Hours of an option such as "3h"."""
    return seconds_of(option, text) / 3600.0


def count_of(option: str, text: str) -> float:
    """Tokens from "15.6T"; T is 1e12, B is 1e9.

    Raises:
        DataError: it is no number.
    """
    unit = text[-1:].upper() if text[-1:].upper() in COUNTS else ""
    try:
        return float(text[:-1] if unit else text) * COUNTS[unit]
    except ValueError:
        raise DataError(f"{option}: {text!r} is not a number. Write 15.6T, 300B or 1e12.") from None


def spares_of(option: str, text: str) -> int | None:
    """Number of spare nodes; None of "auto".

    Raises:
        DataError: it is neither.
    """
    if text != AUTO and not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        shown = f"{text[:80]!r}, but it must be auto or a number of nodes of at most {MOST_DIGITS} digits"
        raise DataError(f"{option}: {shown}")
    return None if text == AUTO else int(text)


def interval_of(option: str, text: str) -> float | None:
    """Seconds between checkpoints; None of "auto"."""
    return None if text == AUTO else seconds_of(option, text)


ReliabilitySource = Annotated[Reliability | str | Path | None, Option("--reliability", "PRESET|FILE", help=RELIABILITY)]
Interval = Annotated[
    float | None, Option("--checkpoint", "auto|TIME", parse=interval_of, default=AUTO, key=None, help=INTERVAL)
]
Steps = Annotated[int | None, Option("--steps", "N", key="steps", help="Steps to be done.")]
Tokens = Annotated[
    float | None,
    Option("--tokens", "T", key="tokens", parse=count_of, help="Tokens (samples) to be done: 15.6T, 300B, 1e12."),
]


@dataclass(frozen=True)
class WorkOptions(OptionGroup):
    """Work to be done: one of both; tokens are what the job counts (samples, images)."""

    n_steps: Steps = None
    n_tokens: Tokens = None


@dataclass(frozen=True)
class FailureOptions(OptionGroup):
    """Interruptions of the job: one of both; the published rates of such devices where neither is stated.

    Attributes:
        mtbf_h: mean time between interruptions of this job, e.g. 3h, in place of --reliability.
    """

    heading = "Failures and restarts"
    reliability: ReliabilitySource = None
    mtbf_h: Annotated[float | None, Option("--mtbf", "TIME", parse=hours_of)] = None


@dataclass(frozen=True)
class CheckpointOptions(OptionGroup):
    """Costs of checkpoints, and how often they are written.

    Attributes:
        checkpoint: all costs as one; None: those stated by the others, or from the size of the states, written to a parallel
            file system, and told as assumed.
        interval_s: work between checkpoints, 600s; auto: the best by the exact form.
        blocking_s: time that training is blocked per checkpoint, e.g. 40s.
        behind_s: time from then until the checkpoint can be loaded (asynchronous saves).
        load_s: time to load a checkpoint; default: as long as it is written (reported as assumed).
    """

    heading = "Checkpoints"
    checkpoint: Annotated[Checkpoint | None, NOT_TYPED] = None
    interval_s: Interval = None
    blocking_s: Annotated[float | None, Option("--checkpoint-write", "TIME", parse=seconds_of)] = None
    behind_s: Annotated[float | None, Option("--checkpoint-behind", "TIME", parse=seconds_of)] = None
    load_s: Annotated[float | None, Option("--load", "TIME", parse=seconds_of)] = None

    def stated(self) -> Checkpoint | None:
        """The checkpoint that is stated; None where nothing is."""
        if self.checkpoint is not None:
            return self.checkpoint
        if self.blocking_s is None:
            if self.behind_s is not None or self.load_s is not None:
                text = "--checkpoint-behind and --load: say with --checkpoint-write what training waits for, too"
                raise DataError(text)
            return None
        behind_s = self.behind_s or 0.0
        return Checkpoint(self.blocking_s, behind_s, self.blocking_s + behind_s if self.load_s is None else self.load_s)

    def assumed(self, made: Checkpoint) -> tuple[str, ...]:
        """Notes on what was not stated of the checkpoints `made`, and what was taken instead."""
        if self.checkpoint is not None:
            return ()
        if self.blocking_s is None:
            rates = f"{DISK.gb_per_s_node:g} GB/s each, at most {DISK.gb_per_s_cluster:g} GB/s"
            told = f"checkpoints block {made.blocking_s:.3g} s: {made.source} at {rates} (as BLOOM and Llama 3 report)"
            return (f"{told}; state --checkpoint-write",)
        told = f"a checkpoint takes {made.load_s:.3g} s to load, as long as to write it; state --load"
        return (told,) if self.load_s is None else ()

    def inputs(self) -> dict[str, Any]:
        """The interval alone."""
        return {"checkpoint": self.interval_s}


@dataclass(frozen=True)
class Restarts(OptionGroup):
    """Restart of the job after an interruption.

    Attributes:
        recovery: all of it as one; None: what the others state.
        restart_s: time from a noticed interruption to the load, e.g. 10min; default: 11 minutes (reported as assumed).
        spares: spare nodes; auto: the fewest that suffice 99% of the time.
        policy: policy where spares do not suffice: restart (wait), hot_spare (wait) or shrink.
    """

    heading = "Failures and restarts"
    recovery: Annotated[Recovery | None, NOT_TYPED] = None
    restart_s: Annotated[float | None, Option("--restart", "TIME", parse=seconds_of)] = None
    spares: Annotated[int | None, Option("--spares", "auto|N", parse=spares_of, default=AUTO)] = None
    policy: str = "restart"

    def made(self) -> Recovery:
        """The recovery, with the usual restart where none is stated."""
        if self.recovery is not None:
            return self.recovery
        restart_s = RESTART_S if self.restart_s is None else self.restart_s
        return Recovery(restart_s, spares=self.spares, policy=self.policy)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Notes on what was not stated, and what was taken instead."""
        if self.recovery is not None or self.restart_s is not None:
            return ()
        took = f"a restart takes {RESTART_S / 60:g} min (median of 504 B200, arXiv 2605.09370) besides the load"
        return (f"{took}; state --restart",)

    def inputs(self) -> dict[str, Any]:
        """No inputs to record."""
        return {}


FIT = "fit"  # kind of archive


@dataclass(frozen=True)
class SimulatedRun(OptionGroup):
    """Deadline of the run, and how it is simulated.

    Attributes:
        deadline_s: deadline for which the probability of being done is reported: 54d, 1300h.
        n_worlds: simulated worlds.
        seed: same seed, same answer.
    """

    deadline_s: Annotated[float | None, Option("--deadline", "TIME", parse=seconds_of)] = None
    fits: Fits = ()
    force: Force = False
    n_worlds: Annotated[int, Option("--worlds", "N", key="worlds")] = DEFAULT_WORLDS
    seed: Seed = 0


@use_case()
def predict_run(
    job: JobFile,
    *,
    overrides: Overrides = (),
    work: WorkOptions = WorkOptions(),
    threats: FailureOptions = FailureOptions(),
    saves: CheckpointOptions = CheckpointOptions(),
    restarts: Restarts = Restarts(),
    run: SimulatedRun = SimulatedRun(),
    progress: Progress = silent,
) -> RunReport:
    """Predict when a training run is done: failures, checkpoints, slow phases, deadline.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        overrides: "section.field=value" texts that replace fields of a file.
        work: steps or tokens.
        threats: failure rates.
        saves: costs and interval of checkpoints.
        restarts: time of a restart, and spare nodes.
        run: deadline, fits as in `explain_step`, simulated worlds and seed.
        progress: told what is being done.

    Raises:
        ConfigError, DataError, FitError, SpecError: a file or an argument is wrong, checkpoints overlap, or the job makes no
            progress.

    Example:
        >>> print(predict_run("llama3_405b_16384", n_steps=100_000, reliability="llama3-2024"))  # doctest: +SKIP
    """
    from .run import steps_of

    stated, recovery = saves.stated(), restarts.made()
    keep_programs()
    own, rest = calibrated_job(loaded(job, overrides), run.fits)
    wanted, of_device = _threats(own, threats.reliability, threats.mtbf_h, run.force)
    _check_numbers(run.deadline_s, run.n_worlds)
    count = steps_of(own, work.n_steps, work.n_tokens)
    made = _checkpoint(own, stated, saves.interval_s)
    assumed = (*of_device, *saves.assumed(made), *restarts.assumed)
    fitted = with_variability(own, rest, seed=run.seed, force=run.force, progress=progress)
    record = noted(reliability=wanted.name if wanted else None, checkpoint=made.interval_s)
    from .simulated_job import RunRequest, simulated  # needs JAX, which mistakes above do not wait for

    asked = RunRequest(count, wanted, made, recovery, run.deadline_s, run.n_worlds, run.seed, assumed)
    report, planned = simulated(fitted, asked, record, progress)
    return report.made_of(planned)


def _threats(
    job: Job, reliability: Reliability | str | Path | None, mtbf_h: float | None, force: bool
) -> tuple[Reliability | None, tuple[str, ...]]:
    """Interruptions of the job, and what was assumed of them: published rates of such devices where nothing is stated."""
    if reliability is not None and mtbf_h is not None:
        raise DataError("reliability and mtbf: both say how often the job is interrupted. Keep one.")
    if mtbf_h is not None:
        return of_mtbf(mtbf_h, job.plan.n_devices), ()
    if reliability is not None:
        return threats_of(reliability, force=force), ()
    device = job.cluster.device.name
    found = preset_for(device)
    if found is None:
        return None, ()
    rates = [one.rate_h(job.plan.n_devices, job.cluster.node_size) for one in found.hazards]
    share = sum(one.per_job_h for one in found.hazards) / sum(rates)
    per_job = f", {share:.0%} of them per job and not per GPU" if share > LEAST_TOLD else ""
    return found, (f"published failures of {device}{per_job} ({found.name}); state --reliability or --mtbf",)


LEAST_TOLD = 0.05  # of the failures of a job


def threats_of(reliability: Reliability | str | Path | None, *, force: bool = False) -> Reliability | None:
    """Reads interruptions of jobs from an object, a preset, a file, or a fit; None where none are stated.

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


def _checkpoint(job: Job, stated: Checkpoint | None, interval_s: float | None) -> Checkpoint:
    """Costs of checkpoints; where not stated, by size and a parallel file system."""
    if stated is None:
        n_node = -(-job.plan.n_devices // job.cluster.node_size)
        return Checkpoint.of_bytes(checkpoint_bytes(job), n_node, (DISK,), interval_s)
    made = stated if interval_s is None else replace(stated, interval_s=interval_s)
    least_s = made.background_s - made.blocking_s
    if made.interval_s is not None and made.interval_s < least_s:
        raise DataError(
            f"--checkpoint: {made.interval_s:g} s, but a checkpoint is written for {made.background_s:g} s more behind the "
            f"steps, and the next one waits for that. State at least {ceil(least_s)}s, or auto."
        )
    return made
