"""The sections of a job document to core types; every mistake is added to a list instead of ending the reading.

Fields of the plan may be left out where they follow from others. `dp`, or `dp: auto`: the degree that fills the cluster,
n_devices / (tp * cp * pp), where `cluster.n_devices` is given; where it is not, dp is 1 and the cluster as large as the plan.
`micro_batch`, of models whose devices take their share of the batch at once: global_batch / dp. Without a section
`variability` the default of the device holds.

`model: {capture: FILE, kernels: FILE}` is a captured program, from which fields of the plan follow; `kernels` is a profile of
one GPU, whose measured operators stand for those of the program. A capture may also stand in the place of a job file: then the
document is empty but for the model, and what it does not say (the cluster) is set by options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ..core.errors import ConfigError, DataError, FieldPath, Mistake, SpecError
from ..framework.software import Software
from ..plan.packing import Data
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..tables.document import Document, short
from ..variability.config import default_for, preset, variability_from_dict
from ..variability.tree import Variability
from ..workload.base.workload import Workload
from ..workload.captured.check import plan_fields
from ..workload.captured.files import ENDING, kernel_times, read_captured_program
from ..workload.captured.kernel_times import with_times
from ..workload.captured.model import CapturedModel
from ..workload.catalog import KINDS, TRANSFORMER, WorkloadKind, workload as model_preset
from ..workload.hugging_face.config import read_hf_config
from ..workload.transformer.spec import TransformerSpec
from .job import Published
from .read_tables import counts_of, lengths_of
from .reading import DocumentReader, T
from .schema import fields_of, nested_types, section_of

AUTO = "auto"
OTHER_AXES = ("tp", "cp", "pp")


def with_dp(reading: DocumentReader) -> Any:
    """Section `plan` with a number for dp; as it is where a degree or the cluster is wrong, which others report."""
    plan, cluster = reading.data["plan"], reading.data.get("cluster")
    if not isinstance(plan, dict) or plan.get("dp", AUTO) != AUTO:
        return plan
    rest = {name: value for name, value in plan.items() if name != "dp"}
    n_devices = cluster.get("n_devices") if isinstance(cluster, dict) else None
    if n_devices is None:
        if "dp" in plan:
            text = "auto fills the cluster, so it needs cluster.n_devices (GPUs). Give it, or write dp as a number."
            reading.refuse(("plan", "dp"), text)
        return rest
    degrees = [plan.get(axis, 1) for axis in OTHER_AXES]
    if not all(type(count) is int and count >= 1 for count in (n_devices, *degrees)):
        return rest
    product = degrees[0] * degrees[1] * degrees[2]
    if n_devices % product:
        near = max(product, round(n_devices / product) * product)
        text = (
            f"no dp fills the cluster: tp*cp*pp = {'*'.join(map(str, degrees))} = {product} does not divide its {n_devices} "
            f"devices. Change a degree, or try cluster.n_devices={near}."
        )
        reading.refuse(("plan", "dp") if "dp" in plan else ("plan",), text)
        return rest
    return rest | {"dp": n_devices // product}


def with_micro_batch(reading: DocumentReader, plan: Any) -> Any:
    """Section `plan` with a micro-batch; as it is where it has one or something is wrong, which others report."""
    kind = _kind(reading.data.get("model"))
    if not isinstance(plan, dict) or "micro_batch" in plan or kind is None or not kind.is_whole_batch:
        return plan
    batch, dp = plan.get("global_batch"), plan.get("dp", 1)
    if type(batch) is not int or type(dp) is not int or dp < 1 or batch < dp:
        return plan
    return plan | {"micro_batch": batch // dp}


def _kind(model: Any) -> WorkloadKind | None:
    """Kind of the model of a job file, if its section says one."""
    if isinstance(model, dict) and isinstance(model.get("kind"), str):
        return next((kind for kind in KINDS if kind.name == model["kind"]), None)
    name = model.get("preset") if isinstance(model, dict) else model
    return next((kind for kind in KINDS for preset in kind.presets if preset.name == name), None)


HF_CONFIG = "hf_config"
MODEL_SOURCES = ("preset", HF_CONFIG)
KIND = "kind"  # field of a model that is written out
MODEL_FILLED_IN = {"name": "N-layer model"}  # where a model is written out; `_unnamed` fills in what it has


def read_plan(reading: DocumentReader) -> ParallelPlan | None:
    """Reads section `plan`."""
    n_before = len(reading.found)
    data = with_micro_batch(reading, with_dp(reading))
    checked = reading.validated(section_of(ParallelPlan), data, ("plan",))
    if checked is None or len(reading.found) > n_before:
        return None
    return reading.attempt(lambda: ParallelPlan(**_plain(ParallelPlan, checked)), ("plan",))


def _mapping_of(section: str, reading: DocumentReader) -> dict[str, Any] | None:
    """The mapping of a section that is there, empty where nothing stands in it; None after a mistake."""
    data: Any = reading.data[section]
    if data is None or isinstance(data, dict):
        return data or {}
    reading.refuse((section,), f"{short(data)}; it must be a mapping of fields")
    return None


def read_software(reading: DocumentReader) -> Software | None:
    """Section `software`; an empty one states nothing."""
    return _read("software", Software, reading, _mapping_of("software", reading))


def read_data(reading: DocumentReader) -> Data | None:
    """Section `data`; an empty one says nothing."""
    data = _mapping_of("data", reading)
    if data is not None and "lengths" in data:
        folder, n_before = Path(reading.document.name).parent, len(reading.found)
        lengths = reading.attempt(lambda: lengths_of(data["lengths"], folder), ("data", "lengths"))
        if len(reading.found) > n_before:
            return None
        return _read("data", Data, reading, {**data, "lengths": lengths})
    return _read("data", Data, reading, data)


def read_published(reading: DocumentReader) -> Published | None:
    """Section `published`; None where it is not there or empty."""
    if reading.data.get("published") is None:
        return None
    return _read("published", Published, reading, _mapping_of("published", reading))


def _read(name: str, cls: type[T], reading: DocumentReader, data: dict[str, Any] | None) -> T | None:
    """A section that has the fields of a dataclass; None after a mistake."""
    checked = None if data is None else reading.validated(section_of(cls), data, (name,))
    return None if checked is None else cls(**fields_of(checked, {}))


def read_model(reading: DocumentReader) -> Workload | None:
    """Section `model`: a preset, a Hugging Face config.json (both with changes), or all fields of a kind of model."""
    path: FieldPath = ("model",)
    data = reading.mapping_at(path, "the name of a preset (`prism-jax show models`) or a mapping of fields")
    source = None if data is None else reading.source_among(data, MODEL_SOURCES, path)
    if data is None or source is None:
        return None
    changes = _with_counts({key: value for key, value in data.items() if key != source}, reading)
    if changes is None:
        return None
    if not source:
        return _written_out(changes, reading, path)
    reader = model_preset if source == "preset" else _hf_reader(reading)
    base: Any = reading.attempt(lambda: reader(data[source]), (*path, source))
    checked = reading.validated(section_of(TransformerSpec if base is None else type(base), True), changes, path)
    if base is None or checked is None:
        return None
    return reading.attempt(lambda: _changed(base, checked, reading, path), path)


def _with_counts(changes: dict[str, Any], reading: DocumentReader) -> dict[str, Any] | None:
    """The fields of a model with recorded counts of experts in the place of the name of their file; None if it is wrong."""
    moe = changes.get("moe")
    routing = moe.get("routing") if isinstance(moe, dict) else None
    if not isinstance(moe, dict) or not isinstance(routing, dict) or "counts" not in routing:
        return changes
    at, folder = ("model", "moe", "routing", "counts"), Path(reading.document.name).parent
    counts = reading.attempt(lambda: counts_of(routing["counts"], folder), at)
    return None if counts is None else {**changes, "moe": {**moe, "routing": {**routing, "counts": counts}}}


def _written_out(data: dict[str, Any], reading: DocumentReader, path: FieldPath) -> Workload | None:
    """A model by its fields; `kind` names its kind, a transformer by default."""
    name = data.pop(KIND, TRANSFORMER.name)
    if not isinstance(name, str):
        reading.refuse((*path, KIND), f"{short(name)}, but it must be a text")
        return None
    kind = reading.attempt(lambda: KINDS.named(name), (*path, KIND))
    if kind is None:
        return None
    checked = reading.validated(section_of(kind.spec), {"name": _unnamed(kind.name, data)} | data, path)
    return None if checked is None else reading.attempt(lambda: kind.spec(**_plain(kind.spec, checked)), path)


def _unnamed(kind: str, data: Mapping[str, Any]) -> str:
    """Name of a model without one, in reports: its layers, else its kind."""
    n_layers = data.get("n_layers")
    return f"{n_layers}-layer model" if isinstance(n_layers, int) else f"{kind} model"


def _hf_reader(reading: DocumentReader) -> Callable[[str], Workload]:
    """Reads a path given relative to the folder of the job file."""
    folder = Path(reading.document.name).parent
    return lambda text: read_hf_config(folder / text)


def _plain(cls: type, section: BaseModel) -> dict[str, Any]:
    """Keyword arguments of the dataclass `cls` behind `section`, nested sections built too."""
    given = fields_of(section, {})
    return {name: _nested(cls, name, value) for name, value in given.items()}


def _nested(cls: type, name: str, value: Any) -> Any:
    """A field's value with its sections built, those of a list too."""
    if isinstance(value, tuple):
        return tuple(_nested(cls, name, item) for item in value)
    if not isinstance(value, BaseModel):
        return value
    inner = nested_types(cls)[name]
    return inner(**_plain(inner, value))


