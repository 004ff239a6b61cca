"""Command lines of trainers that take Megatron's names: Megatron-LM and its forks, ms-swift on Megatron, slime.

Each hands its flags to the table of Megatron's names; what a trainer calls otherwise, or takes for granted, is a row here.
"""

from __future__ import annotations

import re

from .command_head import OF_CORE, is_megatron, megatron_head, put_vocabulary, take_flags
from .config_files import said_of
from .head import SaidValue
from .launch_line import LaunchLine, LaunchProgram
from .open_head import OpenHead
from .shell_values import is_open

STEP_ALONE = (
    "of reinforcement learning the training step of the policy is read: generation, rewards and reference are not in it"
)
OF_SWIFT = {"max_length": "seq_length", "padding_to": "", "model_type": ""}
SWIFT = r"(?:^|[\s/])megatron (?:sft|pt|rlhf)\b|cli/_megatron/(?:sft|pt|rlhf)\.py"
SLIME = ("rollout_batch_size", "actor_num_nodes", "actor_num_gpus_per_node", "n_samples_per_prompt")
CONVERTED = re.compile(r"[-_](?:mcore|torch_dist|megatron|dist)$")


def _finished(head: OpenHead) -> OpenHead:
    for name, value in OF_CORE.items():
        head.arguments.setdefault(name, SaidValue(value, 0, ""))
    put_vocabulary(head)
    return head


def _name_model(head: OpenHead, *names: str) -> None:
    """Names the model by the first of some arguments, without what converters put behind it."""
    said = next((head.arguments[name] for name in names if name in head.arguments), None)
    if said is not None:
        head.facts["model_name"] = said._replace(text=CONVERTED.sub("", said.text.rstrip("/")))


def swift_head(line: LaunchLine) -> OpenHead:
    """Reads a command line of ms-swift on Megatron: the model is named, and its configuration decides its sizes."""
    head = line.head()
    take_flags(head, line)
    for own, name in OF_SWIFT.items():
        said = head.arguments.pop(own, None)
        if said is not None and name:
            head.arguments.setdefault(name, said)
    head.arguments.setdefault("bf16", SaidValue("True", 0, ""))
    if head.arguments.get("fp16", SaidValue("", 0)).text.lower() == "true":
        head.arguments["bf16"] = SaidValue("False", 0, "")
    head.arguments.setdefault("use_distributed_optimizer", SaidValue("True", 0, ""))
    _name_model(head, "model", "mcore_model", "load")
    if "rlhf" in line.text:
        head.notes.append(STEP_ALONE)
    return _finished(head)


def is_slime(line: LaunchLine) -> bool:
    """Whether a command line has arguments of slime."""
    return "tensor_model_parallel_size" in line.names and sum(name in line.names for name in SLIME) >= 2


def slime_head(line: LaunchLine) -> OpenHead:
    """Reads a command line of slime: the training of the actor."""
    head = line.head()
    take_flags(head, line)
    if line.n_devices is None:
        _actor_gpus(head)
    head.arguments.setdefault("bf16", SaidValue("True", 0, ""))
    head.arguments.setdefault("use_distributed_optimizer", SaidValue("True", 0, ""))
    prompt, response = (head.arguments.get(f"rollout_max_{part}_len") for part in ("prompt", "response"))
    tokens = head.arguments.get("max_tokens_per_gpu")
    if "seq_length" not in head.arguments and response is not None and not is_open(response.text):
        length = sum(int(one.text) for one in (prompt, response) if one is not None and one.text.isdecimal())
        head.arguments["seq_length"] = response._replace(text=str(length))
    elif "seq_length" not in head.arguments and tokens is not None:
        head.arguments["seq_length"] = tokens
    if "global_batch_size" not in head.arguments:
        parts = [head.arguments.get(name) for name in ("rollout_batch_size", "n_samples_per_prompt")]
        if all(one is not None and one.text.isdecimal() for one in parts):
            n = int(parts[0].text) * int(parts[1].text)  # pyright: ignore[reportOptionalMemberAccess]
            head.arguments["global_batch_size"] = SaidValue(str(n), parts[0].line, "rollout_batch_size")  # pyright: ignore[reportOptionalMemberAccess]
    _name_model(head, "hf_checkpoint", "load")
    head.notes.append(STEP_ALONE)
    return _finished(head)


def _actor_gpus(head: OpenHead) -> None:
    each = head.arguments.get("actor_num_gpus_per_node", SaidValue("8", 0, "actor_num_gpus_per_node"))
    nodes = head.arguments.get("actor_num_nodes", SaidValue("1", 0, "actor_num_nodes"))
    if each.text.isdecimal() and nodes.text.isdecimal():
        n = str(int(each.text) * int(nodes.text))
        head.arguments["world_size"] = SaidValue(n, each.line or nodes.line, "GPUs of a node x nodes")
        head.facts["nproc_per_node"] = each
    else:
        text = "".join(one.text for one in (each, nodes) if is_open(one.text))
        head.arguments["world_size"] = SaidValue(text, each.line or nodes.line, "GPUs of a node x nodes")


def deepspeed_head(line: LaunchLine) -> OpenHead:
    """Reads a command line of Megatron-LM or Megatron-DeepSpeed; the configuration of DeepSpeed that it names counts.

    Raises:
        NoTrainingError: it trains nothing, or no decoder and no BERT.
    """
    head = megatron_head(line)
    name = head.arguments.get("deepspeed_config")
    found = line.follow(name.text) if name is not None else None
    if found is None or name is None:
        return head
    for key, argument in _OF_DEEPSPEED.items():
        said = said_of(found).get(key)
        if said is not None and said.text not in ("auto", "None"):
            head.arguments[argument] = said._replace(line=name.line, name=f"deepspeed_config: {key}")
    return head


_OF_DEEPSPEED = {
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.overlap_comm": "overlap_comm",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "train_batch_size": "global_batch_size",
}


def _is_swift(line: LaunchLine) -> bool:
    return re.search(SWIFT, line.text) is not None


MEGATRON_PROGRAMS = (
    LaunchProgram("ms-swift (megatron sft)", _is_swift, swift_head),
    LaunchProgram("slime (--actor-num-nodes)", is_slime, slime_head),
    LaunchProgram("Megatron-LM (--tensor-model-parallel-size, --num-layers)", is_megatron, deepspeed_head),
)
