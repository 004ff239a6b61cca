"""The head of a run from the command line that a launch script of Megatron-LM would start: its arguments, with lines.

The last command line that carries a marker counts; others are counted. Flags become the names under which Megatron-LM prints its
arguments: `--no-X` is X False, `--X` alone is True. The number of GPUs follows from torchrun, Slurm or the usual variables. What
the script leaves open is remembered where a reader asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import DataError
from .head import Head, SaidValue
from .models import model_of_name
from .shell import ShellCommand, ShellScript, follow
from .shell_values import OpenValue, OpenValues, ShellWord, is_open

MARKERS = ("tensor_model_parallel_size", "num_layers", "micro_batch_size")
OLD = ("checkpoint_activations", "DDP_impl", "model_parallel_size", "zero_stage", "deepspeed")  # before Megatron-Core
OF_CORE = {"sequence_parallel": "False", "transformer_impl": "transformer_engine"}  # defaults of Megatron-Core
NO_VALUE = re.compile(
    r"(?:no|use|disable|enable|overlap|add|apply|accumulate|untie|moe_use|log|skip|finetune|eod|reset|calculate|exit_on|manual|async)_"
    r"|(?:bf16|fp16|swiglu|sequence_parallel|group_query_attention|qk_layernorm|multi_latent_attention|moe_grouped_gemm"
    r"|recompute_activations|checkpoint_activations|tp_comm_overlap|finetune|masked_softmax_fusion|cpu_offloading)$"
)
INVERSE = re.compile(r"no_(?=masked_softmax|gradient_accumulation|bias_|rope_fusion|position|persist|scaled)")
TOKENIZERS = {  # rows of the vocabularies that tokenizers of Megatron-LM have by themselves
    "GPT2BPETokenizer": 50257,
    "BertWordPieceCase": 28996,
    "BertWordPieceLowerCase": 30522,
    "Llama2Tokenizer": 32000,
}
PROGRAMS = (  # names of programs, and why no job can be made of what they do
    (r"(?:^|[_/.])t5(?:[_/.]|$)|encoder_decoder", "trains an encoder and a decoder, which no field of a job describes"),
    (r"retro|realm|(?:^|_)ict(?:_|\.)", "trains a model with retrieval, which no field of a job describes"),
    (
        r"vision|vlm|llava|multimodal|mimo|clip|(?:^|/)\w*dit_",
        "trains a model of images, which no field of a job describes",
    ),
    (r"mamba|hybrid", "trains layers with Mamba or others in a pattern, which no field of a job describes"),
    (
        r"infer|generat|server|serve|convert|checkpoint|hf2|2hf|export|quantiz|prune|evaluat|preprocess|tasks/",
        "is no training",
    ),
)
PER_NODE = ("nproc_per_node", "nproc-per-node", "num_gpus", "ntasks-per-node", "gpus-per-node", "n_gpus_per_node")
NODES = ("nnodes", "num_nodes", "nodes", "N")
SLURM = {  # variables that Slurm sets -> the option that says them
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_GPUS_ON_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
}
VARIABLES = ("WORLD_SIZE", "GPU_NUM", "NUM_GPUS", "NGPUS", "N_GPUS")
LONGEST = 400


@dataclass
class CommandHead(Head):
    """Head of a run that a command line would start.

    Attributes:
        opened: names that a reader looked up and whose value the script leaves open.
        open: open values of the script.
        undecided: words of the command line that may hold more arguments.
    """

    opened: dict[str, SaidValue] = field(default_factory=dict)
    open: OpenValues = field(default_factory=OpenValues)
    undecided: list[OpenValue] = field(default_factory=list)

    def said(self, *names: str) -> SaidValue | None:
        """The first of these names that has a value; one that is open is remembered, and is not said."""
        for name in names:
            found = self.arguments.get(name)
            if found is not None and is_open(found.text):
                self.opened[name] = found
                self.asked.add(name)
                return None
        return super().said(*names)

    def shown(self, text: str) -> str:
        """Returns a value with names in the place of what is open."""
        return self.open.shown(text)

    def questions(self) -> list[str]:
        """Lists what the script leaves open and a job needs: names of variables and positions, each once, with its line."""
        own = [
            (one, f"--{name.replace('_', '-')}")
            for name, said in self.opened.items()
            for one in self.open.inside(said.text)
        ]
        own += [(one, "more arguments") for one in self.undecided]
        found: dict[str, str] = {}
        for one, use in own:
            name = f"${one.name}" if re.fullmatch(r"\w+", one.name) else one.name
            found.setdefault(name, f"{name} (line {one.line}, for {use})")
        return list(found.values())


def head_of_script(
    path: Path,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    n_devices: int | None = None,
) -> CommandHead:
    """Reads the training that a launch script would start.

    Args:
        arguments: positional arguments of the script.
        environment: variables that are set around it.
        n_devices: GPUs of the job; None: as the script says.

    Raises:
        DataError: the file cannot be read, or starts no training of Megatron-LM.
    """
    script = follow(path, arguments, environment, SLURM)
    trained = [command for command in script.commands if _marks(command)]
    if not trained:
        sourced = ", ".join(f"{word.text} (line {word.line})" for word in script.missing)
        missing = f"; files that it sources are not in its folder: {sourced}" if sourced else ""
        raise DataError(
            f"{path}: no command line with arguments of Megatron-LM (--tensor-model-parallel-size, --num-layers) was "
            f"found{missing}. Name the script that starts the training, or import the log of its run."
        )
    command = trained[-1]
    head = CommandHead(first_line=command.line, last_line=command.line, source="script")
    head.open = script.open
    if len(trained) > 1:
        head.notes.append(
            f"{len(trained) - 1} more command lines of the script start a training; the last one was taken"
        )
    launcher, program, flags = _split(command)
    head.facts["program"] = SaidValue(program, command.line, "program")
    if (why := next((why for pattern, why in PROGRAMS if re.search(pattern, program)), "")) != "":
        raise DataError(f"{path}: line {command.line}: {program} {why}. Name a script that trains a decoder or BERT.")
    _take(head, flags)
    _size(head, script, command, launcher, n_devices)
    if not any(name in head.arguments for name in OLD):
        for name, value in OF_CORE.items():
            head.arguments.setdefault(name, SaidValue(value, 0, ""))
    _vocabulary(head)
    return head


def _name(word: str) -> str:
    return word[2:].partition("=")[0].replace("-", "_")


def _marks(command: ShellCommand) -> int:
    names = {_name(word.text) for word in command.words if word.text.startswith("--")}
    return sum(marker in names for marker in MARKERS) >= 2


def _split(command: ShellCommand) -> tuple[Sequence[ShellWord], str, Sequence[ShellWord]]:
    """Words in front of the training program, its name, and the words behind it."""
    words = command.words
    for at, word in enumerate(words):
        if word.text.endswith(".py") or (at and words[at - 1].text == "-m" and not word.text.startswith("torch")):
            return words[:at], "/".join(word.text.split("/")[-2:]), words[at + 1 :]
    first = next(at for at, word in enumerate(words) if _name(word.text) in MARKERS and word.text.startswith("--"))
    return words[:first], "", words[first:]


def _is_flag(text: str) -> bool:
    return text.startswith("--") and len(text) > 2 and text[2].isalpha()


def _take(head: CommandHead, words: Sequence[ShellWord]) -> None:
    """Reads arguments: the last of a name counts, as argparse has it."""
    words = [word for word in words if word.text]  # "$@" without arguments is none
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not _is_flag(word.text):
            _loose(head, word)
            continue
        name, equals, value = word.text[2:].partition("=")
        name = name.replace("-", "_")
        values = [value] if equals else []
        while not equals and at < len(words) and not _is_flag(words[at].text):
            undecided = any(one.is_undecided for one in head.open.inside(words[at].text))
            if (NO_VALUE.match(name) or values) and (undecided or is_open(words[at].text)):
                break
            values.append(words[at].text)
            at += 1
        text = " ".join(values)[:LONGEST] if values else "True"
        if INVERSE.match(name) and not values:
            name, text = name[3:], "False"
        head.arguments[name] = SaidValue(text, word.line, name)


def _loose(head: CommandHead, word: ShellWord) -> None:
    """A word without a flag: an open one may hold more arguments; a variable that is never set holds none."""
    for one in head.open.inside(word.text):
        if one.is_undecided:
            head.undecided.append(one)


def _options(words: Sequence[ShellWord]) -> dict[str, ShellWord]:
    found: dict[str, ShellWord] = {}
    for at, word in enumerate(words):
        name, equals, value = word.text.lstrip("-").partition("=")
        if word.text.startswith("-") and name:
            after = words[at + 1] if at + 1 < len(words) else ShellWord("", word.line)
            found[name] = ShellWord(value, word.line) if equals else after
    return found


def _size(
    head: CommandHead,
    script: ShellScript,
    command: ShellCommand,
    launcher: Sequence[ShellWord],
    n_devices: int | None,
) -> None:
    """GPUs of a node and of the job."""
    known = {**script.directives, **_options(launcher)}
    per_node = next((known[name] for name in PER_NODE if name in known), None)
    nodes = next((known[name] for name in NODES if name in known), None)
    if n_devices is not None:
        head.arguments["world_size"] = SaidValue(str(n_devices), 0, "--gpus")
    elif per_node is not None and per_node.text.isdecimal() and (nodes is None or nodes.text.isdecimal()):
        n = int(per_node.text) * int(nodes.text if nodes else 1)
        head.arguments["world_size"] = SaidValue(str(n), per_node.line, "GPUs of a node x nodes")
    elif both := [word for word in (per_node, nodes) if word is not None and is_open(word.text)]:
        text = "".join(word.text for word in both)
        head.arguments["world_size"] = SaidValue(text, both[0].line, "GPUs of a node x nodes")
    else:
        name = next((name for name in VARIABLES if command.variables.get(name, "").isdecimal()), None)
        if name is not None:
            head.arguments["world_size"] = SaidValue(command.variables[name], command.line, name)
    if per_node is not None and per_node.text.isdecimal():
        head.facts["nproc_per_node"] = SaidValue(per_node.text, per_node.line, "GPUs of a node")


def _vocabulary(head: CommandHead) -> None:
    """Rows of the vocabulary that the tokenizer has, where no argument says it."""
    own, kind = head.arguments.get("vocab_size"), head.arguments.get("tokenizer_type")
    if own is not None and kind is not None and kind.text == "NullTokenizer" and own.text.isdecimal():
        head.arguments["vocab_size"] = own._replace(text=str(int(own.text) + 1))  # and the end of a document
    if head.arguments.keys() & {"vocab_size", "padded_vocab_size"}:
        return
    model = head.arguments.get("tokenizer_model")
    rows = TOKENIZERS.get(kind.text) if kind is not None else None
    said = kind
    if (
        rows is None
        and model is not None
        and not is_open(model.text)
        and (preset := model_of_name(model.text)) is not None
    ):
        from ..workload.catalog import workload

        rows, said = getattr(workload(preset), "vocab", None), model
    if rows is not None and said is not None:
        head.asked.add(said.name)
        head.arguments["vocab_size"] = SaidValue(str(rows), said.line, said.name)
