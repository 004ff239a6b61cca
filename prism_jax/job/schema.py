"""Permitted content of a job file: pydantic models made from the core dataclasses, so that the two cannot drift apart.

Integers are counts (1 or more; 0 too where 0 is the default), nothing is converted silently (no "8" for 8, no 1 for true),
unknown fields are refused. Quantities with units have names of their own in files (`bandwidth: 400 Gbit/s`) and become the
SI fields of the dataclasses (`bytes_per_s`). A mistake is one line: where, field, value, constraint, remedy.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from ..core import units
from ..core.errors import PrismError, UnitError
from ..core.registry import Registry, did_you_mean
from ..framework.software import DATE, DATE_FORM, SOFTWARE_VALUES
from ..plan.fields import STATE_DTYPE_VALUES, PlanField
from ..workload.cnn.architectures import ARCHITECTURES
from ..workload.dlrm.lookup_law import OPTIMIZERS
from ..workload.dlrm.sizes import INTERACTIONS
from ..workload.dlrm.tables import parse_reuse
from ..workload.transformer.encoder_decoder import DECODER_POSITIONS
from ..workload.transformer.mixers import MIXERS, PLACES, REACHES
from ..workload.transformer.sizes import (
    KINDS as ADAPTER_KINDS,
    NORMS,
    POSITIONS,
    QK_NORM_WEIGHTS,
    QUANTISED_BYTES,
    TARGETS,
)
from .read_tables import TAKES, counts_of

STRICT = ConfigDict(extra="forbid", frozen=True)

Text = Annotated[str, Field(min_length=1)]
Flag = Annotated[bool, Field(strict=True)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
AtLeastOne = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=1)]
Count = Annotated[int, Field(strict=True, ge=1)]
CountOrZero = Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True)
class OneOf:
    """Texts that a field takes; they stand in the metadata of its type."""

    known: Iterable[str] | Registry[Any]

    @property
    def names(self) -> tuple[str, ...]:
        """All texts that are known now."""
        return self.known.names if isinstance(self.known, Registry) else tuple(self.known)


@dataclass(frozen=True)
class Quantity:
    """Kind of quantity that a field's text measures: a key of `units.UNITS`; it stands in the metadata of its type."""

    kind: str


class OrAuto:
    """A field takes `auto` too; it stands in the metadata of its type."""


@dataclass(frozen=True)
class Takes:
    """Permitted values of a field, in words; they stand in the metadata of its type."""

    words: str


class NotOneOfError(ValueError):
    """Error that says what a value must be; a message puts the value in front."""


def dated(value: object) -> object:
    """The date of software as it is written.

    Raises:
        NotOneOfError: it is none, or no text.
    """
    if not isinstance(value, str) or not DATE.fullmatch(value):
        raise NotOneOfError(f"must be {DATE_FORM}")
    return value


def one_of(names: Iterable[str] | Registry[Any]) -> Any:
    """Type of a text that must be one of `names`, or a name in a registry when the text is checked."""
    choice = OneOf(names if isinstance(names, Registry) else tuple(names))

    def check(value: str) -> str:
        known = choice.names
        if value not in known:
            raise NotOneOfError(f"must be one of {', '.join(known)}{did_you_mean(value, known, '')}")
        return value

    return Annotated[str, AfterValidator(check), choice]


def count_or_auto() -> Any:
    """Type of a count that may be written as `auto`, which is replaced by a number before values are checked."""

    def check(value: object) -> object:
        if isinstance(value, str):
            raise NotOneOfError("must be an integer, in digits only, or auto")
        return value

    return Annotated[int, Field(strict=True, ge=1), BeforeValidator(check), OrAuto()]


def quantity(kind: str, *, positive: bool = True) -> Any:
    """Type of a text with a unit of `kind`, a key of `units.UNITS`."""

    def check(value: object) -> float:
        try:
            result = units.parse(value, kind)
        except UnitError as error:
            raise ValueError(str(error)) from None
        if positive and result == 0:
            raise ValueError(f"{value!r} is zero, but it must be positive")
        return result

    return Annotated[float, BeforeValidator(check), Quantity(kind)]


