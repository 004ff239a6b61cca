"""Command lines of trainers that take Megatron's names: Megatron-LM and its forks, ms-swift on Megatron, slime.

Flags become the names under which Megatron-LM prints its arguments: `--no-X` is X False, `--X` alone is True. What a trainer
calls otherwise, or takes for granted, is a row here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .config_files import said_of
from .head import Head, SaidValue, plain_number, product_text, without_line
from .launch_line import LaunchLine, LaunchProgram, flags_of, runs
from .models import model_of_name
from .shell_values import ShellWord, is_open
from .stated import BY_HAND, NO_FIELD

MARKERS = ("tensor_model_parallel_size", "num_layers", "micro_batch_size")
OLD = ("checkpoint_activations", "DDP_impl", "model_parallel_size", "zero_stage", "deepspeed")  # before Megatron-Core
OF_CORE = {  # defaults of Megatron-Core
    "sequence_parallel": "False",
    "transformer_impl": "transformer_engine",
    "overlap_grad_reduce": "False",
    "use_distributed_optimizer": "False",
}
INVERSE = re.compile(r"no_(?=masked_softmax|gradient_accumulation|bias_|rope_fusion|position|persist|scaled)")
TOKENIZERS = {  # rows of the vocabularies that tokenizers of Megatron-LM have by themselves
    "GPT2BPETokenizer": 50257,
    "BertWordPieceCase": 28996,
    "BertWordPieceLowerCase": 30522,
    "Llama2Tokenizer": 32000,
}
NAMED_TOKENIZERS = ("tokenizer_model", "tokenizer_name_or_path", "tokenizer_path", "hf_checkpoint", "model")
NO_DECODERS = (  # names of programs, and why no job can be made of what they do
    (r"(?:^|[_/.])t5(?:[_/.]|$)|encoder_decoder", f"trains an encoder and a decoder, {BY_HAND}"),
    (r"retro|realm|(?:^|_)ict(?:_|\.)", f"trains a model with retrieval, {NO_FIELD}"),
    (r"vision|vlm|llava|multimodal|mimo|clip|(?:^|/)\w*dit_", f"trains a model of images, {BY_HAND}"),
    (r"mamba|hybrid", f"trains layers with Mamba or others in a pattern, {BY_HAND}"),
    (
        r"infer|generat|server|serve|convert|checkpoint|hf2|2hf|export|quantiz|prune|evaluat|preprocess|tasks/",
        "is no training",
    ),
)


STEP_ALONE = (
    "of reinforcement learning the training step of the policy is read: generation, rewards and reference are not in it"
)
OF_SWIFT = {"max_length": "seq_length", "padding_to": "", "model_type": ""}
SWIFT = r"(?:^|[\s/])megatron (?:sft|pt|rlhf)\b|cli/_megatron/(?:sft|pt|rlhf)\.py"
SLIME = ("rollout_batch_size", "actor_num_nodes", "actor_num_gpus_per_node", "n_samples_per_prompt")
USUAL = without_line({"bf16": "True", "use_distributed_optimizer": "True"}, named=False)  # of ms-swift and slime
CONVERTED = re.compile(r"[-_](?:mcore|torch_dist|megatron|dist)$")


def take_arguments(head: Head, given: Mapping[str, SaidValue]) -> None:
    """Takes flags by name under the names that Megatron-LM prints: `no_X` is X False."""
    for name, said in given.items():
        off = INVERSE.match(name) is not None and said.text == "True"
        head.arguments[name[3:] if off else name] = said._replace(text="False", name=name[3:]) if off else said


def _flags_head(line: LaunchLine) -> Head:
    """A head with the flags of a command line as arguments of Megatron-LM."""
    head = line.head()
    loose: list[ShellWord] = []
    take_arguments(head, flags_of(line.parts.arguments, line.script, loose))
    for word in loose:  # an open one may hold more arguments; a variable that is never set holds none
        head.undecided += [one for one in head.open.inside(word.text) if one.is_undecided or line.script.missing]
    return head


def put_vocabulary(head: Head) -> None:
    """Rows of the vocabulary that the tokenizer has, where no argument says it."""
    kind = head.arguments.get("tokenizer_type")
    if head.arguments.keys() & {"vocab_size", "padded_vocab_size"}:
        return
    rows = TOKENIZERS.get(kind.text) if kind is not None else None
    said = kind
    names = (head.arguments.get(name) for name in NAMED_TOKENIZERS)
    model = next((one for one in names if one is not None and not is_open(one.text)), None)
    if rows is None and model is not None and (preset := model_of_name(model.text)) is not None:
        from ..workload.catalog import workload

        rows, said = getattr(workload(preset), "vocab", None), model
    if rows is not None and said is not None:
        head.asked.add(said.name)
        head.arguments["vocab_size"] = SaidValue(str(rows), said.line, said.name)


def finish(head: Head) -> Head:
    """Returns the head with what nobody said as Megatron-Core has it, and with the rows of the vocabulary."""
    head.arguments = without_line(OF_CORE, named=False) | head.arguments
    put_vocabulary(head)
    return head


def _name_model(head: Head, *names: str) -> None:
    """Names the model by the first of some arguments, without what converters put behind it."""
    said = next((head.arguments[name] for name in names if name in head.arguments), None)
    if said is not None:
        head.facts["model_name"] = said._replace(text=CONVERTED.sub("", said.text.rstrip("/")))


def swift_head(line: LaunchLine) -> Head:
    """Reads a command line of ms-swift on Megatron: the model is named, and its configuration decides its sizes."""
    head = _flags_head(line)
    for own, name in OF_SWIFT.items():
        said = head.arguments.pop(own, None)
        if said is not None and name:
            head.arguments.setdefault(name, said)
    head.arguments = USUAL | head.arguments
    if head.arguments.get("fp16", SaidValue("", 0)).text.lower() == "true":
        head.arguments["bf16"] = SaidValue("False", 0, "")
    _name_model(head, "model", "mcore_model", "load")
    if "rlhf" in line.text:
        head.notes.append(STEP_ALONE)
    return finish(head)


def is_slime(line: LaunchLine) -> bool:
    """Whether a command line has arguments of slime."""
    return "tensor_model_parallel_size" in line.names and sum(name in line.names for name in SLIME) >= 2


def slime_head(line: LaunchLine) -> Head:
    """Reads a command line of slime: the training of the actor."""
    head = _flags_head(line)
    if line.n_devices is None:
        _actor_gpus(head)
    head.arguments = USUAL | head.arguments
    own = head.arguments
    prompt, response = (own.get(f"rollout_max_{part}_len") for part in ("prompt", "response"))
    tokens = own.get("max_tokens_per_gpu")
    if response is not None and not is_open(response.text):
        length = sum(plain_number(one) or 0 for one in (prompt, response))
        own.setdefault("seq_length", response._replace(text=str(length)))
    elif tokens is not None:
        own.setdefault("seq_length", tokens)
    sequences, samples = own.get("rollout_batch_size"), own.get("n_samples_per_prompt")
    n_sequence, n_sample = plain_number(sequences), plain_number(samples)
    if sequences is not None and n_sequence is not None and n_sample is not None:
        batch = SaidValue(str(n_sequence * n_sample), sequences.line, "rollout_batch_size")
        own.setdefault("global_batch_size", batch)
    _name_model(head, "hf_checkpoint", "load")
    head.notes.append(STEP_ALONE)
    return finish(head)


def _actor_gpus(head: Head) -> None:
    each = head.arguments.get("actor_num_gpus_per_node", SaidValue("8", 0, "actor_num_gpus_per_node"))
    nodes = head.arguments.get("actor_num_nodes", SaidValue("1", 0, "actor_num_nodes"))
    text = product_text(each, nodes)
    head.arguments["world_size"] = SaidValue(text, each.line or nodes.line, "GPUs of a node x nodes")
    if text.isdecimal():
        head.facts["nproc_per_node"] = each


def is_megatron(line: LaunchLine) -> bool:
    """Whether a command line has arguments of Megatron-LM: two that few others have, or one behind a program of its names."""
    n_found = sum(marker in line.names for marker in MARKERS)
    return n_found >= 2 or (n_found == 1 and re.search(r"(?:^|/)pretrain_\w+\.py$", line.parts.program) is not None)


def megatron_head(line: LaunchLine) -> Head:
    """Reads a command line of Megatron-LM or Megatron-DeepSpeed; the configuration of DeepSpeed that it names counts.

    Raises:
        NoTrainingError: it trains nothing, or no decoder and no BERT.
    """
    head, program = _flags_head(line), line.parts.program
    if (why := next((why for pattern, why in NO_DECODERS if re.search(pattern, program)), "")) != "":
        raise line.no_training(f"{program} {why}. Name a script that trains a decoder or BERT.")
    if head.arguments.keys().isdisjoint(OLD):
        finish(head)
    else:
        put_vocabulary(head)
    named = head.arguments.get("deepspeed_config")
    found = line.follow(named.text) if named is not None else None
    if named is None or found is None:
        return head
    for key, said in said_of(found).items():
        if key in _OF_DEEPSPEED and said.text not in ("auto", "None"):
            head.arguments[_OF_DEEPSPEED[key]] = said._replace(line=named.line, name=f"deepspeed_config: {key}")
    return head


_OF_DEEPSPEED = {
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.overlap_comm": "overlap_comm",
    "train_micro_batch_size_per_gpu": "micro_batch_size",
    "train_batch_size": "global_batch_size",
}


MEGATRON_PROGRAMS = (
    LaunchProgram("ms-swift (megatron sft)", runs(SWIFT), swift_head),
    LaunchProgram("slime (--actor-num-nodes)", is_slime, slime_head),
    LaunchProgram("Megatron-LM (--tensor-model-parallel-size, --num-layers)", is_megatron, megatron_head),
)
