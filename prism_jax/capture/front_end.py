"""FrontEnd: one way of capturing a program, and CaptureRequest: what every one of them is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from ..errors import DataError
from ..workload.captured.program import RankProgram

# Fields of a request -> the options that state them.
STATED_BY = {
    "world": "--world",
    "axes": "an axis of the mesh (--tp, --dp, --axis, ...)",
    "micro_batches": "--micro-batches",
    "samples_per_step": "--samples",
    "tokens_per_sample": "--tokens",
    "fusion": "--fusion",
    "name": "--name",
    "options": "--option",
}


@dataclass(frozen=True)
class CaptureRequest:
    """What is to be captured.

    Attributes:
        source: a file, or a file and what it defines: train.py:build.
        world: ranks of the job; None: the product of `axes`, or what the source says.
        axes: dimension of the mesh -> its size, in the order in which they were given.
        micro_batches: of a step, per data-parallel rank; None: as the source says, else 1.
        samples_per_step: of the whole job; None: as the source says.
        tokens_per_sample: None: as the source says, else 0 (samples are no sequences).
        fusion: how pointwise operations are merged; None: as the front end assumes.
        name: of the program; empty: that of the source.
        options: of the front end alone, as texts.
    """

    source: str
    world: int | None = None
    axes: Mapping[str, int] = field(default_factory=dict)
    micro_batches: int | None = None
    samples_per_step: int | None = None
    tokens_per_sample: int | None = None
    fusion: str | None = None
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The file of the source, without what it defines."""
        head, colon, tail = self.source.rpartition(":")
        return head if colon and tail.isidentifier() and head else self.source

    @property
    def defined(self) -> str:
        """What the file defines: `build` of train.py:build; empty where nothing is named."""
        return self.source[len(self.path) + 1 :]

    def n_ranks(self, default: int = 1) -> int:
        """Ranks of the job.

        Raises:
            DataError: the axes do not divide it.
        """
        along = prod(self.axes.values())
        world = self.world or max(along, default)
        if world % along:
            sizes = " * ".join(f"{axis}={size}" for axis, size in self.axes.items())
            raise DataError(f"--world: {world:,}, but the axes {sizes} = {along:,} do not divide it")
        return world

    def refuse_stated(self, fields: Sequence[str], remedy: str) -> None:
        """Refuses what the source decides by itself, so that nothing that was asked for is ignored.

        Args:
            fields: of this request, that may not be stated.
            remedy: where it is stated instead.

        Raises:
            DataError: one of them is stated.
        """
        for field_name in fields:
            if getattr(self, field_name):
                raise DataError(f"{self.source}: {STATED_BY[field_name]} cannot be stated for it. {remedy}")

    def check_options(self, known: Mapping[str, str]) -> None:
        """Refuses options that a front end does not have; `known` says what each is.

        Raises:
            DataError: names those that it has.
        """
        for name in self.options:
            if name not in known:
                told = "; ".join(f"{one}: {words}" for one, words in known.items()) or "none"
                raise DataError(f"--option {name}: unknown here. Options of this front end: {told}")


@dataclass(frozen=True)
class FrontEnd:
    """One way of capturing.

    Attributes:
        name: for `--front-end`, and the `source` of the programs it makes.
        about: what it reads, in a line.
        recognises: whether a source is one of its own, by the name of the file and how it begins; must not run it.
        capture: makes the program; imports what it needs by itself, so that listing front ends imports nothing.
    """

    name: str
    about: str
    recognises: Callable[[CaptureRequest], bool]
    capture: Callable[[CaptureRequest], RankProgram]
