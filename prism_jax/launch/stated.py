"""Statements about a job in a trainer's words, as fields of a job file, each with where it was said; and that file as text.

Names of hosts and folders are not written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import DataError, FieldPath, Mark, PlanError
from ..plan.optimizers import parse_optimizer
from ..plan.plan import ParallelPlan
from ..tables.document import Document, short
from ..tables.yaml_toml import flow
from .head import Head, SaidValue

LONGEST_LITERAL = 400
# Why no job is made of a model: job files have such models, or have none.
BY_HAND = "which is not read from arguments; describe it in a job file (`prism-jax init`)"
NO_FIELD = "which no field of a job describes"
PRIVATE = re.compile(r"(?:~|\.{0,2})/[^\s,;]{1,400}|\b\d{1,3}(?:\.\d{1,3}){3}\b")  # paths and addresses


@dataclass(frozen=True)
class StatedField:
    """A field of a job file.

    Attributes:
        path: with dots.
        value: as a job file holds it.
        said: what it was read from; empty where it was taken as usual.
        why: in words, where it does not follow from the name alone.
    """

    path: str
    value: Any
    said: tuple[SaidValue, ...] = ()
    why: str = ""

    @property
    def comment(self) -> str:
        """Comment on the origin, without names of hosts and folders: `line 12: num_layers = 32`."""
        pairs = [(one, f"{one.name} = {PRIVATE.sub('...', one.text)[:40]}") for one in self.said if one.name]
        words = [f"line {one.line}: {text}" if one.line else f"not in the file: {text}" for one, text in pairs]
        return "; ".join([*words, *([self.why] if self.why else [])]) or "not said: as the trainer does by default"


@dataclass
class StatedJob:
    """Fields of a job, and what does not become one.

    Attributes:
        fields: by path.
        not_modelled: names with a value that has an effect which no field describes.
        assumed: what the trainer does not say and was taken as usual, in words.
        doubts: what is taken for something without odds, and the standard deviation of the logarithm of the step.
        either: fields of the software with another value that is as likely as the assumed one.
        notes: other things to be known.
        refused: why it cannot be a job; empty: it can.
        open: fields that a file would say which is not there, and why.
    """

    fields: dict[str, StatedField] = field(default_factory=dict)
    not_modelled: list[SaidValue] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    doubts: list[tuple[str, float]] = field(default_factory=list)
    either: list[tuple[str, object]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    open: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, value: Any, *said: SaidValue | None, why: str = "") -> None:
        """States a field; None is not a value."""
        if value is not None:
            self.fields[path] = StatedField(path, value, tuple(one for one in said if one is not None), why)

    def put_usual(self, values: Mapping[str, Any], why: str) -> None:
        """States what a trainer does without saying it.

        Args:
            values: by path of the field.
        """
        for path, value in values.items():
            self.put(path, value, why=why)

    def put_whole(self, path: str, said: SaidValue | None, least: int = 1) -> None:
        """States a whole number, where it is said.

        Raises:
            DataError: something else is written there, or it is less than `least`.
        """
        self.put(path, whole(said, least), said)

    def put_set(self, path: str, flag: SaidValue | None, value: object = True) -> None:
        """States a value where a flag is set, and nothing where it is not."""
        self.put(path, value if is_true(flag) else None, flag)

    def put_flag(self, path: str, flag: SaidValue | None) -> None:
        """States whether a flag is set, where that is said."""
        if flag is not None:
            self.put(path, is_true(flag), flag)

    def leave_out(self, *said: SaidValue | None, unless: Container[str] = ()) -> None:
        """Notes values with an effect that no field describes.

        Args:
            unless: texts without an effect.
        """
        self.not_modelled += [one for one in said if one is not None and one.text not in unless]

    def get(self, path: str, default: Any = None) -> Any:
        """Value of a field."""
        found = self.fields.get(path)
        return default if found is None else found.value

    @property
    def model_ranks(self) -> int:
        """GPUs of one replica of the model: tp x pp x cp."""
        return self.get("plan.tp", 1) * self.get("plan.pp", 1) * self.get("plan.cp", 1)

    def document(self, name: str, file: str) -> Document:
        """The job file that the fields make; its marks are lines of the log.

        Args:
            name: of the job.
            file: that the lines are of.
        """
        data: dict[str, Any] = {"name": name}
        marks: dict[FieldPath, Mark] = {}
        for one in self.fields.values():
            keys = one.path.split(".")
            inner = data
            for key in keys[:-1]:
                inner = inner.setdefault(key, {})
            inner[keys[-1]] = one.value
            if one.said:
                marks[tuple(keys)] = Mark(file, one.said[0].line, 1)
        return Document(file, data, marks)


def literal(text: str) -> Any:
    """A value as trainers print it: None, true or false, a number, a list, else text. Nothing is evaluated.

    Raises:
        DataError: a list or mapping that is too long.
    """
    plain = {"None": None, "null": None, "True": True, "true": True, "False": False, "false": False, "": None}
    text = text.strip()
    if text in plain:
        return plain[text]
    if text[:1] in "[({'\"0123456789-+." and len(text) <= LONGEST_LITERAL:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return text
        return list(found) if isinstance(found, tuple) else found
    return text


def whole(value: SaidValue | None, least: int = 0, most: int = 10**9) -> int | None:
    """A whole number; None where there is none.

    Raises:
        DataError: something else is written there.
    """
    if value is None:
        return None
    found = literal(value.text.replace("_", "").replace(",", ""))
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
        raise DataError(
            f"line {value.line}: {value.name} = {short(value.text)} is no whole number from {least} to {most}"
        )
    return found


def is_true(value: SaidValue | None) -> bool:
    """Whether a flag is set."""
    return value is not None and literal(value.text) is True


def first_true(head: Head, *names: str) -> SaidValue | None:
    """The first of some flags of a head that is set."""
    return next((one for one in map(head.said, names) if is_true(one)), None)


DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16", "uint8": "fp8"}


def dtype_of(value: SaidValue | None) -> str | None:
    """A number format: bf16 of torch.bfloat16; None where it is not said or not known."""
    if value is None:
        return None
    name = value.text.rpartition(".")[2]
    return name if name in DTYPES.values() else DTYPES.get(name)


def optimizer_of(value: SaidValue | None) -> str | None:
    """An optimizer as `plan.optimizer` names it; None where it is not said or not known."""
    if value is None:
        return None
    with suppress(PlanError):
        return parse_optimizer(value.text.partition(":")[0])  # an enumeration: <OptimizerNames.LION: 'lion'>
    return None


COLUMN = 44


ORIGINS = {"log": "the head of a training log", "script": "a launch script", "configuration": "a configuration"}


def degrees_text(plan: ParallelPlan) -> str:
    """Degrees of a plan in words, such as tp 8 x pp 4 x dp 16."""
    return f"tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp}".replace(" x cp 1", "")


def job_text(stated: StatedJob, document: Document, source: str = "log") -> str:
    """YAML of a job file.

    Args:
        stated: the fields and where they are from.
        document: what is written: the fields, with what replaces some of them.
        source: kind of file that it is from.
    """
    comments = {tuple(path.split(".")): one.comment for path, one in stated.fields.items()}
    lines = [f"# Read from {ORIGINS[source]}; every field says from which line."]
    lines += _section(document.data, (), comments)
    return "\n".join(lines) + "\n"


def _section(data: dict[str, Any], path: tuple[str, ...], comments: dict[tuple[str, ...], str]) -> Iterator[str]:
    front = "  " * len(path)
    for name, value in data.items():
        here = (*path, name)
        if isinstance(value, dict):
            yield f"{front}{name}:"
            yield from _section(value, here, comments)
            continue
        text = f"{front}{name}: {flow(value)}"
        about = comments.get(here, "" if here == ("name",) else "--set")
        yield f"{text.ljust(COLUMN)} # {about}" if about else text
