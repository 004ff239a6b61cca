"""Models by the names that trainers print, and models by their configuration, as fields of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import SpecError
from ..core.registry import did_you_mean
from ..job.write_job import model_fields
from ..workload import catalog
from ..workload.hugging_face.config import model_from_hf
from ..workload.transformer.spec import TransformerSpec
from .config_files import SUFFIXES, read_document
from .head import Head, SaidValue
from .stated import StatedJob, literal

_ENDINGS = re.compile(
    r"(?i)[-_](?:instruct|base|chat|hf|it|pt|thinking|sft|dpo|mixture|unsloth|bnb|4bit|8bit|nf4|bf16|fp16|gptq|awq|v\d(?:\.\d)?|\d{4})$"
)
# Families whose sizes are those of another: vocabularies may differ by some rows.
_SAME = (
    (re.compile(r"(?i)^qwen2-(?=\d)"), "qwen2.5-"),
    (re.compile(r"(?i)^qwen2\.5-(?:math|coder)-"), "qwen2.5-"),
    (re.compile(r"(?i)^deepseek-r1-distill-llama-"), "llama-3-"),
    (re.compile(r"(?i)^deepseek-r1-distill-qwen-(?=7|14|32)"), "qwen2.5-"),
    (re.compile(r"(?i)^vicuna-"), "llama-2-"),
    (re.compile(r"(?i)^zephyr-7b.*"), "mistral-7b"),
)
# What a class of Hugging Face takes where neither its printed configuration nor an override says it.
DEFAULTS: dict[str, dict[str, Any]] = {
    "GPT2Config": {
        "model_type": "gpt2",
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "LlamaConfig": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    },
}
OF_TRANSFORMER = ("gated", "norm", "position", "tied_embeddings", "bias", "vocab", "max_seq_len")


def model_of_name(text: str) -> str | None:
    """The preset that a name or path of a model means; None where none does."""
    name = text.rstrip("/").rpartition("/")[2].rpartition("--")[2]
    for pattern, other in _SAME:
        name = pattern.sub(other, name)
    while True:
        found = catalog.known_model(name)
        shorter = _ENDINGS.sub("", name)
        if found is not None or shorter == name:
            return found
        name = shorter


def put_named_model(job: StatedJob, text: str, *said: SaidValue | None) -> bool:
    """States the fields of the preset that a name means; whether there is one."""
    name = model_of_name(text)
    if name is None:
        return False
    put_model(job, catalog.workload(name), *said, why=f"as {name}")
    return True


def named_model(text: str | Path) -> str:
    """The preset that a text of `--model` means; empty where it names a file.

    Raises:
        SpecError: it is neither.
    """
    if Path(text).exists() or Path(text).suffix in SUFFIXES:
        return ""
    known = model_of_name(str(text))
    if known is None:
        names = [model.name for kind in catalog.KINDS for model in kind.presets]
        hint = did_you_mean(str(text), names, "")
        raise SpecError(f"--model {text}: neither a file nor a model that ships (`prism-jax show models`){hint}")
    return known


def give_model(heads: Sequence[Head], file: Path) -> None:
    """Gives heads the configuration of their model, as Hugging Face writes it.

    Raises:
        ConfigError: the file cannot be read, or states no model.
    """
    document = read_document(file)
    for head in heads:
        head.config = document.data
        head.facts["config_file"] = SaidValue(file.name, 0, "--model")


def put_head_model(head: Head, job: StatedJob, *names: str) -> None:
    """States the model of a head: by its configuration where there is one, else as the preset that the first of `names` means.
    Where neither is there, that is a reason for refusal.
    """
    if put_configured_model(head, job):
        return
    named = head.said(*names)
    if named is not None and put_named_model(job, named.text, named):
        return
    remedy = "--model config.json gives its configuration"
    if named is None:
        job.refused.append(f"the {head.source} does not say which model it is of; {remedy}")
        return
    last = named.text.rstrip("/").rpartition("/")[2][:60]
    where = f"line {named.line}: " if named.line and head.source != "log" else ""
    job.refused.append(f"{where}the {head.source} names a model that is not known here ({last}); {remedy}")


def put_model(job: StatedJob, model: Any, *said: SaidValue | None, why: str = "") -> None:
    """States the fields of a model, each from the same place."""
    for path, value in _flat(model_fields(model)):
        job.put(f"model.{path}", value, *said, why=why)
    if isinstance(model, TransformerSpec):
        for name in OF_TRANSFORMER:
            job.put(f"model.{name}", getattr(model, name), *said, why=why)
        if model.mla is None:
            job.put("model.n_kv_heads", model.n_kv_heads or model.n_heads, *said, why=why)
            job.put("model.head_dim", model.qk_head_dim, *said, why=why)


def _flat(fields: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{front}{name}.")
        elif name not in ("source", "left_out", "assumed") or front:
            yield f"{front}{name}", value


def put_configured_model(head: Head, job: StatedJob, block: str = "config") -> bool:
    """States the model of a configuration of Hugging Face that the log holds, with what overrides it; whether there is one."""
    if head.config is not None:
        _put_config(job, head.config, head.facts.get("config_file"))
        return True
    front, of = f"{block}.", "override."
    pairs = {
        name.removeprefix(front): one
        for name, one in head.facts.items()
        if name.startswith(front) and "." not in name[len(front) :]
    }
    more = {name.removeprefix(of): one for name, one in head.facts.items() if name.startswith(of)}
    kind = head.facts.get("config_class")
    config = dict(DEFAULTS.get(kind.text, {})) if kind is not None else {}
    config |= {name: literal(one.text) for name, one in (pairs | more).items()}
    if not any(name in config for name in ("n_embd", "hidden_size", "d_model", "dim")):
        return False
    _put_config(job, config, next(iter({**pairs, **more}.values()), kind))
    return True


def _put_config(job: StatedJob, config: Mapping[str, Any], said: SaidValue | None) -> None:
    try:
        model = model_from_hf(config)
    except SpecError as error:
        job.refused.append(f"the model's configuration: {error}")
    else:
        put_model(job, model, said, why="configuration of the model")
