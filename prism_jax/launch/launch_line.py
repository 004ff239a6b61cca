"""A command line that a launch script would start, in parts: launcher, program, arguments; and the GPUs that it would take.

`LaunchProgram` says which command lines are of a trainer and how its head is read; `launch_files.PROGRAMS` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ..core.errors import DataError
from ..tables.document import Document
from .config_files import ConfigFiles, documents_of, follow_from
from .head import LONGEST_VALUE, Head, SaidValue, plain_number, product_text
from .shell_script import ShellCommand, ShellScript
from .shell_values import LAST_MARK, ShellWord, is_open

PER_NODE = (
    "nproc_per_node",
    "num_gpus",
    "gpus_per_node",
    "n_gpus_per_node",
)  # then gres, then ntasks_per_node of Slurm
NODES = ("nnodes", "num_nodes", "nodes", "N")
TOTAL = ("num_processes", "np", "ntasks")
VARIABLES = ("WORLD_SIZE", "GPU_NUM", "NUM_GPUS", "NGPUS", "N_GPUS")
PER_NODE_VARIABLES = ("NPROC_PER_NODE", "GPUS_PER_NODE", "N_GPUS_PER_NODE")
NODE_VARIABLES = ("NNODES", "NUM_NODES")


class NoTrainingError(DataError):
    """A command line of a trainer that trains nothing which a job can be made of."""


class LaunchParts(NamedTuple):
    """Parts of a command line.

    Attributes:
        launcher: words in front of the program.
        program: its name, with the folder it is in; empty: none was found.
        arguments: words behind it.
    """

    launcher: Sequence[ShellWord]
    program: str
    arguments: Sequence[ShellWord]


@dataclass(frozen=True)
class LaunchLine:
    """A command line of a script and what is known around it.

    Attributes:
        command: its words, its line and the variables at that point.
        script: that was followed.
        path: of the script.
        n_devices: GPUs of the job; None: as the script says.
        root: folder below which files may be followed; None: that of the script.
        environment: variables that are set around the script.
    """

    command: ShellCommand
    script: ShellScript
    path: Path
    n_devices: int | None = None
    root: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """Words with a space between them; open values are marks."""
        return " ".join(word.text for word in self.command.words)

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of its flags, with `_` for `-`."""
        return frozenset(flag_name(word.text) for word in self.command.words if is_flag(word.text))

    @cached_property
    def parts(self) -> LaunchParts:
        """Launcher, program (a file of Python, or a module behind `-m`) and arguments."""
        words = self.command.words
        for at, word in enumerate(words):
            if word.text.endswith(".py") or (at and words[at - 1].text == "-m" and not word.text.startswith("torch.")):
                return LaunchParts(words[:at], "/".join(word.text.split("/")[-2:]), words[at + 1 :])
        first = next((at for at, word in enumerate(words) if at and is_flag(word.text)), len(words))
        return LaunchParts(words[:first], "", words[first:])

    @cached_property
    def flags(self) -> dict[str, SaidValue]:
        """Values of `--name value` behind the program, by name with `_` for `-`: the last counts; several values are one text, no
        value is True.
        """
        return flags_of(self.parts.arguments, self.script)

    @cached_property
    def pairs(self) -> dict[str, SaidValue]:
        """Values of `key=value`, `+key=value` and `++key=value` behind the program, as Hydra takes them: the last counts."""
        found: dict[str, SaidValue] = {}
        for word in self.parts.arguments:
            name, equals, value = word.text.lstrip("+~").partition("=")
            if equals and not word.text.startswith("-") and not is_open(name):
                found[name] = SaidValue(value.strip("'\"")[:LONGEST_VALUE], word.line, name)
        return found

    @property
    def launcher(self) -> dict[str, SaidValue]:
        """Options of what stands in front of the program (torchrun, srun, deepspeed, accelerate), by name with `_` for `-`, those
        of `#SBATCH` lines included.
        """
        words = {**self.script.directives, **_options(self.parts.launcher)}
        return {name.replace("-", "_"): SaidValue(word.text, word.line, name) for name, word in words.items()}

    def head(self, trainer: str = "") -> Head:
        """A head of the run with its GPUs (`world_size`, `nproc_per_node`) and nothing else."""
        line = self.command.line
        head = Head(trainer=trainer, first_line=line, last_line=line, source="script", open=self.script.open)
        head.facts["program"] = SaidValue(self.parts.program, line, "program")
        self._size(head)
        return head

    def no_training(self, why: str) -> NoTrainingError:
        """The error that says why the command line starts no training that can be read."""
        return NoTrainingError(f"{self.path}: line {self.command.line}: {why}")

    def shown(self, text: str) -> str:
        """Returns the begin of a text, with names in the place of what is open."""
        return self.script.open.shown(text)[:80]

    def values_of(self, document: Document) -> dict[str, SaidValue]:
        """Scalars of a configuration by dotted name, references filled in with the environment of the script."""
        return ConfigFiles(document, environment=self.environment, open=self.script.open).said()

    def follow(self, name: str) -> Document | None:
        """Reads a configuration that the command line names, from the folder of the script or below `root`; None where there is
        none.

        Raises:
            ConfigError: it is there and cannot be read.
        """
        written = self.script.files.get(self.script.open.shown(name))
        if written is not None:
            return next(iter(documents_of(written, Path(name).name if not is_open(name) else "here.json")), None)
        known = name if not is_open(name) else name.rpartition(LAST_MARK)[2].lstrip("/")
        return follow_from(self.path, known, self.root) if known else None

    def _size(self, head: Head) -> None:
        known, line = self.launcher, self.command.line
        variables = {
            name: SaidValue(text, line, name)
            for name, text in self.command.variables.items()
            if text.isdecimal() or (is_open(text) and name in (*PER_NODE_VARIABLES, *NODE_VARIABLES))
        }
        per_node, nodes = _per_node(known), _first(known, NODES)
        total = _first(known, TOTAL)
        own = _options(self.parts.launcher).get("num_processes")  # of accelerate: of all nodes
        is_known = per_node is not None or (nodes is not None and is_open(nodes.text))
        if self.n_devices is not None:
            head.arguments["world_size"] = SaidValue(str(self.n_devices), 0, "--gpus")
        elif own is not None:
            head.arguments["world_size"] = SaidValue(own.text, own.line, "processes")
        elif is_known and (text := product_text(per_node, nodes)):
            head.arguments["world_size"] = SaidValue(
                text, per_node.line if per_node else line, "GPUs of a node x nodes"
            )
        elif total is not None and per_node is None:
            head.arguments["world_size"] = total._replace(name="processes")
        elif (said := _first(variables, VARIABLES)) is not None:
            head.arguments["world_size"] = said
        elif (each := _first(variables, PER_NODE_VARIABLES)) is not None:
            text = product_text(each, _first(variables, NODE_VARIABLES))
            head.arguments["world_size"] = SaidValue(text, line, each.name)
        if per_node is not None and plain_number(per_node) is not None:
            head.facts["nproc_per_node"] = SaidValue(per_node.text, per_node.line, "GPUs of a node")


