"""Configurations of Hugging Face's Trainer and of what is built on it: LLaMA-Factory, axolotl, recipes of TRL.

A job of theirs is spread over files: a DeepSpeed JSON and an accelerate YAML next to the arguments, a `config.json` for the
model. `head_of_trainer` joins them for files and for command lines alike. What a file holds as `auto` is of another, so it is
not said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..core.errors import DataError
from ..tables.document import Document
from .config_files import Carrier, ConfigFiles, said_of
from .head import Head, SaidValue
from .said import AXOLOTL, HF, LLAMA_FACTORY

OF_TRAINER = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "dataset_mixer",
    "dataset_name",
    "max_seq_length",
)
OF_FACTORY = (
    "finetuning_type", "stage", "template", "do_train", "cutoff_len", "train_dataset", "dist_config", "kernel_config",
)  # fmt: skip
OF_AXOLOTL = ("sequence_len", "micro_batch_size", "datasets", "adapter")
OF_ACCELERATE = ("distributed_type", "compute_environment", "fsdp_config", "parallelism_config")
OF_DEEPSPEED = (
    "zero_optimization",
    "train_micro_batch_size_per_gpu",
    "train_batch_size",
    "zero_allow_untested_optimizer",
)
OF_MODEL = ("hidden_size", "n_embd", "d_model", "text_config")
NO_TRAINING = ("export_dir", "infer_backend", "do_predict")


def _has(document: Document, names: tuple[str, ...]) -> bool:
    return any(name in document.data for name in names)


def is_factory(document: Document) -> bool:
    """Whether a document is one of LLaMA-Factory."""
    return ("model_name_or_path" in document.data or "model" in document.data) and _has(document, OF_FACTORY)


def is_axolotl(document: Document) -> bool:
    """Whether a document is one of axolotl."""
    return "base_model" in document.data and _has(document, OF_AXOLOTL)


def is_recipe(document: Document) -> bool:
    """Whether a document holds arguments of a script that uses the Trainer."""
    return (isinstance(document.data.get("model_name_or_path", ""), str) and _has(document, OF_TRAINER[:1])) or (
        "model_name_or_path" in document.data and _has(document, OF_TRAINER)
    )


def is_accelerate(document: Document) -> bool:
    """Whether a document is one of accelerate."""
    return _has(document, OF_ACCELERATE[:2]) or ("num_processes" in document.data and _has(document, OF_ACCELERATE))


def is_deepspeed(document: Document) -> bool:
    """Whether a document is one of DeepSpeed."""
    return _has(document, OF_DEEPSPEED) and not _has(document, ("num_layers", "num-layers", "model_name_or_path"))


def is_model(document: Document) -> bool:
    """Whether a document is the `config.json` of a model."""
    return "model_type" in document.data and _has(document, OF_MODEL)


def read_factory(files: ConfigFiles) -> Head:
    """Head of the training that a configuration of LLaMA-Factory states.

    Raises:
        DataError: it is of inference or export.
    """
    return _read(files, LLAMA_FACTORY)


def read_axolotl(files: ConfigFiles) -> Head:
    """Head of the training that a configuration of axolotl states."""
    return _read(files, AXOLOTL)


def read_recipe(files: ConfigFiles) -> Head:
    """Head of the training that arguments of the Trainer in a file state."""
    return _read(files, HF)


def read_alone(files: ConfigFiles) -> Head:
    """Head of what accelerate, DeepSpeed or the configuration of a model says without a trainer."""
    head = files.head(HF)
    join_trainer(head, files.words_said(), (files.main, *files.others), files.follow)
    return head


def _read(files: ConfigFiles, trainer: str) -> Head:
    said = files.said()
    if not trains(said, trainer):
        raise DataError(
            f"{files.main.name}: is of inference, export or preparation, which is no training. Name the file of a training."
        )
    head = files.head(trainer)
    join_trainer(head, said, files.others, files.follow)
    return head


def trains(said: Mapping[str, SaidValue], trainer: str) -> bool:
    """Whether arguments are those of a training: not of inference, export or preparation."""
    stops = any(name in said and said[name].text not in ("False", "None") for name in NO_TRAINING)
    has_data = any(name in said for name in ("train_dataset", "dataset", *OF_TRAINER, "micro_batch_size"))
    said_so = said.get("do_train")
    if said_so is not None:
        return said_so.text.lower() != "false" or ("do_eval" not in said and "do_predict" not in said)
    return has_data and not stops if trainer == LLAMA_FACTORY else has_data or not stops


FOLLOWED = ("deepspeed", "deepspeed_config", "dist_config.config_file", "accelerate_config", "config_file")


def join_trainer(
    head: Head,
    said: Mapping[str, SaidValue],
    documents: Sequence[Document] = (),
    follow: Callable[[str], Document | None] = lambda name: None,
) -> None:
    """Joins arguments of a trainer with the files that go with them, in a head.

    Args:
        said: arguments by name.
        documents: that were given together.
        follow: reads a file that an argument names, where it is there.

    Raises:
        ConfigError: a file that is followed cannot be read.
    """
    head.arguments |= {f"training.{name}": one for name, one in said.items()}
    inner = "deepspeed."  # written within the arguments
    head.arguments |= {f"ds.{name.removeprefix(inner)}": one for name, one in said.items() if name.startswith(inner)}
    every = list(documents)
    for name in FOLLOWED:
        _follow(every, said.get(name), follow)
    for one in list(every):
        if is_accelerate(one):
            _take(head, one, "accelerate")
            _follow(every, head.arguments.get("accelerate.deepspeed_config.deepspeed_config_file"), follow)
    for one in every:
        if is_deepspeed(one) and not is_accelerate(one):
            _take(head, one, "ds")
        elif is_model(one):
            _take_model(head, one)


def _follow(documents: list[Document], named: SaidValue | None, follow: Callable[[str], Document | None]) -> None:
    """Adds the file that an argument names, where it is there."""
    if named is None or not named.text.endswith((".json", ".yaml", ".yml")):
        return
    found = follow(named.text)
    if found is None or any(one.name == found.name for one in documents):
        return
    if is_deepspeed(found) or is_accelerate(found):
        documents.append(found)


def _take(head: Head, document: Document, front: str) -> None:
    """Keeps values of another file, with its name; those that are `auto` are of the arguments."""
    short = Path(document.name).name
    for name, one in said_of(document).items():
        if one.text not in ("auto", "None"):
            head.arguments.setdefault(f"{front}.{name}", one._replace(name=f"{short}: {name}"))


def _take_model(head: Head, document: Document) -> None:
    head.config = document.data
    head.facts["config_file"] = SaidValue(
        str(document.data.get("model_type", "")), 1, f"{Path(document.name).name}: model_type"
    )


HF_CARRIERS = (
    Carrier("LLaMA-Factory", is_factory, read_factory),
    Carrier("axolotl", is_axolotl, read_axolotl),
    Carrier("Hugging Face Trainer", is_recipe, read_recipe),
    Carrier("accelerate", is_accelerate, read_alone),
    Carrier("DeepSpeed", is_deepspeed, read_alone),
    Carrier("config.json", is_model, read_alone),
)
