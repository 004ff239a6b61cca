"""Parameters that several use cases share, and how they are typed on the command line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from ..core.use_case import OUTPUT, THE_JOB, Option, OptionGroup
from ..core.write_file import check_file, check_folder
from .objective import Objective
from .prices import Prices, prices_of

FitFiles: TypeAlias = Sequence[str | Path]
Seed = Annotated[
    int,
    Option("--seed", "N", least=0, most=2**31 - 1, key=None, help="Random seed; the same seed gives the same result."),
]
Overrides = Annotated[
    Sequence[str],
    Option(
        "--set",
        "FIELD=VALUE",
        key="set",
        heading=THE_JOB,
        help="Replace one field of the job, e.g. plan.tp=4; may be repeated.",
    ),
]
Force = Annotated[
    bool, Option("--force", key=None, heading=THE_JOB, help="Use a fit even if its verdict says that it failed.")
]
Fits = Annotated[
    FitFiles,
    Option(
        "--fit",
        "FILE",
        key="fit",
        recorded_as=list,
        heading=THE_JOB,
        help="Apply a saved fit or calibration (.npz); may be repeated.",
    ),
]

_OBJECTIVE = Option(
    "--objective",
    "NAME",
    key="objective",
    recorded_as=lambda chosen: chosen if isinstance(chosen, str) else chosen.name,
    help="Objective to minimise (`prism-jax show objectives` explains them).",
)
ObjectiveName = Annotated[str, _OBJECTIVE]
ObjectiveChoice = Annotated[str | Objective, _OBJECTIVE]
Samples = Annotated[
    int | None,
    Option("--samples", "N", key="samples", least=64, most=1 << 20, help="Replica columns per job; 2048 by default."),
]
Price = Annotated[
    float | None, Option("--price", "PRICE", key="price", help="Price per GPU-hour, for money per million tokens.")
]
DevicePrices = Annotated[
    Prices,
    Option(
        "--price",
        "[DEVICE=]PRICE",
        key="price",
        parse=lambda _, texts: prices_of(texts),
        is_repeated=True,
        help="Price per GPU-hour, of all or of one device; may be repeated.",
    ),
]
SLOWDOWNS = (("a table of slowdowns", "prism_jax.slowdowns.slowdown_columns:COLUMNS"),)
SaveDir = Annotated[str | Path | None, Option("--save-dir", "DIR", key=None, heading=OUTPUT, check=check_folder)]
Output = Annotated[str | Path | None, Option("--output -o", "FILE", key=None, heading=OUTPUT, check=check_file)]


@dataclass(frozen=True)
class Applied(OptionGroup):
    """Fits and calibrations that a use case applies."""

    fits: Fits = ()
    force: Force = False


@dataclass(frozen=True)
class StudyRun(OptionGroup):
    """Prediction of the jobs of a study.

    Attributes:
        n_samples: replica columns per job.
        seed: seed of the draws, which all jobs share.
        resume: checkpoint the study to FILE and resume from it.
    """

    n_samples: Samples = None
    seed: Seed = 0
    resume: Annotated[str | Path | None, Option("--resume", "FILE", key=None)] = None


@dataclass(frozen=True)
class JobChanges(OptionGroup):
    """Changes to a job file.

    Attributes:
        overrides: "section.field=value" texts that replace fields of a file.
        device: GPU, short for --set cluster.device=NAME; a training log may need one.
        cluster: cluster preset, short for --set cluster=NAME; a capture needs one.
        variability: variability preset, short for --set variability=NAME.
        kernels: profile of one GPU (Kineto, recorded with shapes): its kernels time those of a capture. Short for
            --set model.kernels=FILE.
    """

    heading = THE_JOB
    overrides: Overrides = ()
    device: Annotated[str | None, Option(metavar="NAME")] = None
    cluster: Annotated[str | None, Option(metavar="NAME")] = None
    variability: Annotated[str | None, Option(metavar="NAME")] = None
    kernels: Annotated[str | Path | None, Option(metavar="FILE")] = None

    def texts_for(self, job: object) -> list[str]:
        """All of them as "section.field=value", those that other options stand for in front.

        Args:
            job: file of the job, from whose folder a job names its files.
        """
        folder = Path(job).parent if isinstance(job, str | Path) else Path()
        return self._texts(self.kernels and os.path.relpath(Path(self.kernels).resolve(), folder.resolve()))

    def _texts(self, kernels: str | Path | None) -> list[str]:
        file = None if kernels is None else dumps(str(kernels))
        named = {"cluster": self.cluster, "cluster.device": self.device, "variability": self.variability}
        named |= {"model.kernels": file}
        return [*(f"{field}={name}" for field, name in named.items() if name is not None), *self.overrides]

    def inputs(self) -> dict[str, Any]:
        """Change as `--set` has it."""
        return {"set": self._texts(self.kernels)}