def _changed(base: Any, changes: BaseModel, reading: DocumentReader, path: FieldPath) -> Workload:
    """`base` with the fields that were written; a nested section changes the one of `base`, or must be whole."""
    given = fields_of(changes, {})
    for name, value in given.items():
        if not isinstance(value, BaseModel):
            given[name] = _nested(type(base), name, value)
            continue
        inner = getattr(base, name)
        if inner is not None:
            own = fields_of(value, {})
            given[name] = replace(inner, **{key: _nested(type(inner), key, item) for key, item in own.items()})
            continue
        missing = _missing(nested_types(type(base))[name], value)
        if missing:
            message = f"preset {base.name} has no {name}, so all of its fields are needed; missing {listed(missing)}"
            raise ConfigError([reading.document.mistake((*path, name), message)])
        given[name] = _nested(type(base), name, value)
    return replace(base, **given)


def _missing(cls: Any, section: BaseModel) -> list[str]:
    """Fields without a default of the dataclass `cls` that `section` does not give."""
    needed = [item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING]
    return [name for name in needed if name not in section.model_fields_set]


def listed(names: list[str]) -> str:
    """Quoted names for a sentence: `'a'`, `'a' and 'b'`, `'a', 'b', and 'c'`."""
    *first, last = [repr(name) for name in names]
    if not first:
        return last
    return f"{', '.join(first)}{',' if len(first) > 1 else ''} and {last}"