def read_by(read: Callable[[Any], Any], words: str) -> Any:
    """Type of a value that `read` makes of the written one; `words` describe the permitted values."""

    def made(value: object) -> Any:
        try:
            return read(value)
        except PrismError as error:
            says_value = error.text.startswith(repr(value))
            raise (ValueError if says_value else NotOneOfError)(error.text) from None

    return Annotated[Any, BeforeValidator(made), Takes(words)]


BANDWIDTH = quantity("bandwidth")
BYTES = quantity("memory")
TIME = quantity("time", positive=False)
POWER = quantity("power")
COMPUTE_RATE = quantity("compute rate")


def section(
    cls: type, partial: bool, special: Mapping[str, Any], rename: Mapping[str, str], leave_out: Container[str] = ()
) -> type[BaseModel]:
    """Model of the fields of dataclass `cls`.

    Args:
        partial: every field may be left out (changes to a preset).
        special: field of the dataclass -> type to use instead of the one that follows from its annotation, and from the
            `PlanField` in that.
        rename: field of the dataclass -> its name in files.
        leave_out: fields of the dataclass that files do not give.
    """
    hints = get_type_hints(cls, include_extras=True)
    made: dict[str, Any] = {}
    for item in fields(cls):
        if item.name in leave_out:
            continue
        hint, *said = get_args(hint) if get_origin(hint := hints[item.name]) is Annotated else (hint,)
        kind = special.get(item.name) or _said_kind(hint, said) or _kind(hint, item.default, partial)
        kind = Annotated[kind, Field(description=said[0].about)] if said else kind
        needed = item.default is MISSING and item.default_factory is MISSING and not partial
        made[rename.get(item.name, item.name)] = (kind, ... if needed else None)
    return create_model(cls.__name__, __config__=STRICT, **made)


def _said_kind(hint: Any, said: Sequence[PlanField]) -> Any:
    """Checked type of a field of a plan, where its values are restricted."""
    for one in said:
        if one.read is not None:
            return read_by(one.read, one.takes)
        if one.or_auto:
            return count_or_auto()
        if one.known is not None:
            own = one_of(one.known)
            return tuple[own, ...] if get_origin(hint) is tuple else own | None if type(None) in get_args(hint) else own
        if one.least is not None or one.most is not None:
            finite = False if hint is float else None
            return Annotated[hint, Field(strict=True, ge=one.least, le=one.most, allow_inf_nan=finite)]
    return None


