"""Command lines of trainers on Hugging Face's Trainer: `torchrun train.py --per_device_train_batch_size 4 --deepspeed ds.json`,
`accelerate launch`, `deepspeed`, `llamafactory-cli train x.yaml`, `axolotl train`, recipes of TRL, DeepSpeed-Chat and OpenRLHF.

Arguments are joined with the files that they name, where those are there. GPUs are those of the launcher, of `--include`, of
`CUDA_VISIBLE_DEVICES` or of a directive of Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from ..tables.document import Document
from .config_files import ConfigFiles
from .head import SaidValue
from .hf_configs import is_accelerate, is_axolotl, is_factory, is_recipe, join_trainer, trains
from .launch_line import LaunchLine, LaunchProgram, NoTrainingError
from .open_head import OpenHead
from .said import AXOLOTL, HF, LLAMA_FACTORY, OPENRLHF
from .shell_values import is_open

OF_TRAINER = ("per_device_train_batch_size", "gradient_accumulation_steps", "model_name_or_path")
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
_HOST = re.compile(r"^\s*[\w.-]+\s+slots=(\d{1,3})\s*$", re.MULTILINE)
NO_TRAINING = re.compile(
    r"(?i)(?:llamafactory-cli|axolotl)\s+(?:chat|api|export|webchat|webui|inference|merge|eval|preprocess|fetch)\w*"
)
MISSING = "which is not there: import that file, or name a folder above it (--root DIR)"


def _is_openrlhf(line: LaunchLine) -> bool:
    return "openrlhf.cli.train" in line.text or re.search(r"openrlhf/\S*train_\w+\.py", line.text) is not None


def _is_trainer(line: LaunchLine) -> bool:
    own = [name for name in OF_TRAINER if name in line.names]
    return len(own) > 1 or (bool(own) and _PROGRAM.search(line.text) is not None) or _has_file(line)


def _has_file(line: LaunchLine) -> bool:
    """Whether a command line of these trainers names a configuration."""
    recipes = [name for name in _files(line) if not name.endswith(".json") or "llamafactory" in line.text]
    return _PROGRAM.search(line.text) is not None and bool(recipes)


def _files(line: LaunchLine) -> list[str]:
    """Configurations that a command line names."""
    return [word.text for word in line.command.words if word.text.endswith((".yaml", ".yml", ".json"))]


def _read_trainer(line: LaunchLine) -> OpenHead:
    """Head of the training that a command line starts.

    Raises:
        NoTrainingError: it starts none, or the file that says it is not there.
    """
    if NO_TRAINING.search(line.text):
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
            said |= ConfigFiles(found, environment=line.environment, open=line.script.open).said()
            trainer = kind if trainer == HF else trainer
    flags = dict(line.flags)
    recipes = [name for name in missing if name.endswith((".yaml", ".yml"))]
    if not said and (not any(name in flags for name in OF_TRAINER) or (recipes and "model_name_or_path" not in flags)):
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


def _launcher(head: OpenHead, line: LaunchLine, said: dict[str, SaidValue]) -> None:
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


def _devices(head: OpenHead, line: LaunchLine) -> None:
    """GPUs that the launcher does not say by its usual options."""
    if "world_size" in head.arguments:
        return
    known = line.launcher | {name: one for name, one in line.flags.items() if name in ("include", "hostfile")}
    gres, include = known.get("gres"), known.get("include")
    at, nodes = line.command.line, known.get("nodes") or known.get("N") or known.get("nnodes")
    visible = line.command.variables.get("CUDA_VISIBLE_DEVICES")
    if include is not None and not is_open(include.text):
        n = sum(len(part.partition(":")[2].split(",")) if ":" in part else 0 for part in re.split("@", include.text))
        if n:
            head.arguments["world_size"] = include._replace(text=str(n), name="include")
    elif gres is not None and (found := _GRES.search(gres.text)) and (nodes is None or nodes.text.isdecimal()):
        n = int(found[1]) * int(nodes.text if nodes else 1)
        head.arguments["world_size"] = gres._replace(text=str(n), name="gres x nodes")
    elif visible and re.fullmatch(r"\d+(?:,\d+)*,?", visible):
        n = len(visible.strip(",").split(","))
        head.arguments["world_size"] = SaidValue(str(n), at, "CUDA_VISIBLE_DEVICES")


def _read_openrlhf(line: LaunchLine) -> OpenHead:
    """Head of the training of OpenRLHF; of reinforcement learning, that of the actor.

    Raises:
        NoTrainingError: it is no training.
    """
    flags = line.flags
    said = {RLHF.get(name, name): one for name, one in flags.items()}
    head = line.head(OPENRLHF)
    is_rl = "ppo" in line.text or "actor_num_nodes" in said
    if is_rl:
        _actor(head, said)
    for name, text in RLHF_USUAL.items():
        said.setdefault(name, SaidValue(text, 0, name))
    method = re.search(r"train_(dpo|kto|rm|kd|ppo)", line.text)
    if method is not None:
        said["method"] = SaidValue(method[1], line.command.line, "program")
    join_trainer(head, said, (), line.follow)
    _devices(head, line)
    return head


def _actor(head: OpenHead, said: dict[str, SaidValue]) -> None:
    nodes = said.get("actor_num_nodes") or said.get("actor.num_nodes")
    each = said.get("actor_num_gpus_per_node") or said.get("actor.num_gpus_per_node")
    if nodes is not None and each is not None and nodes.text.isdecimal() and each.text.isdecimal():
        head.arguments.setdefault(
            "world_size", each._replace(text=str(int(nodes.text) * int(each.text)), name="GPUs of the actor")
        )
    lengths = [said.get(name) for name in ("prompt_max_len", "generate_max_len")]
    if all(one is not None and one.text.isdecimal() for one in lengths):
        total = sum(int(one.text) for one in lengths if one is not None)
        said["max_len"] = (lengths[1] or SaidValue("", 0))._replace(
            text=str(total), name="prompt_max_len + generate_max_len"
        )


def _no_training(line: LaunchLine, why: str) -> NoTrainingError:
    program = line.parts.program or " ".join(word.text for word in line.command.words[:2])
    return NoTrainingError(f"{line.path}: line {line.command.line}: {line.script.open.shown(program)[:80]} {why}")


HF_PROGRAMS = (
    LaunchProgram("OpenRLHF", _is_openrlhf, _read_openrlhf),
    LaunchProgram("Hugging Face Trainer, accelerate, DeepSpeed, LLaMA-Factory, axolotl", _is_trainer, _read_trainer),
)
