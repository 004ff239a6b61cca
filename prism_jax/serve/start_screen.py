"""The commands that can be started, and the form of one of them, which is made of its options."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import htpy as h
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..core.errors import PrismError
from ..job.load_job import find_job_file
from ..shell.catalogue import Command, called
from ..shell.command import OWN
from ..show.catalogues import CATALOGUES
from ..tables.streams import example_files, example_traces
from .command_fields import (
    NOT_STARTED,
    SUBJECT,
    CommandField,
    check_values,
    command_named,
    fields_of,
    filled_with,
    is_written,
    product_of,
    startable,
    words_of,
)
from .layout import copied, document, failure, form, heading, hidden, notice
from .site import Fields, Site, address, asked, field, html, numbered, posted, redirect, site_of

COMMAND = "command"
OPEN = ("The job", OWN)  # groups of a form that are not folded
JOBS, FILES, MOST_NAMES = "jobs", "files", 300
LINES_SHOWN = 3
CATALOGUE_OF = {  # option -> what is listed by `prism-jax show`, whose names it takes
    "device": "devices",
    "cluster": "clusters",
    "variability": "variability",
    "objective": "objectives",
    "reliability": "reliability",
    "to": "frameworks",
    "framework": "frameworks",
}


def show_start(request: Request) -> Response:
    """The list of commands, or the form of one; `again` fills it with the words of a run."""
    site, query = site_of(request), request.query_params
    if "again" in query:
        words = list(site.runs.run(asked(request, "again")).words)
        if (command := command_of(words)) is not None:
            return html(_form(site, command, filled_with(command, words)))
    elif COMMAND in query:
        command = command_named(asked(request, COMMAND))
        known = fields_of(command)
        free = (name for name in numbered(product_of(command)) if not (site.folder / name).exists())
        proposed = {one.name: [next(free)] for one in known if is_written(one)}
        filled = {one.name: query.getlist(one.name) for one in known if one.name in query}
        return html(_form(site, command, proposed | filled))
    return html(document("Run a command", heading("Run a command"), _commands(), here="/start"))


def command_of(words: list[str]) -> Command | None:
    """The command that words start with; None where it is none that can be started."""
    found = called(words)
    return None if found is None or found.name in NOT_STARTED else found


def start_run(request: Request, fields: Fields) -> Response:
    """Puts the command of a form into the queue; a form that is refused comes back as it was filled in."""
    site, command = site_of(request), command_named(field(fields, COMMAND))
    filled = _without_command(fields)
    try:
        words = words_of(command, filled)
        check_values(command, filled)
        _check_jobs(site, command, filled)
        run = site.runs.submit(words)
    except PrismError as error:
        return html(_form(site, command, filled, site.lines_of(error)), 400)
    return redirect(address("/run", name=run.name))


def _check_jobs(site: Site, command: Command, filled: Fields) -> None:
    """Whether the jobs of a form are there, which nobody wants to learn at the end of a queue.

    Raises:
        PrismError: one is not; names the nearest.
    """
    for one in fields_of(command):
        if one.name == SUBJECT and one.metavar.startswith("JOB"):
            for name in (line.strip() for text in filled.get(one.name, ()) for line in text.splitlines()):
                if name and name not in example_files():
                    find_job_file(site.path(name))


def show_line(request: Request, fields: Fields) -> Response:
    """The command line of a form as it is filled in, and what is wrong with it, for htmx."""
    command = command_named(field(fields, COMMAND))
    return html(_line(command, _without_command(fields)))


def _without_command(fields: Fields) -> dict[str, list[str]]:
    return {name: values for name, values in fields.items() if name != COMMAND}


def _commands() -> Iterable[h.Node]:
    for group, commands in startable().items():
        items = (
            h.li[h.a(href=address("/start", command=one.name))[one.name], h.p(".hint")[one.help]] for one in commands
        )
        yield h.section[h.h2[group], h.ul(".commands")[items]]


def _form(site: Site, command: Command, filled: Fields, wrong: Sequence[str] = ()) -> h.Element:
    """The screen of a command."""
    groups = groupby(fields_of(command), lambda one: one.heading)
    return document(
        command.name,
        heading(command.name, h.a(href="/start")["Other commands"]),
        h.p[command.help],
        failure(wrong) if wrong else None,
        form(
            "/runs",
            hidden({COMMAND: command.name}),
            [_group(title, list(own), filled, wrong) for title, own in groups],
            h.section(aria_labelledby="line-title")[
                h.h2("#line-title")["On the command line"],
                h.div(
                    {
                        "hx-post": "/start/line",
                        "hx-trigger": "input from:closest form delay:300ms",
                        "hx-include": "closest form",
                    },
                    id="line",
                )[_line(command, filled)],
            ],
            h.div(".actions")[h.button(type="submit")[f"Start {command.name}"]],
            id="options",
        ),
        _names(JOBS, [*(file.name for file in site.results.jobs()), *example_files()]),
        _names(FILES, [*_files(site), *example_traces()]),
        [_names(kind, CATALOGUES[kind]().names) for kind in sorted(_catalogues(command))],
        here="/start",
    )


def _catalogues(command: Command) -> set[str]:
    """Catalogues whose names are values of the command's options."""
    return {CATALOGUE_OF[one.part.name] for one in fields_of(command) if one.part.name in CATALOGUE_OF}