def _kind(hint: Any, default: object, partial: bool) -> Any:
    """Checked type for a dataclass annotation."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = next(arg for arg in get_args(hint) if arg is not type(None))
        return _kind(inner, default, partial) | None
    if get_origin(hint) is tuple:
        return tuple[_kind(get_args(hint)[0], 0, partial), ...]
    if isinstance(hint, type) and is_dataclass(hint):
        return section_of(hint, partial)
    if hint is int:
        return CountOrZero if type(default) is int and default == 0 else Count
    return {bool: Flag, float: Number, str: Text}[hint]


_SPECIAL: dict[str, dict[str, Any]] = {
    "TransformerSpec": {
        "norm": one_of(NORMS),
        "position": one_of(POSITIONS),
        "qk_norm_weight": one_of(QK_NORM_WEIGHTS),
        "source": str,
    },
    "EncoderSpec": {"norm": one_of(NORMS), "position": one_of(POSITIONS), "source": str},
    "DLRMSpec": {
        "n_dense": CountOrZero,
        "interaction": one_of(INTERACTIONS),
        "optimizer": one_of(tuple(OPTIMIZERS)),
        "source": str,
    },
    "EmbeddingTable": {"reuse": read_by(parse_reuse, "uniform, zipf(a), zipf(a, q) or 17 shares")},
    "CrossSpec": {"rank": CountOrZero},
    "CnnSpec": {"architecture": one_of(ARCHITECTURES), "source": str},
    "EncoderDecoderSpec": {"norm": one_of(NORMS), "position": one_of(DECODER_POSITIONS), "source": str},
    "VitSpec": {"source": str},
    "DitSpec": {"source": str},
    "MoESpec": {"imbalance": AtLeastOne, "capacity_factor": Annotated[Number, Field(ge=0)]},
    "ExpertRouting": {"counts": read_by(counts_of, TAKES)},
    "MLASpec": {"q_lora_rank": CountOrZero},
    "MixerSpec": {"kind": one_of(MIXERS), "pattern": tuple[one_of(PLACES), ...]},
    "WindowSpec": {"pattern": tuple[one_of(REACHES), ...]},
    "AdapterSpec": {
        "rank": CountOrZero,
        "targets": tuple[one_of(TARGETS), ...],
        "kind": one_of(ADAPTER_KINDS),
        "quantised": one_of(tuple(QUANTISED_BYTES)),
        "dropout": Annotated[float, Field(strict=True, ge=0.0, lt=1.0)],
    },
    "Published": {"source": str},
    "Software": {name: one_of(known) | None for name, known in SOFTWARE_VALUES.items() if name != "compile"}
    | {"date": Annotated[str, BeforeValidator(dated)], "cross_entropy_chunks": CountOrZero},
    "StateDtypes": {name: one_of(known) | None for name, known in STATE_DTYPE_VALUES.items()},
    "Tier": {"bytes_per_s": BANDWIDTH, "latency_s": TIME, "oversubscription": AtLeastOne, "source": str},
    "Device": {
        "peak_flops_per_s": Annotated[
            dict[one_of(("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")), COMPUTE_RATE], Field(min_length=1)
        ],
        "hbm_bytes": BYTES,
        "hbm_bytes_per_s": BANDWIDTH,
        "power_watts": POWER,
        "source": str,
        "generation": str,
        "likeness_sd": Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)],
    },
}
TIER_NAMES = {"bytes_per_s": "bandwidth", "latency_s": "latency"}
DEVICE_NAMES = {
    "peak_flops_per_s": "peak",
    "hbm_bytes": "hbm",
    "hbm_bytes_per_s": "hbm_bandwidth",
    "power_watts": "power",
}


_LEFT_OUT = {
    "ParallelPlan": ("software", "data"),  # which have sections of their own
    "Device": ("like",),  # says what the others change, as `preset` does
}
_NAMES = {"Tier": TIER_NAMES, "Device": DEVICE_NAMES}


def section_of(cls: type, partial: bool = False) -> type[BaseModel]:
    """The section of a dataclass: a plan, a tier, a kind of model; all fields are optional if they change a preset."""
    return _made_section(cls, partial)


@cache
def _made_section(cls: type, partial: bool) -> type[BaseModel]:
    """The one section of these, however `section_of` is called."""
    name = cls.__name__
    return section(cls, partial, _SPECIAL.get(name, {}), _NAMES.get(name, {}), _LEFT_OUT.get(name, ()))


@cache
def nested_types(spec: type) -> dict[str, type]:
    """Fields of a dataclass that hold a dataclass themselves, and its type."""
    found = {}
    for name, hint in get_type_hints(spec).items():
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner):
                found[name] = inner
    return found


@cache
def cluster_section() -> type[BaseModel]:
    """Fields of a cluster; `device`, `tiers` and `network` take several forms and are checked by their readers."""
    optional: dict[str, Any] = {
        "preset": (Text, None),
        "name": (Text, None),
        "device": (Any, None),
        "tiers": (Any, None),
        "n_devices": (Count, None),
        "node_size": (Count, None),
        "host_memory": (BYTES, None),
        "network": (Any, None),
        "source": (str, None),
    }
    return create_model("ClusterSection", __config__=STRICT, **optional)


def job_section(sections: Mapping[str, Any]) -> type[BaseModel]:
    """The top level: which sections there are."""
    return create_model("JobSection", __config__=STRICT, **dict(sections))


def fields_of(model: BaseModel, rename: Mapping[str, str]) -> dict[str, Any]:
    """Returns the written values under the names of the dataclass; nested sections stay models."""
    back = {written: name for name, written in rename.items()}
    return {back.get(name, name): getattr(model, name) for name in model.model_fields_set}
