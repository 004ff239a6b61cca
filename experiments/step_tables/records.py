"""One raw row of a table of published steps: fields of either schema under one name, typed, blank as None; and what it is about.

Two schemas: `reference_rows.json` (a list of objects, short keys) and `steps.csv` (a header, one configuration per line,
optionally gzipped). Counts are integers, times seconds, throughputs per GPU as the source prints them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prism_jax.core.bounds import MOST_DEVICES, MOST_LAYERS, MOST_SAMPLES
from prism_jax.core.errors import DataError
from prism_jax.core.read_file import parse_json
from prism_jax.tables.csv_rows import (
    MAX_ROWS,
    CsvTable,
    Seen,
    boolean_field,
    integer_field,
    number_field,
    read_packed_text,
    seconds_field,
)
from prism_jax.tables.document import short

MAX_JSON_CHARACTERS = 1 << 24  # what is made of them takes 30 times as many bytes
WHAT = "a steps table in JSON or CSV"
MEASURED = "measured_step_time_s"
_REQUIRED_COLUMNS = ("id", "source", "gpu", "num_gpus", MEASURED)
# column of steps.csv -> field
_CSV_INTEGERS = {
    "layers": "n_layers", "hidden": "hidden", "ffn": "ffn", "heads": "n_heads", "kv_heads": "n_kv_heads", "vocab": "vocab",
    "experts": "n_experts", "experts_topk": "top_k", "seq_len": "seq_len", "num_gpus": "n_gpus",
    "gpus_per_node": "gpus_per_node", "tp": "tp", "pp": "pp", "vpp": "vpp", "dp": "dp", "cp": "cp", "ep": "ep",
    "micro_batch": "micro_batch", "global_batch": "global_batch", "etp": "etp", "lora_rank": "lora_rank",
}  # fmt: skip
_CSV_TEXTS = {
    "model": "model_name", "gpu": "gpu", "sharding": "sharding", "precision": "precision", "recompute": "recompute",
    "network": "network", "notes": "notes", "source_path_or_table": "table", "kind": "kind", "other_features": "features",
    "attention_kernel": "attention_kernel", "norm_fused": "norm_fused", "compile": "compile", "cuda_graphs": "cuda_graphs",
    "framework": "framework", "schedule": "schedule", "layer_split": "layer_split", "method": "method", "routing": "routing",
    "lora_targets": "lora_targets", "vendor": "vendor", "fabric_stated": "fabric_stated", "layout_stated": "layout_stated",
    "date": "date", "exclude_from_score": "excluded", "commit_or_version": "release",
}  # fmt: skip
_CSV_FLOATS = {
    "measured_tflops_per_gpu": "tflops_per_gpu",
    "measured_tokens_per_s_per_gpu": "tokens_per_s_per_gpu",
    "measured_mfu": "mfu",
    "params_b": "params_b",
}
# key of reference_rows.json -> field
_JSON_INTEGERS = {
    "h": "hidden", "ffn": "ffn", "heads": "n_heads", "kv": "n_kv_heads", "L": "n_layers", "seq": "seq_len", "vocab": "vocab",
    "gpus": "n_gpus", "tp": "tp", "pp": "pp", "dp": "dp", "cp": "cp", "ep": "ep", "v": "vpp", "gbs": "global_batch",
    "mbs": "micro_batch", "zero": "zero_stage",
}  # fmt: skip
COUNTS = tuple(dict.fromkeys((*_CSV_INTEGERS.values(), *_JSON_INTEGERS.values())))


_MOST_OF = {
    **dict.fromkeys(("layers", "n_layers", "pp", "vpp"), MOST_LAYERS),
    **dict.fromkeys(("tp", "dp", "cp", "ep", "n_experts", "n_gpus", "gpus_per_node"), MOST_DEVICES),
}


def largest(field: str) -> int:
    """The largest count of a field that is simulated."""
    return _MOST_OF.get(field, MOST_SAMPLES)


@dataclass(frozen=True)
class StepRecord:
    """Fields of one row; None where the source does not say."""

    id: str
    source: str
    model_name: str = ""
    n_layers: int | None = None
    hidden: int | None = None
    ffn: int | None = None
    n_heads: int | None = None
    n_kv_heads: int | None = None
    vocab: int | None = None
    n_experts: int | None = None
    top_k: int | None = None
    gated: bool | None = None
    params_b: float | None = None  # 10^9 parameters, as stated
    seq_len: int | None = None
    gpu: str = ""
    n_gpus: int | None = None
    gpus_per_node: int | None = None
    network: str = ""
    tp: int | None = None
    pp: int | None = None
    vpp: int | None = None
    dp: int | None = None
    cp: int | None = None
    ep: int | None = None
    sharding: str = ""
    zero_stage: int | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    precision: str = ""
    recompute: str = ""
    sequence_parallel: bool | None = None
    measured_s: float | None = None
    measured_range: tuple[float, float] | None = None
    tflops_per_gpu: float | None = None
    tokens_per_s_per_gpu: float | None = None
    mfu: float | None = None
    table: str = ""  # path or table inside the source
    kind: str = ""  # what is trained: full, lora, qlora; blank: as model name and notes say
    features: str = ""  # of the software, separated by semicolons
    notes: str = ""
    attention_kernel: str = ""  # this and the next three as the source words them
    norm_fused: str = ""
    compile: str = ""
    cuda_graphs: str = ""
    framework: str = ""
    etp: int | None = None
    schedule: str = ""  # a name of a schedule, or words
    layer_split: str = ""
    method: str = ""  # what no field of a job states, in words
    routing: str = ""  # of experts: balanced, forced, real
    lora_rank: int | None = None
    lora_targets: str = ""
    vendor: str = ""  # yes, no: whether who makes the device, or submits its benchmarks, ran it
    fabric_stated: str = ""  # yes, no; blank: the table does not ask
    layout_stated: str = ""
    date: str = ""
    excluded: str = ""  # why a step says nothing of the model, in the words of who collected it
    release: str = ""  # of the software, or the commit that holds the figures
    same_as: str = ""  # place of an earlier row that is the same, all its columns included

    def beyond(self) -> str:
        """The first count that is larger than anything that is simulated, in words; empty if there is none."""
        counts = ((field, getattr(self, field)) for field in COUNTS)
        return next(
            (f"{field} {count:.3g}" for field, count in counts if count is not None and count > largest(field)), ""
        )


def read_records(path: str | Path) -> list[StepRecord]:
    """All rows of a steps table; JSON or CSV and gzip are told by content, not by name.

    Raises:
        DataError: the file cannot be read, or a row is malformed; names row and field.
    """
    return records_of(read_packed_text(Path(path), WHAT), Path(path).name)


def records_of(text: str, name: str) -> list[StepRecord]:
    """The same of a text that is at hand; `name` is what messages call it.

    Raises:
        DataError: a row is malformed; names row and field.
    """
    records = _json_records(text, name) if text.lstrip()[:1] in ("[", "{") else _csv_records(text, name)
    if not records:
        raise DataError(f"{name}: no rows. Give at least one measured step.")
    return records


# --- JSON ---


def _json_records(text: str, name: str) -> list[StepRecord]:
    if len(text) > MAX_JSON_CHARACTERS:
        raise DataError(
            f"{name}: more than {MAX_JSON_CHARACTERS >> 20} MiB of JSON. Split the table, or write it as CSV."
        )
    rows = parse_json(text, name)
    if not isinstance(rows, list):
        raise DataError(f"{name}: a list of rows is needed, not an object. Wrap the row in [ ].")
    if len(rows) > MAX_ROWS:
        raise DataError(f"{name}: {len(rows):,} rows, more than {MAX_ROWS:,}. Split the table.")
    seen, records = Seen(), []
    for number, row in enumerate(rows, 1):
        place = f"{name} row {number}"
        record = _json_record(row, place)
        records.append(replace(record, same_as=seen.before([repr(record)], place)))
    return records


def _json_record(row: Any, where: str) -> StepRecord:
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: {short(row)} is not an object with fields such as id, h, L, tp and measured_s")
    where = f"{where} ({_text(row, 'id', where) or 'no id'})"
    integers: dict[str, Any] = {field: integer_field(row.get(key), key, where) for key, field in _JSON_INTEGERS.items()}
    missing = [key for key in ("id", "h", "L", "heads", "gpus", "measured_s") if row.get(key) in (None, "")]
    if missing:
        raise DataError(f"{where}: field {missing[0]} is missing; a reference row needs it")
    return StepRecord(
        id=_text(row, "id", where),
        source=_text(row, "src", where),
        model_name=_text(row, "model", where),
        gpu=_text(row, "sys", where),
        gated=boolean_field(row.get("gated"), "gated", where),
        sequence_parallel=boolean_field(row.get("sp"), "sp", where),
        recompute=_text(row, "recompute", where),
        sharding=_text(row, "sharding", where),
        precision=_text(row, "dtype", where),
        measured_s=seconds_field(row["measured_s"], "measured_s", where),
        measured_range=_range(row.get("measured_range"), where),
        tflops_per_gpu=number_field(row.get("tf_gpu"), "tf_gpu", where),
        notes=_text(row, "measured_kind", where),
        **integers,
    )


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key, "")
    if isinstance(value, (dict, list)):
        raise DataError(f"{where}: {key} = {short(value)} is not text")
    return str(value)


def _range(value: Any, where: str) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2:
        raise DataError(f"{where}: measured_range = {short(value)}, but it must be [low, high] in seconds")
    low, high = (seconds_field(bound, "measured_range", where) for bound in value)
    if low is None or high is None or low > high:
        raise DataError(f"{where}: measured_range = {short(value)}, but it must be [low, high] in seconds")
    return low, high


# --- CSV ---


def _csv_records(text: str, name: str) -> list[StepRecord]:
    table, seen = CsvTable(text, name), Seen()
    missing = [column for column in _REQUIRED_COLUMNS if column not in table.columns]
    if missing:
        raise DataError(
            f"{name}: no column {missing[0]}. A steps table has {', '.join(_REQUIRED_COLUMNS)} among others."
        )
    records = []
    for row in table.rows():
        place = table.place(row.line)
        record = _csv_record(row.fields, place)
        records.append(replace(record, same_as=seen.before(row.fields.values(), place)))
    return records


def _csv_record(row: Mapping[str, Any], where: str) -> StepRecord:
    where = f"{where} ({row['id'] or 'no id'})"
    fields: dict[str, Any] = {}
    fields |= {field: integer_field(row.get(column), column, where) for column, field in _CSV_INTEGERS.items()}
    fields |= {field: number_field(row.get(column), column, where) for column, field in _CSV_FLOATS.items()}
    fields["measured_s"] = seconds_field(row.get(MEASURED), MEASURED, where)
    fields |= {field: row.get(column, "") for column, field in _CSV_TEXTS.items()}
    fields["sequence_parallel"] = boolean_field(row.get("seq_parallel"), "seq_parallel", where)
    fields["gated"] = boolean_field(row.get("gated"), "gated", where)
    return StepRecord(id=row["id"], source=row["source"], **fields)


# Assumption: a field that a row does not state, what it is taken for, and on what ground.


@dataclass(frozen=True)
class Assumption:
    """One field.

    Attributes:
        field: of `StepRecord`, or `device`.
        value: what it is taken for.
        why: on what ground, in words.
    """

    field: str
    value: int | str
    why: str

    def __str__(self) -> str:
        return f"{self.field} {self.value} assumed: {self.why}"


def assuming(
    record: StepRecord, why: str, values: Mapping[str, int | str]
) -> tuple[StepRecord, tuple[Assumption, ...]]:
    """The record with these values, and the assumptions that they are."""
    changes: dict[str, Any] = dict(values)
    return replace(record, **changes), tuple(Assumption(field, value, why) for field, value in values.items())


# What a row keeps on the host, by the words of its notes: field of the plan and what says that it is so.

_OFF = r"off-?load(?:ed|ing)?\b(?!\s*[:=]?\s*(?:no|none|n|off|false)\b)"
_OFFLOADS = (
    (
        "offload_optimizer",
        rf"zero-{_OFF}|optimi[sz]er (?:state )?(?:cpu )?{_OFF}|offloaded adamw?|cpu {_OFF}: yes|cpu {_OFF} with fused optimizer",
    ),
    ("offload_parameters", rf"param(?:eter)?s? (?:cpu )?{_OFF}"),
    ("offload_activations", rf"activations?(?:/optimi[sz]er)?(?: cpu)? {_OFF}"),
)
_MAY_OFFLOAD = re.compile(r"\bmay be offloaded", re.IGNORECASE)  # open: nothing is taken for offloaded


def offloads_of_record(record: StepRecord) -> tuple[str, ...]:
    """Fields of the plan that are on: `offload_optimizer`, `offload_parameters`, `offload_activations`."""
    if _MAY_OFFLOAD.search(record.notes):
        return ()
    return tuple(field for field, words in _OFFLOADS if re.search(words, record.notes, re.IGNORECASE))


# Which rows of a steps table train a transformer, or adapters of one, on the accelerators: what can be simulated.
#
# The others are no failure of the loader: they measure something else, and the share of supported rows is counted
# without them.


class UnsupportedRowError(Exception):
    """The row describes something that cannot be simulated; the text says what, without the row's own numbers."""