@dataclass(frozen=True)
class LaunchProgram:
    """A trainer that command lines start.

    Attributes:
        name: for messages.
        is_mine: whether a command line is of it; `runs` makes one of a pattern.
        read: head of the job.
    """

    name: str
    is_mine: Callable[[LaunchLine], bool]
    read: Callable[[LaunchLine], Head]


def runs(pattern: str) -> Callable[[LaunchLine], bool]:
    """Makes a test whether the words of a command line, with a space between them, hold a pattern."""
    compiled = re.compile(pattern)
    return lambda line: compiled.search(line.text) is not None


def flag_name(word: str) -> str:
    """Name of a flag, with `_` for `-`."""
    return word.lstrip("-").partition("=")[0].replace("-", "_")


def is_flag(text: str) -> bool:
    """Whether a word is `--name` or `--name=value`."""
    return text.startswith("--") and len(text) > 2 and text[2].isalpha()


def included_gpus(text: str) -> int:
    """Number of the GPUs that `--include host:0,1@host:2` of DeepSpeed names; 0 where a host stands for all that it has."""
    parts = [part.partition(":")[2] for part in text.split("@")]
    return sum(len(part.split(",")) for part in parts) if all(parts) else 0


NO_VALUE = re.compile(
    r"(?:no|use|disable|enable|overlap|add|apply|accumulate|untie|moe_use|log|skip|finetune|eod|reset|calculate|exit_on|manual|async)_"
    r"|(?:bf16|fp16|swiglu|sequence_parallel|group_query_attention|qk_layernorm|multi_latent_attention|moe_grouped_gemm"
    r"|recompute_activations|checkpoint_activations|tp_comm_overlap|finetune|masked_softmax_fusion|cpu_offloading)$"
)


def flags_of(
    words: Sequence[ShellWord], script: ShellScript, undecided: list[ShellWord] | None = None
) -> dict[str, SaidValue]:
    """Values of `--name value` by name, as argparse has them.

    Args:
        undecided: takes words without a flag that are open, and may hold more arguments.
    """
    words = [word for word in words if word.text]  # "$@" without arguments is none
    found: dict[str, SaidValue] = {}
    at = 0
    while at < len(words):
        word, at = words[at], at + 1
        if not is_flag(word.text):
            if undecided is not None and is_open(word.text):
                undecided.append(word)
            continue
        name, equals, value = word.text[2:].partition("=")
        name = name.replace("-", "_")
        values = [value] if equals else []
        while not equals and at < len(words) and not is_flag(words[at].text):
            is_undecided = any(one.is_undecided for one in script.open.inside(words[at].text))
            if (NO_VALUE.match(name) or values) and (is_undecided or is_open(words[at].text)):
                break
            values.append(words[at].text)
            at += 1
        text = " ".join(values)[:LONGEST_VALUE] if values else "True"
        found[name] = SaidValue(text, _line_of(name, values, word.line, script), name)
    return found


def _line_of(name: str, values: Sequence[str], line: int, script: ShellScript) -> int:
    """Line on which a flag stands: that of its word may be of the string that was expanded, or of `eval`."""
    known = script.flag_lines.get(name, [])
    if any(one.line == line for one in known) or not known:
        return line
    same = [one for one in known if all(value in one.text for value in values)]
    return (same or known)[-1].line


def _per_node(known: Mapping[str, SaidValue]) -> SaidValue | None:
    """GPUs of a node, by the launcher, else by Slurm."""
    found, asked = _first(known, PER_NODE), known.get("gres")
    if found is None and asked is not None and asked.text.startswith("gpu"):
        found = asked
    found = found or known.get("ntasks_per_node")
    if found is not None and not is_open(found.text):  # gpu:8, h100:8
        found = found._replace(text=found.text.rpartition(":")[2])
    return found


def _first(known: Mapping[str, SaidValue], names: Sequence[str]) -> SaidValue | None:
    return next((known[name] for name in names if name in known), None)


def _options(words: Sequence[ShellWord]) -> dict[str, ShellWord]:
    found: dict[str, ShellWord] = {}
    for at, word in enumerate(words):
        name, equals, value = word.text.lstrip("-").partition("=")
        if word.text.startswith("-") and name:
            after = words[at + 1] if at + 1 < len(words) else ShellWord("", word.line)
            found[name] = ShellWord(value, word.line) if equals else after
    return found
