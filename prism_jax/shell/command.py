"""A command from a function: its parameters become options, its answer is printed; the one place that knows the parser.

Help pages end with an example that runs, and with the columns of the tables that the command reads: those that the reader itself
looks for, which an `Option` names where they are declared.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from itertools import chain
from textwrap import wrap
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from ..core.processes import is_silent
from ..core.report import Report, RunRecord
from ..core.use_case import MESSAGES, OUTPUT, THE_JOB, Option, OptionSpec, case_of, command_line_type, parts_of
from .catalogue import Command
from .output import check_html, check_picture, counting, emit, working
from .streams import OK, VERBOSITY

JSON = OptionSpec("json", bool, False, Option("--json", heading=OUTPUT), "Print one JSON value instead of text.")
PLOT = OptionSpec(
    "plot",
    str,
    None,
    Option("--plot", "FILE", heading=OUTPUT, check=lambda _, path: check_picture(path)),
    "Write a picture (.png, .pdf, .svg).",
)
HTML = OptionSpec(
    "html",
    str,
    None,
    Option("--html", "FILE", heading=OUTPUT, check=lambda _, path: check_html(path)),
    "Write the report with its picture as one HTML file.",
)
DETAILS = OptionSpec(
    "details", bool, False, Option("--details", heading=OUTPUT), "Print all of the report, not its first screen alone."
)
TALK = (
    OptionSpec("quiet", bool, False, Option("--quiet -q", heading=MESSAGES), "Print the result and errors only."),
    OptionSpec("verbose", bool, False, Option("--verbose -v", heading=MESSAGES), "Print more details."),
    OptionSpec("debug", bool, False, Option("--debug", heading=MESSAGES), "Show tracebacks."),
)


def runner_of(function: Callable[..., Any], fixed: Mapping[str, Any]) -> Callable[..., int]:
    """Function that the parser calls for a command: takes what was typed, runs `function`, prints, and returns the exit code.

    Args:
        function: a use case, or another function whose parameters say how they are typed.
        fixed: parameters that are not typed, and their values.
    """
    case = case_of(function)
    own = parts_of_command(function, fixed)
    answers = _reports_of(case.function)
    own_names = {part.name for part in own}
    # what is done after the use case takes the report, and options of its own
    added = {act: parts_of(act)[1:] for act in (*case.then, case.text) if act is not None}
    extra = [part for parts in added.values() for part in parts if part.name not in own_names]
    output = [
        *([DETAILS] if any(kind is Report or kind.card is not Report.card for kind in answers) else []),
        *([PLOT] if any(kind is Report or kind.picture for kind in answers) else []),
        *([HTML, JSON] if answers else []),
    ]
    parts = sorted(
        {part.name: part for part in (*own, *extra, *output, *TALK)}.values(), key=lambda part: not part.is_by_position
    )

    def run(*given: Any, **typed: Any) -> int:
        typed |= _by_position(parts, given)
        for part in TALK:
            setattr(VERBOSITY, part.name, typed.pop(part.name, False))
        values = _values(parts, typed)
        later = {act: {one.name: values[one.name] for one in own if one.name in values} for act, own in added.items()}
        with counting(case.says) if case.counts else working(case.says) as progress:
            mine = {**fixed, **{name: value for name, value in values.items() if name in own_names}}
            if "progress" in inspect.signature(case.function).parameters:
                mine["progress"] = progress
            answer = case.run(mine, _typed_texts(own, typed))
        if is_silent():
            return OK
        answer = _with_command(answer)
        text = None if case.text is None else partial(case.text, answer, **later[case.text])
        return emit(
            answer,
            values.get("json", False),
            {name: values.get(name) for name in ("plot", "html")},
            partial(_text, answer, text, details=values.get("details", False)),
            [partial(act, answer, **later[act]) for act in case.then],
        )

    signature = [_parameter(part) for part in parts]
    run.__signature__ = inspect.Signature(signature)  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {item.name: item.annotation for item in signature}
    return run


def _with_command(answer: Any) -> Any:
    """A report whose record says the command line that made it."""
    record = getattr(answer, "record", None)
    if not isinstance(answer, Report) or not isinstance(record, RunRecord):
        return answer
    return answer.changed(record=replace(record, command=shlex.join(["prism-jax", *VERBOSITY.words])))


def _text(answer: Any, instead: Callable[[], Any] | None, *, details: bool) -> Any:
    """Text that a use case prints in the place of its report; the first screen of a report, or all of it; else the answer."""
    if instead is not None and (found := instead()) is not None:
        return found
    return replace(answer.page(), is_short=not details) if isinstance(answer, Report) else answer


def parts_of_command(function: Callable[..., Any], fixed: Mapping[str, Any]) -> list[OptionSpec]:
    """Options and arguments of a command itself, without those of what is done with its answer."""
    return [part for part in case_of(function).options() if part.option.is_typed and part.name not in fixed]


def _by_position(parts: Iterable[OptionSpec], given: Sequence[Any]) -> dict[str, Any]:
    """Arguments by name; one that takes many, which is the last, has the rest."""
    found: dict[str, Any] = {}
    for at, part in enumerate(part for part in parts if part.is_by_position):
        if _takes_many(part):
            found[part.name] = list(given[at:])
        elif at < len(given):
            found[part.name] = given[at]
    return found


def _takes_many(part: OptionSpec) -> bool:
    return part.is_by_position and (part.takes_many or get_origin(command_line_type(part.hint, part.option)) is list)


def _values(parts: Iterable[OptionSpec], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Converts what was typed to what the function takes.

    Raises:
        PrismError: a text or a value is not what it must be.
    """
    values: dict[str, Any] = {}
    for part in parts:
        if part.name in typed:
            name, value = part.option.names.split(" ")[0] or part.name, typed[part.name]
            if part.option.parse is not None:
                value = part.option.parse(name, value)
            elif _is_inverted(part):
                value = not value
            values[part.name] = value
            if part.option.check is not None:
                part.option.check(name, value)
    return values


