"""The screen of a launch script, a configuration or a training log: asks for what is missing, then shows the job that it states.

What was filled in stands in the address, so that nothing is kept: the same address reads the file again.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import htpy as h
from starlette.requests import Request

from ..core.errors import ConfigError, DataError, PrismError
from ..core.page import Note, Table
from ..core.page_html import block_html
from ..core.readable import counted
from ..job.load_job import apply_overrides
from ..launch.config_files import SUFFIXES
from ..launch.import_job import imported, variables_of
from ..launch.import_report import ImportReport
from ..launch.launch_files import is_script
from ..system.catalog import device_names
from ..tables.document import Document
from .files import too_large
from .job_form import editor
from .job_text import checked, gpus_of, outside
from .layout import choice, document, failure, heading, hidden, link
from .site import Site, address, numbered, site_of

VARIABLE, FIELD = "env.", "set."  # in front of names, as the form sends them
ASKED = re.compile(r"--(env|set) ([\w.]+)=")  # how an import asks for a variable or a field
OPTION = re.compile(
    r"--(?:(env|set) ([\w.]+)(?:=(?:VALUE|NAME|N|\.\.\.)(?!\w))?|(device|gpus|env|set)(?![\w-])(?: (?:NAME|N)\b)?)"
)
LABELS = {"env": "Variable", "set": "Field", "device": "GPU", "gpus": "GPUs of the job"}  # option -> label in the form
MOST_LETTERS = 2000  # of a value


@dataclass(frozen=True)
class Given:
    """Answers of a person about a file that is imported.

    Attributes:
        device, gpus, arguments: as typed; empty: nothing.
        variables, fields: name -> value, also where it is empty.
        unread: lines that are no NAME=VALUE.
    """

    device: str
    gpus: str
    arguments: str
    variables: dict[str, str]
    fields: dict[str, str]
    unread: tuple[str, ...]

    @classmethod
    def of(cls, request: Request) -> Given:
        """Reads the address."""
        query = {name: value.strip()[:MOST_LETTERS] for name, value in request.query_params.items()}
        variables = {name.removeprefix(VARIABLE): value for name, value in query.items() if name.startswith(VARIABLE)}
        fields = {name.removeprefix(FIELD): value for name, value in query.items() if name.startswith(FIELD)}
        unread: list[str] = []
        for more, into in (("env", variables), ("set", fields)):
            for line in filter(str.strip, query.get(more, "").splitlines()):
                name, equals, value = map(str.strip, line.partition("="))
                if equals:
                    into[name] = value
                else:
                    unread.append(name)
        device, gpus, arguments = (query.get(one, "") for one in ("device", "gpus", "arguments"))
        return cls(device, gpus, arguments, variables, fields, tuple(unread))

    def read(self, path: Path, site: Site) -> tuple[ImportReport, str]:
        """Imports a file.

        Raises:
            PrismError: something is missing or wrong.
        """
        if (
            path.suffix not in SUFFIXES
            and not is_script(path)
            and (why := too_large([(path.name, path.stat().st_size)]))
        ):
            raise DataError(f"{path}: {why} Save its beginning, where its head is, as a file of its own.")
        if self.unread:
            raise DataError(f"{self.unread[0][:200]}: write NAME=VALUE, one a line")
        n_gpus = gpus_of(self.gpus) if self.gpus else None
        variables = variables_of("variable", [f"{name}={value}" for name, value in self.variables.items() if value])
        overrides = [f"{name}={value}" for name, value in self.fields.items() if value]
        if wrong := [*outside(apply_overrides(Document(str(path), {}), overrides), site)]:
            raise ConfigError(wrong)
        return imported(
            path, self._words(path), variables or None, n_gpus, self.device or None, site.folder, None, overrides
        )

    def in_form(self, line: str) -> str:
        """A line of an error that names the fields of the form in the place of options of a command."""
        for name, value in self.fields.items():
            line = line.replace(f"--set {name}={value}", f"--set {name}")
        return OPTION.sub(lambda found: f"'{' '.join(filter(None, (LABELS[found[1] or found[3]], found[2])))}'", line)

    def _words(self, path: Path) -> Sequence[str]:
        """Arguments; those of a configuration that are files are followed from inside it alone."""
        try:
            words = shlex.split(self.arguments)
        except ValueError as error:
            raise DataError(f"arguments: {error}. Put texts in quotes.") from None
        if not is_script(path) and any("=" not in word for word in words):
            raise DataError("arguments: write KEY=VALUE, as its trainer takes them")
        return words


def import_page(request: Request, name: str) -> h.Element:
    """The screen of a file in the words of a trainer."""
    site, given = site_of(request), Given.of(request)
    path = site.existing(name)
    try:
        report, text = given.read(path, site)
    except PrismError as error:
        return _asking(site, path, name, given, error)
    job = Path(name).with_suffix(".yaml").as_posix()  # of run.sh: run.yaml
    new = next(one for one in numbered(job) if not site.path(one).exists())
    card = replace(report.card(), next_step="")
    return document(
        name,
        heading(name, _recorded(path, name)),
        h.section(".card")[[block_html(one, 2) for one in card.as_group().blocks]],
        h.details(id="given")[h.summary["Say more of it"], _form(path, name, given, "")],
        _lists(report),
        h.h2["The job"],
        h.p[f"It is not saved yet. {new} is a name that is free."],
        editor(checked(site, new, text), new, ""),
    )


def _asking(site: Site, path: Path, name: str, given: Given, error: PrismError) -> h.Element:
    """The screen while something is missing."""
    return document(
        name,
        heading(name, _recorded(path, name)),
        h.p["A job can be made of a launch script, a configuration of a trainer, or the head of a training log."],
        h.div("#asked")[failure(map(given.in_form, site.lines_of(error)))],
        _form(path, name, given, str(error)),
        link("Edit it as a job file", address("/job", **{"file": name, "as": "job"}))
        if path.suffix in SUFFIXES and path.suffix != ".json"
        else None,
    )


def _recorded(path: Path, name: str) -> h.Node:
    """A link to the steps that a log holds next to its head."""
    if is_script(path) or path.suffix in SUFFIXES:
        return None
    return link("Its recorded steps", address("/recording", file=name))


def _form(path: Path, name: str, given: Given, told: str) -> h.Element:
    """Fields for what a file leaves open: those that it asks for are there by name."""
    asked = ASKED.findall(told)
    variables = {one: "" for kind, one in asked if kind == "env"} | given.variables
    fields = {one: "" for kind, one in asked if kind == "set"} | given.fields
    is_written = is_script(path) or path.suffix in SUFFIXES
    devices = {"": "as the file says", **{name: name for name in device_names()}}
    return h.form("#import", action="/job", method="get")[
        hidden({"file": name}),
        choice("GPU", "device", devices, given.device, **_asked("--device" in told)),
        _number(given, told) if is_written else None,
        (_text(f"{VARIABLE}{one}", f"Variable {one}", value) for one, value in variables.items()),
        (_text(f"{FIELD}{one}", f"Field {one}", value) for one, value in fields.items()),
        _text("arguments", "Arguments, as behind the script", given.arguments)
        if is_written and (given.arguments or "positional" in told)
        else None,
        h.details(id="more-said")[
            h.summary["More variables and fields"],
            _several("env", "Variables that are set around it, NAME=VALUE, one a line") if is_written else None,
            _several("set", "Fields of the job, such as plan.tp=4, one a line"),
        ],
        h.div(".actions")[h.button(type="submit")["Import"]],
    ]


def _number(given: Given, told: str) -> list[h.Node]:
    is_asked = "--gpus" in told and not given.gpus
    return [
        h.label(for_="gpus")["GPUs of the job"],
        h.input("#gpus", name="gpus", value=given.gpus, inputmode="numeric", **_asked(is_asked)),
    ]


def _text(name: str, label: str, value: str) -> h.Node:
    return [
        h.label(for_=name)[label],
        h.input(id=name, name=name, value=value, autocomplete="off", **_asked(not value)),
    ]


def _asked(is_asked: bool) -> dict[str, str]:
    """Attributes of a field that the message above asks for."""
    return {"aria_invalid": "true", "aria_describedby": "asked"} if is_asked else {}


def _several(name: str, label: str) -> list[h.Node]:
    return [h.label(for_=name)[label], h.textarea(".few", id=name, name=name, rows="3", spellcheck="false")]


def _lists(report: ImportReport) -> Iterator[h.Node]:
    """The three lists of an import: what matters and is left out is open."""
    notes = [block for block in report.blocks() if isinstance(block, Note)]
    yield [block_html(one, 2) for one in notes]
    for table in report.blocks():
        if isinstance(table, Table):
            n = counted(len(table.rows), table.columns[0])
            is_open = table.title.startswith("Matters")
            key = f"list-{table.title.split()[0].lower()}"
            yield h.details(id=key, open=is_open)[h.summary[f"{table.title}: {n}"], block_html(table, 2)]