def read_variability(reading: DocumentReader, cluster: Cluster | None) -> Variability | None:
    """The tree of the job; without a section the preset for the cluster's device."""
    if "variability" not in reading.data:
        return preset(default_for(cluster.device)) if cluster is not None else None
    section = reading.data["variability"]
    if not isinstance(section, (str, dict)) or not section:
        remedy = "Name a preset (`prism-jax show variability`), or leave the section out for the default of the device."
        reading.refuse(("variability",), f"{'is empty' if not section else short(section)}. {remedy}")
        return None
    try:
        return variability_from_dict(section, ("variability",))
    except SpecError as error:
        reading.refuse(error.path or ("variability",), error.text)
        return None


SOURCE, KERNELS = "capture", "kernels"


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


def read_captured(reading: DocumentReader) -> CapturedModel | None:
    """The captured program of a document whose `names_capture` is true."""
    model = reading.data["model"]
    for other in model.keys() - {SOURCE, KERNELS}:
        reading.refuse(("model", other), f"cannot be combined with {SOURCE}. A capture is as it is.")
    path = _file(reading, model, SOURCE)
    if path is None:
        return None
    if path.resolve() == Path(reading.document.name).resolve():
        path = Path(reading.document.name)  # as the user wrote it
    try:
        program = read_captured_program(path)
        if (kernels := _file(reading, model, KERNELS)) is not None:
            program = with_times(program, kernel_times(kernels)).program
    except DataError as error:  # names file and line itself
        reading.found.append(Mistake(str(error)))
        return None
    return reading.attempt(lambda: CapturedModel(program), ("model", SOURCE))


def _file(reading: DocumentReader, model: dict[str, Any], field: str) -> Path | None:
    """The file that a field of the model names; None where there is none, or no name."""
    file = model.get(field)
    if isinstance(file, str) and file:
        path = Path(reading.document.name).parent / file
        short_path = os.path.normpath(path)  # "sub/../file", which an option leads to
        return Path(short_path) if os.path.realpath(short_path) == os.path.realpath(path) else path
    if file is not None or field == SOURCE:
        reading.refuse(("model", field), f"{short(file)}, but it must be the name of a file")
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
