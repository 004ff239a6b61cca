"""Hugging Face's Trainer and what is built on it, from what users write: configurations and command lines.

Known are LLaMA-Factory, axolotl, recipes of TRL, DeepSpeed-Chat and OpenRLHF, started by `torchrun`, `accelerate launch`,
`deepspeed`, `llamafactory-cli train` or `axolotl train`. A job of theirs is spread over files: a DeepSpeed JSON and an accelerate
YAML next to the arguments, a `config.json` for the model. `join_trainer` joins them for files and for command lines alike. What a
file holds as `auto` is of another, so it is not said. GPUs are those of the launcher, of `--include`, of `CUDA_VISIBLE_DEVICES`
or of a directive of Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from ..core.errors import DataError
from ..tables.document import Document
from .config_files import Carrier, ConfigFiles, said_of
from .head import Head, SaidValue, plain_number, product_text, without_line
from .launch_line import LaunchLine, LaunchProgram, NoTrainingError, included_gpus
from .said import AXOLOTL, HF, LLAMA_FACTORY, OPENRLHF
from .shell_values import is_open

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
OTHER_USES = ("export_dir", "infer_backend", "do_predict")


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


def read_alone(files: ConfigFiles) -> Head:
    """Head of what accelerate, DeepSpeed or the configuration of a model says without a trainer."""
    head = files.head(HF)
    join_trainer(head, files.words_said(), (files.main, *files.others), files.follow)
    return head


def read_trainer_files(files: ConfigFiles, trainer: str) -> Head:
    """Head of the training that a configuration of a trainer states.

    Raises:
        DataError: it is of inference or export.
    """
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
    stops = any(name in said and said[name].text not in ("False", "None") for name in OTHER_USES)
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
    Carrier("LLaMA-Factory", is_factory, partial(read_trainer_files, trainer=LLAMA_FACTORY)),
    Carrier("axolotl", is_axolotl, partial(read_trainer_files, trainer=AXOLOTL)),
    Carrier("Hugging Face Trainer", is_recipe, partial(read_trainer_files, trainer=HF)),
    Carrier("accelerate", is_accelerate, read_alone),
    Carrier("DeepSpeed", is_deepspeed, read_alone),
    Carrier("config.json", is_model, read_alone),
)


# --- Command lines ---------------------------------------------------------------------------------------------------

OF_COMMAND = ("per_device_train_batch_size", "gradient_accumulation_steps", "model_name_or_path")
OF_LAUNCHER = {  # options of accelerate launch -> names of its configuration
    "mixed_precision": "mixed_precision",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "zero_stage": "deepspeed_config.zero_stage",
    "offload_optimizer_device": "deepspeed_config.offload_optimizer_device",
    "offload_param_device": "deepspeed_config.offload_param_device",
    "deepspeed_config_file": "deepspeed_config.deepspeed_config_file",
    "num_machines": "num_machines",
    "fsdp_sharding_strategy": "fsdp_config.fsdp_sharding_strategy",
    "fsdp_reshard_after_forward": "fsdp_config.fsdp_reshard_after_forward",
    "fsdp_offload_params": "fsdp_config.fsdp_offload_params",
}
RLHF = {  # names of OpenRLHF since 2026 -> before
    "model.model_name_or_path": "pretrain",
    "actor.model_name_or_path": "pretrain",
    "data.max_len": "max_len",
    "train.batch_size": "train_batch_size",
    "train.micro_batch_size": "micro_train_batch_size",
    "ds.zero_stage": "zero_stage",
    "ds.param_dtype": "param_dtype",
    "ds.adam_offload": "adam_offload",
    "ds.attn_implementation": "attn_implementation",
    "ds.ring_attn_size": "ring_attn_size",
    "ds.packing_samples": "packing_samples",
    "model.gradient_checkpointing_enable": "gradient_checkpointing",
    "actor.gradient_checkpointing_enable": "gradient_checkpointing",
    "ds.lora.rank": "lora_rank",
}
RLHF_USUAL = {"max_len": "2048", "train_batch_size": "128", "micro_train_batch_size": "8", "zero_stage": "2"}
_PROGRAM = re.compile(
    r"(?i)(?:^|/|\s)(?:sft|dpo|grpo|orpo|kto|ppo|reward|rm|train|finetune|run_\w+)\w*\.py(?=\s|$)|\btrl\s+\w+|\bllamafactory|\baxolotl\b"
)
_METHOD = re.compile(r"(?i)(?:^|[/_.])(dpo|orpo|kto|grpo|ppo|reward|rm|gkd)(?:[_.]|$)")
_GRES = re.compile(r"gpu(?::\w+)?:(\d{1,3})")
_OTHER_USE = re.compile(
    r"(?i)(?:llamafactory-cli|axolotl)\s+(?:chat|api|export|webchat|webui|inference|merge|eval|preprocess|fetch)\w*"
)
MISSING = "which is not there: import that file, or name a folder above it (--root DIR)"


def _is_openrlhf(line: LaunchLine) -> bool:
    return "openrlhf.cli.train" in line.text or re.search(r"openrlhf/\S*train_\w+\.py", line.text) is not None


def _is_trainer(line: LaunchLine) -> bool:
    own = [name for name in OF_COMMAND if name in line.names]
    return len(own) > 1 or (bool(own) and _PROGRAM.search(line.text) is not None) or _has_file(line)


def _has_file(line: LaunchLine) -> bool:
    """Whether a command line of these trainers names a configuration."""
    recipes = [name for name in _files(line) if not name.endswith(".json") or "llamafactory" in line.text]
    return _PROGRAM.search(line.text) is not None and bool(recipes)


def _files(line: LaunchLine) -> list[str]:
    """Configurations that a command line names."""
    return [word.text for word in line.command.words if word.text.endswith((".yaml", ".yml", ".json"))]


def _read_trainer_line(line: LaunchLine) -> Head:
    """Head of the training that a command line starts.

    Raises:
        NoTrainingError: it starts none, or the file that says it is not there.
    """
    if _OTHER_USE.search(line.text):
        raise _no_training(line, "is no training")
    said: dict[str, SaidValue] = {}
    trainer = LLAMA_FACTORY if "llamafactory" in line.text or "finetuning_type" in line.names else HF
    trainer = AXOLOTL if "axolotl" in line.text else trainer
    kinds: Mapping[str, Callable[[Document], bool]] = {LLAMA_FACTORY: is_factory, AXOLOTL: is_axolotl, HF: is_recipe}
    missing: list[str] = []
    launcher = {one.text for one in line.launcher.values()}
    for name in _files(line):
        if name in launcher:
            continue
        found = line.follow(name)
        if found is None:
            missing.append(line.script.open.shown(name))
            continue
        kind = next((kind for kind, is_kind in kinds.items() if is_kind(found)), None)
        if kind is not None:
            said |= line.values_of(found)
            trainer = kind if trainer == HF else trainer
    flags = dict(line.flags)
    recipes = [name for name in missing if name.endswith((".yaml", ".yml"))]
    if not said and (not any(name in flags for name in OF_COMMAND) or (recipes and "model_name_or_path" not in flags)):
        raise _no_training(line, f"leaves the training to {', '.join(missing) or 'nothing'}, {MISSING}")
    if trainer == LLAMA_FACTORY:
        pairs = (
            word.text.partition("=") + (word.line,) for word in line.command.words if not word.text.startswith("-")
        )
        said |= {
            name: SaidValue(value, at, name) for name, equals, value, at in pairs if equals and name.isidentifier()
        }
    said |= flags
    if not trains(said, trainer):
        raise _no_training(line, "is no training")
    method = _METHOD.search(line.parts.program)
    if method is not None:
        said.setdefault("method", SaidValue(method[1].lower(), line.command.line, "program"))
    head = line.head(trainer)
    _launcher(head, line, said)
    join_trainer(head, said, _accelerate(line), line.follow)
    _devices(head, line)
    return head


def _accelerate(line: LaunchLine) -> list[Document]:
    """The configuration that `accelerate launch --config_file` names, where it is there."""
    named = line.launcher.get("config_file")
    found = line.follow(named.text) if named is not None else None
    return [found] if found is not None and is_accelerate(found) else []


def _launcher(head: Head, line: LaunchLine, said: dict[str, SaidValue]) -> None:
    """Options of `accelerate launch` and of `deepspeed`."""
    own = line.launcher
    words = {word.text for word in line.parts.launcher}
    if "accelerate" not in " ".join(words):
        return
    for name, path in OF_LAUNCHER.items():
        if name in own:
            head.arguments[f"accelerate.{path}"] = own[name]
    kinds = {"--use_fsdp": "FSDP", "--use_deepspeed": "DEEPSPEED", "--multi_gpu": "MULTI_GPU"}
    for word, kind in kinds.items():
        if word in words:
            head.arguments["accelerate.distributed_type"] = SaidValue(kind, line.command.line, word)
    config = own.get("deepspeed_config_file")
    if config is not None:
        said.setdefault("deepspeed", config)


def _devices(head: Head, line: LaunchLine) -> None:
    """GPUs that the launcher does not say by its usual options."""
    if "world_size" in head.arguments:
        return
    known = line.launcher | {name: one for name, one in line.flags.items() if name in ("include", "hostfile")}
    gres, include = known.get("gres"), known.get("include")
    nodes = known.get("nodes") or known.get("N") or known.get("nnodes")
    visible = line.command.variables.get("CUDA_VISIBLE_DEVICES")
    if include is not None and not is_open(include.text):
        if n_included := included_gpus(include.text):
            head.arguments["world_size"] = include._replace(text=str(n_included), name="include")
    elif gres is not None and (found := _GRES.search(gres.text)) and (n := _times(gres._replace(text=found[1]), nodes)):
        head.arguments["world_size"] = gres._replace(text=n, name="gres x nodes")
    elif visible and re.fullmatch(r"\d+(?:,\d+)*,?", visible):
        n = str(len(visible.strip(",").split(",")))
        head.arguments["world_size"] = SaidValue(n, line.command.line, "CUDA_VISIBLE_DEVICES")


def _times(*said: SaidValue | None) -> str:
    """Product of what is said; empty where a part of it is open."""
    text = product_text(*said)
    return text if text.isdecimal() else ""


def _read_openrlhf(line: LaunchLine) -> Head:
    """Head of the training of OpenRLHF; of reinforcement learning, that of the actor.

    Raises:
        NoTrainingError: it is no training.
    """
    said = {RLHF.get(name, name): one for name, one in line.flags.items()}
    head = line.head(OPENRLHF)
    if "ppo" in line.text or "actor_num_nodes" in said:
        _actor(head, said)
    said = without_line(RLHF_USUAL) | said
    method = re.search(r"train_(dpo|kto|rm|kd|ppo)", line.text)
    if method is not None:
        said["method"] = SaidValue(method[1], line.command.line, "program")
    join_trainer(head, said, (), line.follow)
    _devices(head, line)
    return head


def _actor(head: Head, said: dict[str, SaidValue]) -> None:
    nodes = said.get("actor_num_nodes") or said.get("actor.num_nodes")
    each = said.get("actor_num_gpus_per_node") or said.get("actor.num_gpus_per_node")
    if nodes is not None and each is not None and (n := _times(nodes, each)):
        head.arguments.setdefault("world_size", each._replace(text=n, name="GPUs of the actor"))
    prompt, response = said.get("prompt_max_len"), said.get("generate_max_len")
    lengths = [plain_number(one) for one in (prompt, response)]
    if response is not None and None not in lengths:
        total = sum(one or 0 for one in lengths)
        said["max_len"] = response._replace(text=str(total), name="prompt_max_len + generate_max_len")


def _no_training(line: LaunchLine, why: str) -> NoTrainingError:
    program = line.parts.program or " ".join(word.text for word in line.command.words[:2])
    return line.no_training(f"{line.shown(program)} {why}")


HF_PROGRAMS = (
    LaunchProgram("OpenRLHF", _is_openrlhf, _read_openrlhf),
    LaunchProgram(
        "Hugging Face Trainer, accelerate, DeepSpeed, LLaMA-Factory, axolotl", _is_trainer, _read_trainer_line
    ),
)
