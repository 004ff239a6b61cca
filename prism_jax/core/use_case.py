"""A use case: a function that takes plain inputs and answers with a report; all that a command needs is read off it.

The type of a parameter on the command line is declared with it: `Annotated[int, Option("--seeds", "N")]` is an option,
`Annotated[str, Argument(metavar="TRACE")]` an argument by position. What is left out follows from the parameter: a keyword-only
`n_gpus` is `--n-gpus`, the help is what the docstring says of it, its default is the default. Parameters that recur are fields of
an `OptionGroup`, which counts as one parameter. `@use_case()` lets callers give these fields by keyword, and completes the record
of the report: inputs, seed and versions. What a command does besides printing is a list of functions of the report.
"""

from __future__ import annotations

import functools
import inspect
import re
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import isnan, nan
from typing import Annotated, Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from .report import Report, RunRecord

SAME = ""  # the name of the parameter
THE_JOB, OUTPUT, MESSAGES = "The job", "Output", "Messages"  # headings of options that many commands have


@dataclass(frozen=True)
class Option:
    """An option of the command line.

    Attributes:
        names: as it is typed, with spaces between: "--output -o", "--level/--no-level"; empty: the name of the parameter.
        metavar: what its value is, in the help.
        help: one sentence; empty: what the docstring says of the parameter.
        least, most: bounds of a number.
        default: how the help spells a default that is not the value itself.
        parse: makes the value of the text, or of the texts of an option that may be repeated; called with the option and these.
        is_repeated: whether it may be given several times; needed where `parse` hides that.
        check: looks at the value before any work starts: whether a file can be written there.
        key: name among the inputs in the record of the run; None: not there.
        recorded_as: what the record says of the value, where it is not the value itself.
        is_recorded_as_typed: whether the record of a command holds the text and not the value.
        is_typed: False: the parameter is for Python alone.
        heading: of the part of the help in which it stands; empty: that of its group.
        columns: for the help, tables that it names, as pairs: what the table is, and "module:name" of its columns: column -> what
            it holds or other names of it, objects with `name` and `about`, or a function of the parameters that a command fixes
            which returns them.
    """

    names: str = ""
    metavar: str = ""
    help: str = ""
    least: float | None = None
    most: float | None = None
    default: str = ""
    parse: Callable[[str, Any], Any] | None = None
    is_repeated: bool = False
    check: Callable[[str, Any], None] | None = None
    key: str | None = SAME
    recorded_as: Callable[[Any], Any] | None = None
    is_recorded_as_typed: bool = False
    is_typed: bool = True
    heading: str = ""
    columns: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Argument(Option):
    """An argument by position; one that has `names` may also be typed as an option."""


NOT_TYPED = Option(key=None, is_typed=False)  # for Python alone


class OptionGroup:
    """Base of the frozen dataclasses whose fields are options: `sampling: Sampling = Sampling()`.

    A caller of the use case gives the fields by keyword, as if they were parameters, or the group as a whole.

    Attributes:
        heading: of the part of the help in which the options stand; empty: where a command has its own.
    """

    heading: ClassVar[str] = ""

    def inputs(self) -> dict[str, Any]:
        """Values of the group in the record of a run."""
        return {
            name: value
            for part in parts_of_group(self)
            for name, value in part.recorded(getattr(self, part.name)).items()
        }


@dataclass(frozen=True)
class OptionSpec:
    """A parameter of a use case, or a field of one of its groups.

    Attributes:
        name, default: of the parameter; the default is `inspect.Parameter.empty` where it must be given.
        hint: its type, without what is said of it.
        option: how it is typed.
        help: one sentence.
        is_by_position: whether it is an argument and no option.
        takes_many: whether it is the last of the arguments, and takes all that are left.
    """

    name: str
    hint: Any
    default: Any
    option: Option
    help: str
    is_by_position: bool = False
    takes_many: bool = False

    def recorded(self, value: Any) -> dict[str, Any]:
        """Entry of the record for its value."""
        key = self.name if self.option.key == SAME else self.option.key
        return (
            {} if key is None else {key: value if self.option.recorded_as is None else self.option.recorded_as(value)}
        )


def groups_of(function: Callable[..., Any]) -> dict[str, OptionGroup]:
    """Groups among the parameters of `function`, with the values they have by default."""
    parameters = inspect.signature(function).parameters.values()
    return {item.name: item.default for item in parameters if isinstance(item.default, OptionGroup)}


def parts_of(function: Callable[..., Any]) -> tuple[OptionSpec, ...]:
    """Parameters of `function` in order, groups as their fields; one that is called `progress` is none of them."""
    hints, said = _hints(function), said_of(function)
    found: list[OptionSpec] = []
    for item in inspect.signature(function).parameters.values():
        if isinstance(item.default, OptionGroup):
            found += parts_of_group(item.default)
        elif item.name != "progress":
            hint, option = _split(hints.get(item.name, str))
            by_position = item.kind is not item.KEYWORD_ONLY and (option is None or isinstance(option, Argument))
            option = option or Option()
            text = option.help or said.get(item.name, "")
            many = item.kind is item.VAR_POSITIONAL
            found.append(OptionSpec(item.name, hint, item.default, option, text, by_position, many))
    return tuple(found)


def parts_of_group(group: OptionGroup) -> tuple[OptionSpec, ...]:
    """Fields of a group; what they are by default is what they are in `group`."""
    hints, said, found = _hints(type(group)), said_of(type(group)), []
    for item in fields(group):  # pyright: ignore[reportArgumentType]
        hint, option = _split(hints[item.name])
        option = option or Option()
        option = replace(option, heading=option.heading or group.heading)
        text = option.help or said.get(item.name, "")
        found.append(OptionSpec(item.name, hint, getattr(group, item.name), option, text))
    return tuple(found)