def _files(site: Site) -> list[str]:
    """Files of the folder, the latest first."""
    found = sorted(site.results.files(), key=lambda file: -file.modified_s)
    return [file.name for file in found]


def _names(place: str, names: Sequence[str]) -> h.Element:
    return h.datalist(id=place)[(h.option(value=name) for name in list(dict.fromkeys(names))[:MOST_NAMES])]


def _line(command: Command, filled: Fields) -> h.Node:
    try:
        words = words_of(command, filled)
    except PrismError as error:
        return notice(str(error), "unsure")
    try:
        check_values(command, filled)
        missing = None
    except PrismError as error:
        missing = h.p(".hint", role="status")[str(error)]
    return [copied(command_line(words), "command"), missing]


def command_line(words: Sequence[str]) -> str:
    """Words as they are typed in a terminal."""
    return shlex.join(["prism-jax", *words])


def _group(title: str, own: Sequence[CommandField], filled: Fields, wrong: Sequence[str]) -> h.Element:
    """Fields under one heading; folded where nothing of it is needed or filled in."""
    inside = [_labelled(one, filled.get(one.name, ()), wrong) for one in own]
    if title in OPEN:
        return h.fieldset[h.legend[title], h.div(".fields")[inside]]
    is_used = any(any(filled.get(one.name, ())) or one.is_required for one in own)
    return h.details(open=is_used)[h.summary[title], h.fieldset[h.legend(".unseen")[title], h.div(".fields")[inside]]]


def _labelled(one: CommandField, values: Sequence[str], wrong: Sequence[str]) -> h.Element:
    place, about = f"field-{one.name}", f"about-{one.name}"
    is_wrong = any(names(line, one) for line in wrong)
    said: Mapping[str, str | bool | None] = {
        "id": place,
        "name": one.name,
        "aria-describedby": about,
        "aria-invalid": "true" if is_wrong else None,
        "required": one.is_required,
    }
    label = h.label(for_=place)[
        one.label, h.span(".hint")[f" {one.metavar}"] if one.word and one.metavar else None, _needed(one)
    ]
    listed = f" The field lists those that are known, at most {MOST_NAMES}." if _list_of(one) else None
    default = f" Default: {one.default}." if one.default else None
    hint = h.p(".hint", id=about)[one.part.help, default, _bounds(one), listed]
    if one.kind == "flag":
        box = h.input({**said, "required": None}, type="checkbox", value="on", checked=any(values))
        return h.div(".field.flag")[h.div[box, label], hint]
    return h.div(".field")[label, _input(one, values, said), hint]


def _input(one: CommandField, values: Sequence[str], said: Mapping[str, str | bool | None]) -> h.Node:
    value = values[-1] if values else ""
    option = one.part.option
    if one.kind == "lines":
        return h.textarea(said, class_="few", rows=str(LINES_SHOWN))["\n".join(values)]
    if one.kind == "choice":
        chosen = value or one.choices[0]
        return h.select(said)[(h.option(value=word, selected=word == chosen)[word] for word in one.choices)]
    if one.kind == "number":
        step = "1" if one.is_whole else "any"
        bounds = {name: _number(bound) for name, bound in (("min", option.least), ("max", option.most))}
        return h.input(
            {**said, **bounds}, type="number", step=step, value=value or None, placeholder=one.default or None
        )
    own = {**said, "list": _list_of(one), "placeholder": one.default or None, "value": value or None}
    return h.input(own, type="text", autocomplete="off", spellcheck="false")


def _list_of(one: CommandField) -> str | None:
    """List of names that a text field proposes."""
    if one.kind != "text":
        return None
    listed = JOBS if one.metavar == "JOB" else FILES if one.name == SUBJECT or "FILE" in one.metavar else None
    return CATALOGUE_OF.get(one.part.name, listed)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.15g}"


def _needed(one: CommandField) -> h.Node:
    return h.span(".hint")[" (needed)"] if one.is_required else None


def _bounds(one: CommandField) -> str | None:
    option = one.part.option
    if one.kind == "lines":
        return " One value per line."
    if one.kind != "number" or (option.least is None and option.most is None):
        return None
    low, high = (None if bound is None else f"{bound:,.15g}" for bound in (option.least, option.most))
    if low is None or high is None:
        return f" At least {low}." if high is None else f" At most {high}."
    return f" From {low} to {high}."


def names(line: str, one: CommandField) -> bool:
    """Whether a line of an error is about a field."""
    return one.label in line.replace(":", " ").replace('"', " ").replace("'", " ").split()


ROUTES = (
    Route("/start", show_start),
    Route("/start/line", posted(show_line), methods=["POST"]),
    Route("/runs", posted(start_run), methods=["POST"]),
)
