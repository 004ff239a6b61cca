"""A use case: a function that takes plain inputs and answers with a report; all that a command needs is read off it.

`@use_case()` lets callers give the fields of its groups by keyword, and completes the record of its report: inputs, seed and
versions. What a command does besides printing (files, a warning, an exit code) is a list of functions of the report.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isnan, nan
from typing import Any, TypeVar

from .option import Group, Part, groups_of, parts_of
from .report import Report
from .types.record import RunRecord

R = TypeVar("R")


@dataclass(frozen=True)
class Told:
    """What a command says on stderr after its report.

    Attributes:
        text: one line.
        always: even when quiet.
        detail: only when verbose.
        failed: whether the command ends with exit code 1.
    """

    text: str
    always: bool = False
    detail: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Case:
    """What `use_case` knows of a function.

    Attributes:
        function: as it was written.
        then: called after the report is printed, with it and with options of their own: write a file, warn of something.
        text: makes what is printed without --json, of the report and options of its own: lines, a Table, Facts; None: the lines
            of the report.
        says: what a spinner says while it runs.
        counts: whether a bar is shown in place of the spinner.
        untold: inputs of groups that the record leaves out.
    """

    function: Callable[..., Any]
    then: tuple[Callable[..., Any], ...] = ()
    text: Callable[..., Any] | None = None
    says: str = "loading JAX"
    counts: bool = False
    untold: tuple[str, ...] = ()

    def run(self, values: Mapping[str, Any], typed: Mapping[str, Any]) -> Any:
        """The answer to inputs by name; the record tells `typed` where it has something.

        Raises:
            TypeError: an input is unknown.
        """
        arguments = self._gathered(values)
        signature = inspect.signature(self.function)
        many = next((item.name for item in signature.parameters.values() if item.kind is item.VAR_POSITIONAL), None)
        started = time.perf_counter()
        answer = self.function(*arguments.pop(many), **arguments) if many else self.function(**arguments)
        elapsed_s = time.perf_counter() - started
        if not isinstance(answer, Report):
            return answer
        record, own_s = getattr(answer, "record", None), getattr(answer, "elapsed_s", None)
        changes: dict[str, Any] = {"elapsed_s": elapsed_s} if isinstance(own_s, float) and isnan(own_s) else {}
        if isinstance(record, RunRecord) and not record.versions:
            changes["record"] = self._record(values, typed, record)
        return answer.changed(**changes) if changes else answer

    def options(self) -> tuple[Part, ...]:
        """What is typed for the function, without that of `then` and `text`."""
        return parts_of(self.function)

    def _gathered(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """`values` with the fields of groups inside their groups."""
        rest = dict(values)
        for name, group in groups_of(self.function).items():
            own = {item.name: rest.pop(item.name) for item in fields(group) if item.name in rest}  # pyright: ignore[reportArgumentType]
            if own:
                rest[name] = replace(rest.get(name, group), **own)
        return rest

    def _record(self, values: Mapping[str, Any], typed: Mapping[str, Any], noted: RunRecord) -> RunRecord:
        from ..io.write import run_record

        arguments, groups = self._gathered(values), groups_of(self.function)
        parts = {part.name: part for part in self.options()}
        inputs: dict[str, Any] = {}
        for name in inspect.signature(self.function).parameters:
            if name in groups:
                inputs |= arguments.get(name, groups[name]).inputs()
            elif name in parts:
                inputs |= parts[name].told(arguments.get(name, parts[name].default))
        seed = values.get("seed", parts["seed"].default if "seed" in parts else noted.seed)
        inputs |= {name: value for name, value in typed.items() if name in inputs}
        inputs = {name: value for name, value in inputs.items() if name not in self.untold}
        return RunRecord(**run_record({**inputs, **noted.inputs}, seed))


UNTIMED_S = nan  # seconds of a report that its use case completes, and its record
UNRECORDED = RunRecord({}, None, {}, None)


def noted(**inputs: Any) -> RunRecord:
    """The record of a report that its use case completes; `inputs` are told in place of what was given."""
    return RunRecord({}, None, inputs, None)


def use_case(
    *,
    then: Sequence[Callable[..., Any]] = (),
    text: Callable[..., Any] | None = None,
    says: str = "loading JAX",
    counts: bool = False,
    untold: Sequence[str] = (),
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Makes a use case of a function; arguments as the attributes of `Case`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        case = Case(function, tuple(then), text, says, counts, tuple(untold))
        flat = _flat_signature(function)

        @functools.wraps(function)
        def call(*args: Any, **keywords: Any) -> R:
            groups = groups_of(function)
            whole = {name: keywords.pop(name) for name in groups if name in keywords}
            return case.run({**flat.bind(*args, **keywords).arguments, **whole}, {})

        call.__signature__ = flat  # pyright: ignore[reportAttributeAccessIssue]
        call.case = case  # pyright: ignore[reportAttributeAccessIssue]
        return call

    return decorate


def case_of(function: Callable[..., Any]) -> Case:
    """The use case of a function; of one that was not made a use case, the plain case."""
    return getattr(function, "case", None) or Case(function)


def _flat_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Signature as callers see it: the fields of groups are parameters."""
    signature, found = inspect.signature(function), []
    for item in signature.parameters.values():
        if isinstance(item.default, Group):
            found += [
                inspect.Parameter(
                    own.name, item.KEYWORD_ONLY, default=getattr(item.default, own.name), annotation=own.type
                )
                for own in fields(item.default)  # pyright: ignore[reportArgumentType]
            ]
        else:
            found.append(item)
    return signature.replace(parameters=found)