def command_line_type(hint: Any, option: Option) -> type:
    """Type to which the parser converts texts: str, int, float or bool, or a list of one of these.

    Example:
        >>> command_line_type(float | None, Option())
        <class 'float'>
        >>> command_line_type(Sequence[str], Option())
        list[str]
    """
    if option.parse is not None:
        return list[str] if option.is_repeated else str
    kinds = _alternatives(hint)
    simple = [kind for kind in (str, bool, int, float) if kind in kinds]
    if simple:
        return simple[0]
    inner = next((get_args(kind)[0] for kind in kinds if _is_sequence(kind)), str)
    return list[command_line_type(inner, Option())]  # pyright: ignore[reportReturnType]


@functools.cache
def said_of(thing: Any) -> dict[str, str]:
    """Descriptions of the parameters or fields in the docstring of a function or dataclass, or of its bases."""
    text = inspect.getdoc(thing) or ""
    inherited = [said_of(base) for base in reversed(getattr(thing, "__bases__", ())) if issubclass(base, OptionGroup)]
    section = re.search(r"^(?:Args|Attributes):\n((?:[ ]+.*\n?|\n)+)", text, re.MULTILINE)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section[1].splitlines() if section else ():
        entry = re.match(r" {4}([*\w]+(?:, [*\w]+)*): (.*)", line)
        if entry:
            names = [name.lstrip("*") for name in entry[1].split(", ")]
        for name in names:
            found[name] = f"{found.get(name, '')} {entry[2] if entry else line.strip()}".strip()
    own = {name: _sentence(said) for name, said in found.items()}
    return {name: said for known in (*inherited, own) for name, said in known.items()}


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] if text else ""


@functools.cache
def _hints(thing: Any) -> Mapping[str, Any]:
    return get_type_hints(inspect.unwrap(thing), include_extras=True)


def _split(hint: Any) -> tuple[Any, Option | None]:
    """The type, and what is said of it."""
    if get_origin(hint) is not Annotated:
        return hint, None
    inner, *said = get_args(hint)
    return inner, next((item for item in said if isinstance(item, Option)), None)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(kind for part in get_args(hint) for kind in _alternatives(part))
    return (get_args(hint)[0],) if get_origin(hint) is Annotated else (hint,)


def _is_sequence(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Sequence)


R = TypeVar("R")


@dataclass(frozen=True)
class Message:
    """Message of a command on stderr after its report.

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
class UseCase:
    """Function that is a use case, and how the command line calls it.

    Attributes:
        function: as it was written.
        then: called after the report is printed, with it and with options of their own: write a file, warn of something.
        text: makes what is printed without --json, of the report and options of its own: lines, a Table, Facts; None, of
            it or by it: the report.
        says: what a spinner says while it runs.
        counts: whether a bar is shown in place of the spinner.
        unrecorded: inputs of groups that the record leaves out.
    """

    function: Callable[..., Any]
    then: tuple[Callable[..., Any], ...] = ()
    text: Callable[..., Any] | None = None
    says: str = "loading JAX"
    counts: bool = False
    unrecorded: tuple[str, ...] = ()

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

    def options(self) -> tuple[OptionSpec, ...]:
        """Options of the function, without those of `then` and `text`."""
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
        from .write_file import run_record

        arguments, groups = self._gathered(values), groups_of(self.function)
        parts = {part.name: part for part in self.options()}
        inputs: dict[str, Any] = {}
        for name in inspect.signature(self.function).parameters:
            if name in groups:
                inputs |= arguments.get(name, groups[name]).inputs()
            elif name in parts:
                inputs |= parts[name].recorded(arguments.get(name, parts[name].default))
        seed = values.get("seed", parts["seed"].default if "seed" in parts else noted.seed)
        inputs |= {name: value for name, value in typed.items() if name in inputs}
        inputs = {name: value for name, value in inputs.items() if name not in self.unrecorded}
        return RunRecord(**run_record({**inputs, **noted.inputs}, seed), job_file=noted.job_file)


UNTIMED_S = nan  # seconds of a report that its use case completes, and its record
UNRECORDED = RunRecord({}, None, {}, None)


def noted(*, job_file: str | None = None, **inputs: Any) -> RunRecord:
    """The record of a report that its use case completes; `inputs` are recorded in place of what was given."""
    return RunRecord({}, None, inputs, None, job_file=job_file)


def use_case(
    *,
    then: Sequence[Callable[..., Any]] = (),
    text: Callable[..., Any] | None = None,
    says: str = "loading JAX",
    counts: bool = False,
    unrecorded: Sequence[str] = (),
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Makes a use case of a function; arguments as the attributes of `UseCase`."""

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        case = UseCase(function, tuple(then), text, says, counts, tuple(unrecorded))
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


def case_of(function: Callable[..., Any]) -> UseCase:
    """The use case of a function; of one that was not made a use case, the plain case."""
    return getattr(function, "case", None) or UseCase(function)


def _flat_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Signature as callers see it: the fields of groups are parameters."""
    signature, found = inspect.signature(function), []
    for item in signature.parameters.values():
        if isinstance(item.default, OptionGroup):
            found += [
                inspect.Parameter(
                    own.name, item.KEYWORD_ONLY, default=getattr(item.default, own.name), annotation=own.type
                )
                for own in fields(item.default)  # pyright: ignore[reportArgumentType]
            ]
        else:
            found.append(item)
    return signature.replace(parameters=found)
