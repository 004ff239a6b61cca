"""`model: {capture: FILE, kernels: FILE}` of a job document: the program, and the fields of the plan that follow from it.

`kernels` is a profile of one GPU, whose measured operators stand for those of the program. A capture may also stand in the
place of a job file: then the document is empty but for the model, and what it does not say (the cluster) is set by options.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError, DataError, FieldPath, Mistake
from ..tables.document import Document, short
from ..workload.captured.check import plan_fields
from ..workload.captured.files import ENDING, kernel_times, read_captured_program
from ..workload.captured.kernel_times import with_times
from ..workload.captured.model import CapturedModel
from .sections import attempt

SOURCE, KERNELS = "capture", "kernels"
AT: FieldPath = ("model", SOURCE)


def capture_document(path: Path, name: str) -> Document:
    """A capture as the document of a job."""
    stem = path.name.removesuffix(ENDING)
    return Document(name, {"name": stem, "model": {SOURCE: path.name}, "plan": {}})


def names_capture(document: Document) -> bool:
    """Whether the model of a document is a capture."""
    model = document.data.get("model")
    return isinstance(model, dict) and SOURCE in model


def refuse_kernels(document: Document) -> None:
    """Measured kernels are given to captures alone.

    Raises:
        ConfigError: the model of the document, which is no capture, names a profile.
    """
    model = document.data.get("model")
    if isinstance(model, dict) and KERNELS in model and SOURCE not in model:
        text = (
            "measured kernels stand for the operations of a capture, and the model of this job is none. Leave them out "
            "(--kernels), or capture the code that was profiled (`prism-jax capture train.py:build`) and predict that file."
        )
        raise ConfigError([document.mistake(("model", KERNELS), text)])


def read_captured(document: Document, found: list[Mistake]) -> CapturedModel | None:
    """The captured program of a document whose `names_capture` is true."""
    model = document.data["model"]
    for other in model.keys() - {SOURCE, KERNELS}:
        found.append(document.mistake(("model", other), f"cannot be combined with {SOURCE}. A capture is as it is."))
    path = _file(document, model, SOURCE, found)
    if path is None:
        return None
    if path.resolve() == Path(document.name).resolve():
        path = Path(document.name)  # as the user wrote it
    try:
        program = read_captured_program(path)
        if (kernels := _file(document, model, KERNELS, found)) is not None:
            program = with_times(program, kernel_times(kernels)).program
    except DataError as error:  # names file and line itself
        found.append(Mistake(str(error)))
        return None
    return attempt(lambda: CapturedModel(program), document, AT, found)


def _file(document: Document, model: dict[str, Any], field: str, found: list[Mistake]) -> Path | None:
    """The file that a field of the model names; None where there is none, or no name."""
    file = model.get(field)
    if isinstance(file, str) and file:
        path = Path(document.name).parent / file
        short_path = os.path.normpath(path)  # "sub/../file", which an option leads to
        return Path(short_path) if os.path.realpath(short_path) == os.path.realpath(path) else path
    if file is not None or field == SOURCE:
        found.append(document.mistake(("model", field), f"{short(file)}, but it must be the name of a file"))
    return None


def with_captured_plan(document: Document, model: CapturedModel) -> Document:
    """The document with a plan as captured, where it does not state another.

    Raises:
        ConfigError: no cluster is named.
    """
    data: dict[str, Any] = dict(document.data)
    if "cluster" not in data:
        text = (
            "a capture does not say on which cluster it runs. Name one: --cluster dgx-h100 (`prism-jax show clusters`)."
        )
        raise ConfigError.in_file(document.name, text)
    written = data.get("plan") or {}
    if not isinstance(written, dict):
        return document
    own, cluster = plan_fields(model.program), data["cluster"]
    if isinstance(cluster, dict) and cluster.get("n_devices") is not None:
        own.pop("dp")  # fills the cluster
    name, formats = "state_dtypes", written.get("state_dtypes")
    nested = {name: own[name] | formats} if name in own and isinstance(formats, dict) else {}
    return replace(document, data={**data, "plan": {**own, **written, **nested}})
