"""Writes the reference pages that the code itself holds: Python, commands, reports, file formats, presets.

`docs/conf.py` calls it. The pages lie in docs/reference, are made anew with every build of the site, and are not committed.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

from docstring_parser import DocstringStyle, parse

import inference
import prism_jax
from prism_jax import show_catalogue
from prism_jax.core.report import Report
from prism_jax.fits.models import MODELS
from prism_jax.shell.app import command_line
from prism_jax.shell.catalogue import COMMANDS
from prism_jax.shell.command import tables_of
from prism_jax.show.reports import REPORTS, published_schema

FOLDER = Path(__file__).resolve().parent / "reference"
CATALOGUES = ("models", "devices", "clusters", "networks", "frameworks", "schedules", "objectives", "reliability")
UNITS = (  # ending of a name -> unit; the first that fits
    ("flops_per_s", "FLOP/s"),
    ("bytes_per_s", "bytes/s"),
    ("per_s", "per second"),
    ("per_hour", "per hour"),
    ("_s", "seconds"),
    ("_h", "hours"),
    ("_bytes", "bytes"),
    ("bytes_per_gpu", "bytes"),
    ("_watts", "watts"),
    ("_joules", "joules"),
    ("_prob", "probability"),
    ("prob", "probability"),
    ("_share", "share, 0 to 1"),
)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def public_names() -> dict[str, Any]:
    """Full name -> object, of all public names of both packages."""
    modules = ((module, name) for module in (prism_jax, inference) for name in module.__all__)
    found = {f"{module.__name__}.{name}": getattr(module, name) for module, name in modules}
    return {name: value for name, value in found.items() if callable(value)}


def api_page() -> str:
    """Public functions and classes, from their docstrings."""
    found = public_names()
    ours = [name for name in found if name.startswith("prism_jax.")]
    sections = {
        "Functions": [name for name in ours if inspect.isroutine(found[name])],
        "Classes": [name for name in ours if inspect.isclass(found[name])],
        "Fits (`inference`)": [name for name in found if name not in ours],
    }
    lines = [
        "# Python",
        "",
        "Everything here is imported from `prism_jax`, or from `inference` where its name says so.",
        "",
    ]
    for title, names in sections.items():
        lines += [f"## {title}", "", "```{eval-rst}"]
        lines += [directive for name in names for directive in _directive(name, found[name])]
        lines += ["```", ""]
    return "\n".join(lines)


def _directive(name: str, value: Any) -> list[str]:
    if inspect.isclass(value):
        return [f".. autoclass:: {name}", "   :members:", ""]
    return [f".. autofunction:: {name}", ""]


def commands_page() -> str:
    """All commands with their options, from the use cases."""
    text = command_line([], complete=True).generate_docs(output_format="markdown", heading_level=1)
    _, *sections = re.split(r"^## (?=prism-jax [a-z])", text, flags=re.MULTILINE)
    head = f"# Commands\n\n{_EXIT_CODES}\n\n"
    links = re.compile(r"\[(`[^`]*`)\]\(#[^)]*\)")
    return head + links.sub(r"\1", "".join(f"## {section.rstrip()}\n\n{_below(section)}" for section in sections))


def _below(section: str) -> str:
    """What stands below the options of the command that a section is of: an example, and columns that no other page has."""
    name = section.partition("\n")[0].removeprefix("prism-jax ")
    if name not in COMMANDS:
        return ""
    command = COMMANDS.named(name)
    tables = () if name.startswith("fit ") else tables_of(command)
    lines = [f"**Example**:\n\n```sh\n{command.example}\n```\n"]
    lines += [f"**Columns of {title}**:\n\n{table(('column', ''), found.items())}" for title, found in tables]
    return "\n".join(lines) + "\n"


def reports_page() -> str:
    """All kinds of reports, with the fields of their JSON."""
    lines = ["# Reports", "", "What `--json` prints and `report.to_dict()` returns, by kind.", _UNITS_SAID, ""]
    for kind in REPORTS:
        lines += [f"## {kind.schema()}", ""]
        for name, body, said in report_types(kind):
            lines += [("" if name == kind.__name__ else f"**{name}**: ") + body["description"], "", _fields(body, said)]
    return "\n".join(lines)


def report_types(kind: type[Report]) -> Iterator[tuple[str, Mapping[str, Any], dict[str, str]]]:
    """Objects in the JSON of a report: name, schema, and what each field is: empty where nothing says it."""
    schema, types, words = published_schema(kind.kind), dataclasses_of(kind), field_words()
    for name, body in ((kind.__name__, schema), *schema.get("$defs", {}).items()):
        own = types.get(name, {})
        said = {
            field: own.get(field) or words.get(f"{name}.{field}") or unit_of(field) or words.get(field, "")
            for field in body.get("properties", {})
        }
        yield name, body, said


def field_words() -> dict[str, str]:
    """Field, or type and field -> what it is, where neither the class nor the name says it."""
    return tomllib.loads((Path(__file__).resolve().parent / "report_fields.toml").read_text(encoding="utf-8"))


_EXIT_CODES = (
    "`prism-jax COMMAND --help` prints the same. Exit codes: 0 done, 1 failed, 2 wrong input, 130 interrupted."
)
_UNITS_SAID = (
    "Numbers are in SI units, as their names say. `prism-jax show schemas NAME` prints the JSON schema of one."
)


def _fields(body: Mapping[str, Any], said: Mapping[str, str]) -> str:
    required = body.get("required", ())
    rows = (
        (f"`{name}`", _type(of) + ("" if name in required else ", may be missing"), said[name])
        for name, of in body.get("properties", {}).items()
    )
    return table(("field", "type", "what it is"), rows)


def unit_of(name: str) -> str:
    """Unit of a number, as its name says it."""
    if name.startswith("n_"):
        return f"number of {name[2:].replace('_', ' ')}"
    return next((unit for ending, unit in UNITS if name.endswith(ending)), "")


def _type(of: Mapping[str, Any]) -> str:
    if "$ref" in of:
        return of["$ref"].rpartition("/")[2]
    if "const" in of:
        return f'"{of["const"]}"'
    if "enum" in of:
        return " or ".join(f'"{value}"' for value in of["enum"])
    if "anyOf" in of:
        return " or ".join(_type(part) for part in of["anyOf"])
    if of.get("type") == "array":
        return f"list of {_type(of['items'])}" if "items" in of else "list"
    if of.get("type") == "object":
        return f"object of {_type(of['additionalProperties'])}" if of.get("additionalProperties") else "object"
    return of.get("type", "any")


def dataclasses_of(kind: type) -> dict[str, dict[str, str]]:
    """Name of every dataclass in the fields of a report -> what its docstring says of each field."""
    found: dict[str, dict[str, str]] = {}
    left: list[Any] = [kind]
    while left:
        at = left.pop()
        left += get_args(at)
        if isinstance(at, type) and is_dataclass(at) and at.__name__ not in found:
            found[at.__name__] = dict(_attributes(at))
            left += get_type_hints(at).values()
    return found


def _attributes(kind: type) -> Iterator[tuple[str, str]]:
    for part in parse(inspect.getdoc(kind) or "", DocstringStyle.GOOGLE).params:
        for name in part.arg_name.split(","):
            yield name.strip(), (part.description or "").replace("\n", " ")


def formats_page() -> str:
    """Files that are read: traces, logs, and the columns that each fit takes."""
    lines = [
        "# File formats",
        "",
        "Job files and tables of jobs have pages of their own.",
        "",
        "## Traces and recorded steps",
        "",
    ]
    lines += [_catalogue("traces"), "## Training logs", "", "Lines that are looked for.", "", _catalogue("logs")]
    lines += ["## Measurements", "", "Columns of the tables that `prism-jax fit` takes; `--map` names others.", ""]
    for name, model in MODELS.items():
        place, _, kind = model.place.rpartition(".")
        columns = getattr(import_module(place), kind)().columns
        if columns and model.help:
            lines += [
                f"### fit {name}",
                "",
                model.help,
                "",
                table(("column", "also found as", ""), map(_column, columns)),
            ]
    return "\n".join(lines)


def _column(column: Any) -> tuple[str, str, str]:
    others = ", ".join(f"`{alias}`" for alias in column.aliases if alias != column.name)
    return f"`{column.name}`", others, "required" if column.required else ""


def presets_page() -> str:
    """What ships, by name."""
    lines = ["# Presets", "", "`prism-jax show CATALOGUE NAME` prints everything known of one, with its source.", ""]
    for name in CATALOGUES:
        lines += [f"## {name.capitalize()}", "", _catalogue(name)]
    return "\n".join(lines)


def _catalogue(name: str) -> str:
    report = show_catalogue(name)
    return table(report.columns, report.rows)


PAGES = {
    "api": api_page,
    "commands": commands_page,
    "reports": reports_page,
    "formats": formats_page,
    "presets": presets_page,
}


def write(folder: Path = FOLDER) -> None:
    """Writes all pages; those that say the same already stay as they are, so that a second build reads them from its cache."""
    folder.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        file, text = folder / f"{name}.md", page()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
