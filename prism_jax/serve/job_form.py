"""The editor of a job: its text, and next to it the fields in groups: value, unit, default, and where the value is from.

The form is made of the text and of what `check` says of it, so the two cannot disagree: a field that is changed here is set in
the text, from which the form is made anew.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any

import htpy as h

from ..core.errors import FieldPath, dotted, printable
from ..framework.frameworks import FRAMEWORKS
from ..job.load_job import SHORTHAND
from ..job.reference import CLASS, NEEDED, SECTION, JobField, fields_of_kind, job_fields
from ..job.sections import KIND
from ..job.write_job import values_in_force
from ..system.catalog import cluster_names, device_names
from ..tables.yaml_toml import flow
from ..variability.config import preset_names
from ..workload.catalog import KINDS, workload_names
from .job_text import CheckedText, check_part
from .layout import hidden

THEN = {"": "Save", "predict": "Save and predict", "search": "Save and search plans", "sweep": "Save and sweep"}
SET = "set:"  # in front of the name of a field, as forms send it
GROUPS = {
    "": "Job",
    "model": "Model",
    "cluster": "Cluster",
    "plan": "Plan",
    "data": "Data",
    "software": "Software",
    "variability": "Variability",
    "published": "Published figures",
}
ORIGINS = (
    (re.compile(r"line \d+: "), "read from "),
    (re.compile(r"not said\b"), "assumed: "),
    (re.compile(r"not in the file: |--(device|set)\b"), "given at the import: "),
)  # how the comments of an imported job begin, and what they say
IN_TEXT = "fields of its own, written in the text"  # what a section is to someone who looks at the form
BOOLEAN = ("true", "false")
LISTS = {
    "models": workload_names,
    "clusters": cluster_names,
    "devices": device_names,
    "variabilities": preset_names,
    "frameworks": lambda: FRAMEWORKS.names,
}
LIST_OF = {
    "model": "models",
    "model.preset": "models",
    "cluster": "clusters",
    "cluster.preset": "clusters",
    "cluster.device": "devices",
    "cluster.device.preset": "devices",
    "cluster.device.like": "devices",
    "variability": "variabilities",
    "variability.preset": "variabilities",
    "framework": "frameworks",
}  # fields that take names, and the list of these
NESTED = ("tiers", "stalls")  # lists of sections, whose fields have places of their own where they are stated
MOST_FIELDS = 500  # of a text that the form shows
MOST_LETTERS = 120  # of a value that is shown


@dataclass(frozen=True)
class FormField:
    """One field of a job as the form shows it.

    Attributes:
        path: in the text.
        about: what it is, takes and defaults to; None: no field of a job file.
        value: as the text states it, in YAML; empty: it does not.
        origin: where the value in force is from.
        mistake: what is wrong with it; empty: nothing.
    """

    path: FieldPath
    about: JobField | None
    value: str
    origin: str
    mistake: str = ""

    @property
    def name(self) -> str:
        """Path with dots."""
        return dotted(self.path)

    @property
    def choices(self) -> tuple[str, ...]:
        """All values that it takes, where these are few."""
        takes = self.about.takes if self.about else ""
        if takes == "true or false":
            return BOOLEAN
        return tuple(takes.removeprefix("one of ").split(", ")) if takes.startswith("one of ") else ()


@dataclass(frozen=True)
class FormGroup:
    """Fields of one section: those that the text states, and the others."""

    title: str
    stated: Sequence[FormField]
    others: Sequence[FormField]


def groups_of(found: CheckedText) -> list[FormGroup]:
    """The form of a text, by section; none where it cannot be read."""
    if found.document is None:
        return []
    known = {field.path: field for field in _known(found)}
    leaves = islice(_leaves(found.document.data), MOST_FIELDS)
    stated = [_stated(found, path, value, known) for path, value in leaves]
    taken = {one.path for one in stated}
    others = [one for one in _others(found, known) if not _is_taken(one.path, taken)]
    return [
        FormGroup(title, [one for one in stated if _group(one) == name], [one for one in others if _group(one) == name])
        for name, title in GROUPS.items()
    ]


def _group(field: FormField) -> str:
    return str(field.path[0]) if field.path[0] in GROUPS else ""


def _is_taken(path: FieldPath, taken: Set[FieldPath]) -> bool:
    """Whether a field is stated: itself, a field inside it, or as a preset in short form."""
    inside = any(path == other[: len(path)] for other in taken)
    return inside or (path[-1] == "preset" and path[:-1] in taken)


def _known(found: CheckedText) -> Iterator[JobField]:
    """Fields that this job may have: those of its kind of model."""
    assert found.document is not None
    section = found.document.data.get("model")
    name = section.get(KIND) if isinstance(section, dict) else None
    kind = next((kind for kind in KINDS if found.job is not None and type(found.job.model) is kind.spec), None)
    kind = kind or next((kind for kind in KINDS if kind.name == name), None)
    sources = ("preset", "hf_config", "capture", KIND)
    own = () if kind is None else fields_of_kind(kind)
    for field in job_fields():
        if own and field.path[0] == "model" and len(field.path) > 1 and field.path[1] not in sources:
            continue
        yield field
    yield from own


def _leaves(value: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Values of a document that hold no others but lists of plain ones, in the order of the text."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    elif path:
        yield path, value


def _field_of(path: FieldPath, known: Mapping[tuple[str, ...], JobField]) -> JobField | None:
    """Description of a field: lists, names of tiers and kernel classes stand for all of their kind."""
    plain = [str(part) for part in path if not isinstance(part, int)]
    if plain[:2] == ["cluster", "tiers"] and len(plain) > 3:
        del plain[2]
    if plain[0] == "variability" and len(plain) > 2 and ("variability", plain[1]) not in known:
        plain[1] = CLASS
    for end in range(len(plain), 1, -1):
        if (field := known.get(tuple(plain[:end]))) is not None:
            return field if end == len(plain) or field.takes != SECTION else None
    return known.get(tuple(plain))


def _stated(found: CheckedText, path: FieldPath, value: Any, known: Mapping[tuple[str, ...], JobField]) -> FormField:
    assert found.document is not None
    mark = found.document.marks.get(path)
    said = found.wrong.get(path, "")
    return FormField(path, _field_of(path, known), "" if value is None else flow(value), _origin(found, mark), said)


def _origin(found: CheckedText, mark: Any) -> str:
    """Where a stated field is from: the comment of an import, else its line."""
    line = mark.line if mark else 0
    comment = found.line(line).partition(" # ")[2]
    for begins, words in ORIGINS:
        if begins.match(comment):
            return f"{words}{comment}"
    return f"stated in line {line}" if line else "stated"


def _others(found: CheckedText, known: Mapping[tuple[str, ...], JobField]) -> Iterator[FormField]:
    """Fields that the text does not state."""
    force = {} if found.job is None else values_in_force(found.job)
    tiers = force.get("cluster", {}).get("tiers") or {}
    for path, field in known.items():
        is_section = field.takes == SECTION or (len(path) == 1 and path[0] in GROUPS and path not in SHORTHAND)
        if CLASS in path or any(part in NESTED for part in path[1:-1]) or is_section:
            continue
        if path == ("cluster", "tiers"):
            for tier, values in tiers.items():
                for name in values:
                    own = known[("cluster", "tiers", name)]
                    yield FormField(("cluster", "tiers", tier, name), own, "", _in_force(found, values[name], own), "")
            continue
        value: Any = force
        for part in path:
            value = value.get(part) if isinstance(value, Mapping) else None
        yield FormField(
            path, field, "", _assumed(found, field) or _in_force(found, value, field), found.wrong.get(path, "")
        )


def _assumed(found: CheckedText, field: JobField) -> str:
    """Assumption about an open field, and what else it may be."""
    for one in found.report.open_fields if found.report else ():
        if one.name in (field.name, field.name.partition(".")[2]):
            return f"assumed: {one.words}"
    return ""


def _in_force(found: CheckedText, value: Any, field: JobField) -> str:
    """The value that holds though the text does not state it, and why."""
    assert found.document is not None
    section = found.document.data.get(field.path[0])
    preset = section if isinstance(section, str) else section.get("preset") if isinstance(section, dict) else None
    if value is None or value in ({}, []):
        if field.default is NEEDED:
            return "not stated; needed where no preset has it" if found.job is None else ""
        return "" if field.default is None else f"{_words(field.default)}, the default"
    if field.path[0] in ("model", "cluster") and isinstance(preset, str):
        return f"{_words(value)}, from the preset {preset}"
    if value == field.default:
        return f"{_words(value)}, the default"
    return f"{_words(value)}, which follows from other fields"


def _words(value: Any) -> str:
    text = flow(value) if not isinstance(value, str) else value or "none"
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]} ..."


def form_part(found: CheckedText, told: str = "", *, comes_along: bool = False) -> h.Element:
    """The form of a text.

    Args:
        told: why a change was not made.
        comes_along: whether it comes along with another answer, and htmx puts it in its place.
    """
    groups = groups_of(found)
    is_fixed = found.document is not None and found.document.name.endswith(".toml")
    ways = {"hx-target": "#editor", "hx-swap": "outerHTML", "hx-include": "#job", "hx-sync": "#job:replace"}
    return h.section("#fields", {**ways, "hx-swap-oob": "true" if comes_along else None}, aria_label="Fields")[
        h.p(".notice.bad", role="alert")[printable(told)] if told else None,
        h.p(".hint")["Fields of TOML are shown here and changed in the text."] if is_fixed else None,
        [_group_part(group, is_fixed) for group in groups]
        if groups
        else h.p["The text cannot be read yet, so its fields are not shown. Mend the marked line."],
        (h.datalist(id=f"list-{name}")[(h.option(value=one) for one in names())] for name, names in LISTS.items())
        if groups
        else None,
    ]


def _group_part(group: FormGroup, is_fixed: bool) -> h.Node:
    if not group.stated and not group.others:
        return None
    wrong = sum(bool(one.mistake) for one in group.others)
    name = re.sub(r"\W", "-", group.title.lower())
    return h.fieldset(".group", disabled=is_fixed)[
        h.legend[group.title],
        [_field_part(one) for one in group.stated] or h.p(".hint")["Nothing of it is stated."],
        h.details(id=f"more-{name}", open=bool(wrong))[
            h.summary(f"#more-{name}-words")[
                f"{len(group.others):,} more field{'s' * (len(group.others) > 1)} of {group.title.lower()}"
            ],
            [_field_part(one) for one in group.others],
        ]
        if group.others
        else None,
    ]


def _field_part(field: FormField) -> h.Element:
    """A field with its label, its control, what it is, and what is wrong with it."""
    key = f"f-{field.name}"
    described = f"{key}-about {key}-wrong" if field.mistake else f"{key}-about"
    shared = {
        "id": key,
        "name": f"{SET}{field.name}",
        "hx-post": "/job/set",
        "aria-describedby": described,
        "aria-invalid": "true" if field.mistake else None,
        "autocomplete": "off",
    }
    below = field.path[1:] if len(field.path) > 1 and field.path[0] in GROUPS else field.path
    return h.div(".field")[
        h.label(for_=key)[h.code[printable(dotted(below))]],
        _control(field, shared),
        h.p(".origin")[printable(field.origin)] if field.origin else None,
        h.p(".hint", id=f"{key}-about")[_about(field)],
        h.p(".said", id=f"{key}-wrong")[printable(field.mistake)] if field.mistake else None,
    ]


def _control(field: FormField, shared: dict[str, Any]) -> h.Node:
    choices = field.choices
    if choices and field.value in ("", *choices):
        options = [h.option(value="", selected=not field.value)["not stated"]]
        options += [h.option(value=one, selected=one == field.value)[one] for one in choices]
        return h.select(shared)[options]
    listed = LIST_OF.get(field.about.name if field.about else "")
    return h.input({**shared, "list": f"list-{listed}" if listed else None}, type="text", value=field.value)


def _about(field: FormField) -> str:
    """Description of a field, what it takes and its default."""
    about = field.about
    if about is None:
        return "No field of a job file."
    default = about.default
    known = "" if default is None or default is NEEDED or default == "" else f" Default: {_words(default)}."
    takes = "" if field.choices else f" Takes: {about.takes.replace(SECTION, IN_TEXT)}."
    return printable(f"{about.about[:1].upper()}{about.about[1:].rstrip('.')}.{takes}{known}")


def digest_of(text: str) -> str:
    """A short digest, which tells whether a file is still as it was read."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def plain(text: str) -> str:
    """The text with line ends as files have them: forms send others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def editor(found: CheckedText, name: str, digest: str, told: str = "") -> h.Element:
    """The text of a job next to its form, what it says, and what to do with it.

    Args:
        name, digest: file that the text is of, and the digest of what was read from it; empty: the file is new.
        told: why a change of a field was not made.
    """
    return h.div("#editor.two")[
        h.form("#job", action="/job/save", method="post")[
            hidden({"file": name, "digest": digest}),
            h.label(for_="text")["Job file (TOML)" if name.endswith(".toml") else "Job file (YAML)"],
            h.textarea(
                {
                    "hx-post": "/job/check",
                    "hx-trigger": "input changed delay:400ms",
                    "hx-target": "#check",
                    "hx-swap": "outerHTML",
                    "hx-sync": "#job:replace",
                    "hx-include": "#job",
                },
                id="text",
                name="text",
                spellcheck="false",
                autocomplete="off",
                aria_describedby="text-hint verdict",
                rows="24",
            )["\n", found.text],
            h.p("#text-hint.hint")[
                "It is checked as you type, without a simulation. Nothing is saved until you save it."
            ],
            check_part(found),
            h.label(for_="as")["Save under this name"],
            h.input("#as", name="as", value=name, required=True, autocomplete="off"),
            h.div(".actions")[
                (h.button(type="submit", name="then", value=then)[words] for then, words in THEN.items())
            ],
        ],
        form_part(found, told),
    ]