_NOT_DECODER = "not a decoder-only transformer"
_HYBRID = "hybrid architecture (state-space or linear attention layers)"
_RELATIVE = "published for relative comparison only"
_SHORTER = "sequences of unknown length"
NO_NUMBER = "no time, token rate or FLOP rate"

OTHER_KINDS = (_NOT_DECODER, _HYBRID, _RELATIVE, NO_NUMBER)

_BY_NAME = (
    (r"\b(bert|roberta|deberta|m?t5|ul2|bart|vit|whisper|wan\d[\d.]*|flux|unet|dlrm|resnet)\b|diffusion", _NOT_DECODER),
    (
        r"nemotron[\s_-]*(3[\s_-]+(\d[\s_-]+)?[a-z]|h\b|nano)|qwen3[\s_-]*next|qwen3\.5|deepseek[\s_-]*v4|mamba|jamba|zamba|bamba"
        r"|rwkv|falcon[\s_-]*h1|kimi[\s_-]*linear|minimax[\s_-]*(01|text)",
        _HYBRID,
    ),
)
_BY_NOTES = (
    (r"\bencoder(\(?-decoder\)?)? model", _NOT_DECODER),
    (r"\bsequences (may be|are) shorter than", _SHORTER),
    (r"\buse for relative \w+ only|\busable only as", _RELATIVE),
)


def refuse_other_kinds(record: StepRecord, *, is_encoder: bool = False) -> None:
    """Refuses what is no transformer that is known; `is_encoder`: the row trains an encoder or an encoder-decoder that is.

    Raises:
        UnsupportedRowError: with one of `OTHER_KINDS`, if the row's name or notes say so.
    """
    for rules, text in ((_BY_NAME, record.model_name), (_BY_NOTES, record.notes)):
        for pattern, reason in rules:
            if is_encoder and reason == _NOT_DECODER:
                continue
            if re.search(pattern, text, re.IGNORECASE):
                raise UnsupportedRowError(reason)