def _typed_texts(parts: Iterable[OptionSpec], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Typed texts that the record of the run keeps as they are."""
    own = (part for part in parts if part.option.is_recorded_as_typed and part.name in typed)
    return {name: typed[part.name] for part in own for name in part.recorded(None)}


def _reports_of(function: Callable[..., Any]) -> tuple[type[Report], ...]:
    """Kinds of reports that a function answers with."""
    hint = get_type_hints(inspect.unwrap(function)).get("return")
    return tuple(kind for kind in get_args(hint) or (hint,) if inspect.isclass(kind) and issubclass(kind, Report))


def _is_inverted(part: OptionSpec) -> bool:
    """Whether a flag, when given, makes False of what is True: `--fast` for `explained`."""
    return part.hint is bool and part.default is True and "/" not in part.option.names


def shown_default(default: Any) -> str:
    """A default as the help spells it; empty where there is nothing to be said."""
    if isinstance(default, (int, float, str)) and not isinstance(default, bool):
        return f"{default:g}" if isinstance(default, float) else str(default)
    return ", ".join(map(shown_default, default)) if isinstance(default, (tuple, list)) else ""


_WHOLE = {  # in digits: the parser itself would round 1.5
    int: lambda _, tokens: int(tokens[0].value),
    list[int]: lambda _, tokens: [int(token.value) for token in tokens],
}


@cache  # the parser knows a group by the object
def group_of(heading: str) -> Group:
    """The part of a help page under `heading`."""
    return Group(heading, sort_key=PLACES.get(heading, PLACES[""]))


OWN = "Options"  # heading of the options that a command alone has
PLACES = {heading: place for place, heading in enumerate((THE_JOB, OWN, "", OUTPUT, MESSAGES))}
# unless said otherwise
VALUES = {str: "NAME", list[str]: "NAME", int: "N", float: "X", list[int]: "N", list[float]: "X"}


def _parameter(part: OptionSpec) -> inspect.Parameter:
    """A parameter as the parser wants it."""
    option, kind = part.option, command_line_type(part.hint, part.option)
    many = _takes_many(part)
    kind = get_args(kind)[0] if many and get_origin(kind) is list else kind
    on, _, off = (option.names or f"--{part.name.replace('_', '-')}").partition("/")
    shown = option.default or shown_default(part.default)
    has_name = not part.is_by_position or bool(option.names)
    has_bounds = option.least is not None or option.most is not None
    said = Parameter(
        name=tuple(on.split(" ")) if has_name else None,
        group=group_of(option.heading or OWN) if has_name else "Arguments",
        help=part.help,
        metavar=option.metavar or VALUES.get(kind),
        negative=(off,) if off else (),
        validator=Number(gte=option.least, lte=option.most) if has_bounds else (),
        show_default=(lambda _: shown) if shown else False,
        allow_repeating=True,
        allow_leading_hyphen=not part.is_by_position and kind is not bool,
        converter=_WHOLE.get(kind),
        required=part.default is inspect.Parameter.empty if many else None,
        json_list=False,
        json_dict=False,
    )
    if many:
        return inspect.Parameter(part.name, inspect.Parameter.VAR_POSITIONAL, annotation=Annotated[kind, said])
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD if has_name else inspect.Parameter.POSITIONAL_ONLY
    how = by_place if part.is_by_position else inspect.Parameter.KEYWORD_ONLY
    if part.default is inspect.Parameter.empty:
        return inspect.Parameter(part.name, how, annotation=Annotated[kind, said])
    if kind is bool:  # the parser leaves out what was not typed
        return inspect.Parameter(part.name, how, default=False, annotation=Annotated[bool, said])
    return inspect.Parameter(part.name, how, default=None, annotation=Annotated[kind | None, said])


WIDTH = 78  # of the lines, in a terminal of 80 columns
MOST_ALIASES = 4  # of a column that are listed
Columns = Mapping[str, str]


def below_options(command: Command) -> str:
    """The end of the help page of `command`; empty where there is nothing to be said."""
    blocks = [example_of(command)] if command.example else []
    blocks += [_block(title, columns) for title, columns in tables_of(command)]
    return "\n\n".join(blocks)


def example_of(command: Command) -> str:
    """The command lines of an example, under a heading."""
    return "\n".join(["Example:", *(f"  {line}" for line in command.example.splitlines())])


def tables_of(command: Command) -> Iterator[tuple[str, Columns]]:
    """Tables that the command reads: title, and column -> kind of its values."""
    parts = parts_of_command(command.load(), command.fixed)
    for title, place in dict.fromkeys(chain.from_iterable(part.option.columns for part in parts)):
        module, _, name = place.partition(":")
        declared = getattr(import_module(module, __package__), name)
        yield title, _about(declared(**command.fixed) if callable(declared) else declared)


def _about(declared: Any) -> Columns:
    if isinstance(declared, Mapping):
        return {name: said if isinstance(said, str) else also(name, said) for name, said in declared.items()}
    others = {column.name: also(column.name, getattr(column, "aliases", ())) for column in declared}
    return {column.name: "; ".join(filter(None, (column.about, others[column.name]))) for column in declared}


def also(name: str, names: Iterable[str]) -> str:
    """Names of a column other than the first of them."""
    others = [other for other in names if other != name]
    listed = ", ".join([*others[:MOST_ALIASES], *(["..."] if len(others) > MOST_ALIASES else [])])
    return f"also {listed}" if listed else ""


def _block(title: str, columns: Columns) -> str:
    wide = max(map(len, columns)) + 2
    lines = [f"Columns of {title}:"]
    for name, said in columns.items():
        first, *rest = wrap(said, WIDTH - 2 - wide) or [""]
        lines += [f"  {name:{wide}}{first}".rstrip(), *(" " * (2 + wide) + line for line in rest)]
    return "\n".join(lines)
