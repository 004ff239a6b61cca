"""Parameters that several use cases share, and how they are typed on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from .option import Group, Option

FitFiles: TypeAlias = Sequence[str | Path]
Seed = Annotated[
    int, Option("--seed", "N", least=0, most=2**31 - 1, key=None, help="Random seed; the same seed gives the same result.")
]
Overrides = Annotated[
    Sequence[str],
    Option("--set", "FIELD=VALUE", key="set", help="Replace one field of the job, e.g. plan.tp=4; may be repeated."),
]
Force = Annotated[bool, Option("--force", key=None, help="Use a fit even if its verdict says that it failed.")]
Fits = Annotated[
    FitFiles, Option("--fit", "NC", key="fit", told=list, help="Apply a saved fit or calibration (.npz); may be repeated.")
]


@dataclass(frozen=True)
class JobChanges(Group):
    """What is replaced in a job file.

    Attributes:
        overrides: "section.field=value" texts that replace fields of a file.
        cluster: cluster preset, short for --set cluster=NAME; a capture needs one.
        variability: variability preset, short for --set variability=NAME.
        kernels: profile of one GPU (Kineto, recorded with shapes): its kernels time those of a capture. Short for
            --set model.kernels=FILE.
    """

    overrides: Overrides = ()
    cluster: Annotated[str | None, Option(metavar="NAME")] = None
    variability: Annotated[str | None, Option(metavar="NAME")] = None
    kernels: Annotated[str | Path | None, Option(metavar="FILE")] = None

    @property
    def texts(self) -> list[str]:
        """All of them as "section.field=value", those that other options stand for in front."""
        file = None if self.kernels is None else dumps(str(Path(self.kernels).absolute()))
        named = {"cluster": self.cluster, "variability": self.variability, "model.kernels": file}
        return [*(f"{field}={name}" for field, name in named.items() if name is not None), *self.overrides]

    def inputs(self) -> dict[str, Any]:
        """As `--set` has it."""
        return {"set": self.texts}
