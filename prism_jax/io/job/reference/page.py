"""The page of the docs that lists every field of a job file, from `job_fields`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ....variability.config import OWN_FIELDS, section_fields
from ....variability.families import FAMILIES, family_fields
from ....workload.kinds import KINDS, TRANSFORMER, WorkloadKind
from .fields import CLASS, NEEDED, JobField, fields_of_kind, job_fields

HEAD = """\
# The fields of a job file

A job is one YAML or TOML file. `prism-jax init my_job.yaml` writes one to start from, with every common field in it;
`prism-jax check my_job.yaml` names every mistake with its line. `prism-jax show models llama-3-8b --yaml` (or `clusters`,
`devices`, `variability`, `examples`) prints a section that can be copied and changed. `--set plan.tp=4` replaces one field from
the command line.

A unit belongs to every quantity (`bandwidth: 400 Gbit/s`, `hbm: 80 GiB`, `latency: 12 us`). Bits are not bytes, and GB is not
GiB. Defaults hold where a field is left out: *needed* is one that may be left out only beside a preset, which has it; an empty
one follows from other fields, as its line says. This page is made from the code that checks job files:
`python docs/job_file.py`.
"""
TITLES = {
    "model": "`model: llama-3-8b` is short for `model: {preset: llama-3-8b}`. Fields beside `preset` or `hf_config` change it; "
    "`capture` stands alone ([capture](capture.md)). See [models](models.md).",
    "cluster": "`cluster: dgx-h100` is short for `cluster: {preset: dgx-h100}`. A list of tiers replaces those of a preset; "
    "`tiers: {rail: {oversubscription: 2}}` changes one of them.",
    "plan": "tp * cp * dp * pp is the number of GPUs; `dp: auto` fills `cluster.n_devices`.",
    "software": "Which kernels run and how they are started. What is left out is a distribution: the likeliest value is "
    "assumed, predictions stand at the mean over all, and their interval holds them. `check` says what is assumed and what "
    "else it may be.",
    "variability": "A number alone is the coefficient of variation of a log-normal factor. "
    "`prism-jax show families` lists the families.",
}


def page() -> str:
    """The page, Markdown."""
    found = job_fields()
    blocks = [HEAD, "## Top level\n", _table(field for field in found if len(field.path) == 1)]
    for section, words in TITLES.items():
        blocks += [f"## `{section}`\n", f"{words}\n"]
        blocks.append(_table(field for field in found if field.path[0] == section and len(field.path) > 1))
    classes = [name for name in section_fields() if name not in OWN_FIELDS]
    blocks.append(f"`{CLASS}` is one of {', '.join(f'`{name}`' for name in classes)}, or a kernel class of your own.\n")
    blocks += ["### Families\n", _families()]
    blocks += [text for kind in KINDS if kind is not TRANSFORMER for text in _kind(kind)]
    return "\n".join(blocks)


def _kind(kind: WorkloadKind) -> Iterator[str]:
    """Heading and table of the models of one kind."""
    yield f"## `model: {{kind: {kind.name}, ...}}`\n"
    names = ", ".join(f"`{preset.name}`" for preset in kind.presets)
    yield f"{kind.about[:1].upper()}{kind.about[1:]}.{f' Presets: {names}.' if names else ''}\n"
    yield _table(fields_of_kind(kind))


def _table(rows: Iterable[JobField]) -> str:
    lines = ["| field | takes | default | what it is |", "|---|---|---|---|"]
    lines += [f"| `{field.name}` | {field.takes} | {_default(field.default)} | {field.about} |" for field in rows]
    return "\n".join(lines) + "\n"


def _default(value: Any) -> str:
    if value is NEEDED:
        return "needed"
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _families() -> str:
    lines = ["| `kind` | fields |", "|---|---|"]
    for name in FAMILIES.names:
        lines.append(f"| `{name}` | {', '.join(f'`{field.name}`' for field in family_fields(name))} |")
    return "\n".join(lines) + "\n"
