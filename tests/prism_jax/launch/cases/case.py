"""A case: the files of a job, and what its import must say."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prism_jax.core.errors import PrismError
from prism_jax.launch.import_job import import_job

from ..heads import stated

FIELDS = stated(
    "layers=model.n_layers hidden=model.hidden ffn=model.ffn_hidden heads=model.n_heads kv=model.n_kv_heads vocab=model.vocab "
    "experts=model.moe.n_experts top_k=model.moe.top_k seq=plan.seq_len micro=plan.micro_batch batch=plan.global_batch "
    "tp=plan.tp pp=plan.pp vpp=plan.virtual_stages cp=plan.cp ep=plan.ep dp=plan.dp split=plan.layer_split "
    "zero=plan.zero_stage dtype=plan.dtype recompute=plan.recompute gpus=cluster.n_devices"
)
USUAL = stated("model.moe.n_experts=0 plan.recompute=none plan.zero_stage=0")  # else 1, where no field is written


@dataclass(frozen=True)
class Case:
    """Files of a job and what its import must say.

    Attributes:
        name: of the case.
        text: of the file that is imported.
        expected: what it must read, by the short names of `FIELDS` or paths of fields.
        file: its name.
        others: files next to it, by name (folders are made).
        arguments: given behind the file.
        variables: given by `--env`.
        options: other options of `import_job`.
        refused: pattern of the message, where it must be refused.
    """

    name: str
    text: str
    expected: Mapping[str, Any] = field(default_factory=dict)
    file: str = "run.sh"
    others: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


def but(
    case: Case, name: str, *changes: tuple[str, str], expected: Mapping[str, Any] | None = None, **fields: Any
) -> Case:
    """Returns a case with texts replaced, with what it must read then, and with other fields changed."""
    text = case.text
    for old, new in changes:
        assert old in text, f"{name}: {old!r} is not in the text"
        text = text.replace(old, new)
    return replace(case, name=name, text=text, expected={**case.expected, **(expected or {})}, **fields)


def wrong(case: Case, folder: Path) -> list[str]:
    """Imports a case from a folder, and lists what differs from what it must say."""
    for name, text in {case.file: case.text, **case.others}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    arguments = [str(folder / one) if one in case.others else one for one in case.arguments]
    options = {"device": "h100-sxm", "variables": dict(case.variables), **case.options}
    if "root" in options:
        options["root"] = folder / options["root"]
    try:
        found = import_job(folder / case.file, arguments, **options)
    except PrismError as error:
        if case.refused and re.search(case.refused, str(error)):
            return []
        return [f"refused: {error}"]
    if case.refused:
        return [f"imported, and not refused as {case.refused}"]
    read = {one.path: one.value for one in found.read}
    return [
        f"{path}: {value} is stated, {read.get(path)} read"
        for path, value in ((FIELDS.get(name, name), value) for name, value in case.expected.items())
        if read.get(path, USUAL.get(path, "1")) != str(value)
    ]
