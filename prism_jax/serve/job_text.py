"""Checks the text of a job file as `prism-jax check` does, while it is written: mistakes with their lines, or the answer.

Nothing is simulated and JAX is not loaded. Files that a job names are read below the folder that is served alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import htpy as h

from ..core.errors import MOST_LINES, ConfigError, DataError, FieldPath, Mistake, PrismError, dotted, printable
from ..core.page_html import block_html
from ..core.units import format_bytes
from ..core.use_case import case_of
from ..job.job import Job
from ..job.load_job import MAX_BYTES, job_of
from ..job.write_job import FILES
from ..prediction.check import check_job
from ..prediction.check_report import CheckReport
from ..tables.document import Document
from ..tables.yaml_toml import read_toml, read_yaml
from .site import Site

NEAR = 2  # lines that are shown around a wrong one
MOST_NAMES = 2000  # of fields: a hint at the right name of each wrong one takes time
LENGTHS = "data"  # section that may hold many numbers as names
MOST_LETTERS = 200  # of a line that is shown
MOST_DEVICES = 2**20


@dataclass(frozen=True)
class CheckedText:
    """The text of a job file, and what it says.

    Attributes:
        text: of the file, with line ends as files have them.
        mistakes: everything that is wrong, in the order of lines; places name no folder.
        document: its fields; None where it is not YAML or TOML.
        job, report: where nothing is wrong.
    """

    text: str
    mistakes: Sequence[Mistake] = ()
    document: Document | None = None
    job: Job | None = None
    report: CheckReport | None = None

    @cached_property
    def lines(self) -> list[str]:
        """Lines of the text, without empty ones at its end."""
        return self.text.rstrip("\n").split("\n")

    @cached_property
    def wrong(self) -> dict[FieldPath, str]:
        """Fields with a mistake, and the last one of each."""
        return {one.path: one.text for one in self.mistakes}

    def line(self, number: int) -> str:
        """One line, counted from 1; empty where there is none."""
        return self.lines[number - 1] if 1 <= number <= len(self.lines) else ""


def checked(site: Site, name: str, text: str) -> CheckedText:
    """Reads and checks the text of a job file.

    Args:
        name: of the file below DIR, from whose folder the files count that the job names; it need not be there.
    """
    path = site.path(name)
    found = CheckedText(text)
    try:
        if len(text.encode()) > MAX_BYTES:
            raise ConfigError.in_file(path, f"larger than {format_bytes(MAX_BYTES)}. A job is a page of YAML or TOML.")
        document = (read_toml if path.suffix == ".toml" else read_yaml)(text, str(path))
        n_names = sum(isinstance(field[-1], str) and field[0] != LENGTHS for field in document.marks)
        if n_names > MOST_NAMES:
            raise ConfigError.in_file(path, f"more than {MOST_NAMES:,} fields, so hardly a job")
        found = replace(found, document=document)
        if elsewhere := [*outside(document, site)]:
            raise ConfigError(elsewhere)
        job = job_of(document)
        return replace(found, job=job, report=case_of(check_job).function(job))
    except ConfigError as error:
        return replace(found, mistakes=[_named(one, site, name) for one in error.mistakes])
    except PrismError as error:
        return replace(found, mistakes=[_named(Mistake(str(error)), site, name)])


def gpus_of(text: str) -> int:
    """A number of GPUs.

    Raises:
        DataError: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MOST_DEVICES):
        raise DataError(f"GPUs {text[:20]!r}: it must be a whole number from 1 to {MOST_DEVICES:,}")
    return int(text)


def outside(document: Document, site: Site) -> Iterator[Mistake]:
    """Mistakes about files that a job names and that lie elsewhere."""
    folder, root = Path(document.name).parent, site.folder.resolve()
    for field in FILES:
        value: Any = document.data
        for key in field:
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, str):
            continue
        try:
            is_inside = (folder / value).resolve().is_relative_to(root)
        except (OSError, ValueError, RuntimeError):
            is_inside = False
        if not is_inside:
            text = "names a file outside of the folder that is served. Put it there, and name it from the job file."
            yield document.mistake(field, text)


def _named(mistake: Mistake, site: Site, name: str) -> Mistake:
    """Returns the mistake as one about the file `name`, without the folder that is served."""
    mark = None if mistake.mark is None else replace(mistake.mark, source=name)
    return Mistake(mistake.text.replace(f"{site.folder}/", ""), mark, mistake.path)


def check_part(found: CheckedText) -> h.Element:
    """Mistakes and the lines that they are on, or the card of `check`."""
    inner = _mistakes(found) if found.mistakes else _answer(found)
    return h.div("#check", role="status", tabindex="-1")[inner]


def _mistakes(found: CheckedText) -> list[h.Node]:
    shown, n = found.mistakes[:MOST_LINES], len(found.mistakes)
    items = [h.li(f"#mistake-{at}")[_place(one), printable(one.text)] for at, one in enumerate(shown)]
    return [
        h.h2("#verdict")[f"{n:,} mistake{'s' * (n > 1)}"],
        h.div(".notice.bad")[h.ul[items], h.p[f"and {n - len(shown):,} more"] if n > len(shown) else None],
        h.ol(".lines", aria_label="Lines with mistakes", tabindex="0")[_lines(found.lines, shown)],
    ]


def _place(mistake: Mistake) -> h.Node:
    """Line and field of a mistake, in front of its text; the line is a button that leads to it in the text."""
    line = mistake.mark.line if mistake.mark else 0
    to_line = h.button(type="button", data_line=str(line))[f"line {line}"] if line else None
    path = h.strong[printable(dotted(mistake.path))] if mistake.path else None
    return [to_line, " " if line else None, path, ": " if line or path else None]


def _lines(lines: Sequence[str], mistakes: Sequence[Mistake]) -> Iterator[h.Element]:
    """The wrong lines with those around them, and under each what is wrong there."""
    wrong: dict[int, list[int]] = {}
    for at, one in enumerate(mistakes):
        if one.mark and 1 <= one.mark.line <= len(lines):
            wrong.setdefault(one.mark.line, []).append(at)
    near = sorted({n for line in wrong for n in range(line - NEAR, line + NEAR + 1) if 1 <= n <= len(lines)})
    for n in near:
        code = h.code[printable(lines[n - 1][:MOST_LETTERS]) or " "]
        told = wrong.get(n)
        if told is None:
            yield h.li(value=str(n))[code]
        else:
            described = " ".join(f"mistake-{at}" for at in told)
            said = (h.span(".said")[printable(mistakes[at].text)] for at in told)
            yield h.li(".wrong", value=str(n), aria_describedby=described)[code, said]


def _answer(found: CheckedText) -> list[h.Node]:
    assert found.report is not None
    card = replace(found.report.card(), title="", next_step="")
    group = card.as_group()
    return [
        h.h2("#verdict")[found.report.card().title],
        [block_html(one, 3) for one in group.blocks],
        [h.p(".hint")[f"Note: {one}"] for one in found.report.notes],
    ]
