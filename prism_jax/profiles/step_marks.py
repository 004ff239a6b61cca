"""Finds the steps of a program among the named ranges of its host, as they come with NVTX and with JAX.

A range marks a step if its name is ProfilerStep#N, holds step_num=N (`jax.profiler.StepTraceAnnotation`), or is a word for a step
and a number ("step 12", "iteration_12", "train_step: 12"). If no range does, every run of the program that takes most time is a
step, where a program of XLA ran at least twice (ranges XlaModule:#hlo_module=...,program_id=N#).
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import NamedTuple

from ..core.errors import DataError
from .names import MAX_DIGITS, STEP
from .rank_events import Event

MAX_MARKS = 1_000_000
MARKS = "ranges of steps (ProfilerStep#N, step_num=N, step N, iteration N)"
_STEP_NUM = re.compile(r"(.*?)#?\bstep_num=(\d{1,18})\b")
_WORDS = re.compile(
    r"((?:train(?:ing)?|global|optimi[sz]er)?[ _.:-]?(?:step|iteration|iter|it))"
    r"[ _.:#=(\[-]{0,4}(\d{1,18})[)\]]?",
    re.IGNORECASE,
)
_PROGRAM = re.compile(r"(?:TSL:)?XlaModule:#(?:prefix=[^,#]*,)?hlo_module=([^,#]+),program_id=(\d{1,18})#?")


class StepRange(NamedTuple):
    """A range that may be a step; microseconds. Marks of one family count the same thing; a program has no number: -1."""

    family: str
    number: int
    start_us: float
    duration_us: float


def mark(name: str, start_us: float, duration_us: float) -> StepRange | None:
    """Reads the range `name`; None for those that mark nothing."""
    if name.startswith(STEP) and name[len(STEP) :].isdecimal():
        return _mark(STEP, name[len(STEP) :], start_us, duration_us)
    if (match := _STEP_NUM.match(name)) or (match := _WORDS.fullmatch(name.strip())):
        return _mark(match[1], match[2], start_us, duration_us)
    return None


def program_of(name: str) -> str:
    """Program that a range runs, "" for other ranges."""
    match = _PROGRAM.fullmatch(name)
    return f"{match[1]} (program {match[2]})" if match else ""


def _mark(family: str, number: str, start_us: float, duration_us: float) -> StepRange:
    return StepRange(family, int(number) if len(number) <= MAX_DIGITS else -1, start_us, duration_us)


class StepMarks:
    """Collects the ranges of one process and chooses the steps among them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.marks: dict[str, list[StepRange]] = defaultdict(list)
        self.programs: dict[str, list[StepRange]] = defaultdict(list)
        self.busy_us: dict[str, float] = defaultdict(float)
        self.n = 0

    def add(self, name: str, start_us: float, duration_us: float, busy_us: float | None = None) -> None:
        """Adds a range, if it marks anything.

        Args:
            busy_us: time on the GPU, by which programs are compared; None: as long as the range itself.

        Raises:
            DataError: more than a million ranges do.
        """
        if found := mark(name, start_us, duration_us):
            self.marks[found.family].append(found)
        elif program := program_of(name):
            self.programs[program].append(StepRange(program, -1, start_us, duration_us))
            self.busy_us[program] += duration_us if busy_us is None else busy_us
        else:
            return
        self.n += 1
        if self.n > MAX_MARKS:
            raise DataError(f"{self.source}: more than {MAX_MARKS:,} ranges of steps. Record fewer steps.")

    def steps(self) -> tuple[list[StepRange], str]:
        """The steps in the order of time, numbered, none inside another; and a note, where the file does not name them so."""
        if self.marks:
            family = max(self.marks, key=lambda one: (sum(mark.duration_us for mark in self.marks[one]), one))
            return _numbered(self.marks[family]), ""
        often = [one for one, runs in self.programs.items() if len(runs) > 1]
        if not often:
            return [], ""
        program = max(often, key=lambda one: (self.busy_us[one], one))
        runs = _numbered(self.programs[program])
        return (
            runs,
            f"no step is named: the {len(runs)} runs of {program}, the program that takes most time, are taken as steps",
        )


def _numbered(marks: list[StepRange]) -> list[StepRange]:
    found: list[StepRange] = []
    for one in sorted(marks, key=lambda mark: (mark.start_us, -mark.duration_us)):
        if not found or one.start_us >= found[-1].start_us + found[-1].duration_us:
            found.append(one)
    numbers = [one.number for one in found]
    if min(numbers, default=-1) < 0 or len(set(numbers)) < len(numbers):
        return [one._replace(number=number) for number, one in enumerate(found)]
    return found


def step_event(step: StepRange) -> Event:
    """The step as an event of Kineto."""
    return {
        "cat": "user_annotation",
        "name": f"{STEP}{step.number}",
        "ts": step.start_us,
        "dur": step.duration_us,
        "tid": 0,
    }
