"""Decides what a file is (a launch script, a configuration of a trainer, a log), and reads the heads of the jobs that it states.

`prism-jax import` and every command that takes a job file go through `heads_of_file`. `CARRIERS` lists the kinds of configuration
files, told apart by keys that no other has, `PROGRAMS` the trainers that command lines start; the first that knows one reads it.
A carrier or a program gives a head: names and values with their lines, as a log would print them, and the trainer whose reader
makes a job of it. Of a script the last command line that trains counts; others are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import ConfigError, DataError
from ..core.readable import counted
from ..tables.streams import head as first_bytes
from .config_files import SUFFIXES, Carrier, ConfigFiles, NoHeadError, read_document, read_documents
from .gpt_neox import NEOX, NEOX_PROGRAM
from .head import Head, SaidValue, runs_of
from .hf_launch import HF_CARRIERS, HF_PROGRAMS
from .launch_line import LaunchLine, LaunchProgram, NoTrainingError
from .maxtext import MAXTEXT_CARRIER, MAXTEXT_PROGRAM
from .megatron_files import ANY_MEGATRON, MEGATRON_CARRIERS, NEMO_PROGRAM
from .megatron_programs import MEGATRON_PROGRAMS
from .nanotron import NANOTRON_CARRIER, NANOTRON_PROGRAM
from .read_heads import read_heads
from .shell import SUFFIXES as SCRIPT_SUFFIXES, follow
from .shell_script import ShellScript
from .torchtitan import TITAN_CARRIER, TITAN_PROGRAM
from .verl import VERL_CARRIERS, VERL_PROGRAMS

CARRIERS: tuple[Carrier, ...] = (
    *VERL_CARRIERS,
    *MEGATRON_CARRIERS,
    NANOTRON_CARRIER,
    TITAN_CARRIER,
    MAXTEXT_CARRIER,
    NEOX,
    *HF_CARRIERS,
    ANY_MEGATRON,
)
PROGRAMS: tuple[LaunchProgram, ...] = (
    MAXTEXT_PROGRAM,
    NEOX_PROGRAM,
    NANOTRON_PROGRAM,
    TITAN_PROGRAM,
    *VERL_PROGRAMS,
    NEMO_PROGRAM,
    *MEGATRON_PROGRAMS,
    *HF_PROGRAMS,
)
SLURM = {  # variables that Slurm sets -> the option that says them
    "SLURM_NNODES": "nodes",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_NTASKS_PER_NODE": "ntasks-per-node",
    "SLURM_GPUS_ON_NODE": "gpus-per-node",
    "SLURM_GPUS_PER_NODE": "gpus-per-node",
}
MOST_SHOWN = 3  # command lines in a message
OF_JOBS = "plan"  # section of a job file that no configuration of a trainer has


def is_script(path: Path) -> bool:
    """Whether a file is a script of a shell, by its name or its first line.

    Raises:
        DataError: the file cannot be read.
    """
    if path.suffix in SCRIPT_SUFFIXES:
        return True
    start = first_bytes(path, 64)
    return start.startswith(b"#!") and any(shell in start for shell in (b"bash", b"/sh", b"zsh"))


def states_job(path: Path) -> bool:
    """Whether a file may state a job in the words of a trainer: no job file, and none that cannot be read.

    Raises:
        DataError: the file cannot be read.
    """
    if path.suffix not in SUFFIXES:
        return True
    try:
        return not any(OF_JOBS in document.data for document in read_documents(path))
    except ConfigError:
        return False


def heads_of_file(
    path: Path,
    arguments: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    n_devices: int | None = None,
    root: Path | None = None,
) -> Sequence[Head]:
    """Reads the heads of the jobs that a file states, in order.

    Args:
        arguments: of a script: its positional arguments; of a configuration: further files, and KEY=VALUE texts.
        variables: that are set around it.
        n_devices: GPUs of the job; None: as the file says.
        root: folder below which files may be followed; None: that of the file.

    Raises:
        NoHeadError: it states none.
        DataError: it cannot be read, or an option has no meaning for it.
    """
    if is_script(path):
        return [head_of_script(path, arguments, variables, n_devices, root)]
    if path.suffix in SUFFIXES:
        return [head_of_config(_config_files(path, arguments, variables or {}, n_devices, root))]
    given = {"ARGUMENT": arguments, "--env": variables, "--gpus": n_devices}
    if (named := next((name for name, value in given.items() if value), "")) != "":
        what = f"scripts and configurations, and this is none (scripts end in {', '.join(SCRIPT_SUFFIXES)})"
        raise DataError(f"{path}: {named} is for {what}")
    heads = list(runs_of(read_heads(path)))
    if not heads:
        raise NoHeadError(
            f"{path}: neither a launch script nor a log with a head. Give a script of bash (run.sh), a configuration of a "
            f"trainer ({', '.join(SUFFIXES)}), or a training log (docs/launch.md)."
        )
    return heads


def _config_files(
    path: Path, arguments: Sequence[str], variables: Mapping[str, str], n_devices: int | None, root: Path | None
) -> ConfigFiles:
    """Sorts what was given behind a configuration into further files and KEY=VALUE texts.

    Raises:
        DataError: one is neither.
    """
    words: dict[str, str] = {}
    others: list[str] = []
    for one in arguments:
        name, equals, value = one.lstrip("-+").partition("=")
        if equals:
            words[name] = value
        elif Path(one).suffix in SUFFIXES:
            others.append(one)
        else:
            raise DataError(f"{one}: neither a file of the job ({', '.join(SUFFIXES)}) nor KEY=VALUE")
    first, *rest = read_documents(path)
    documents = (*rest, *(read_document(Path(one)) for one in others))
    return ConfigFiles(first, documents, words, n_devices, root, variables)


def head_of_config(files: ConfigFiles) -> Head:
    """Reads the job that configuration files state.

    Raises:
        NoHeadError: no carrier knows the document.
        ConfigError: a document cannot be read.
    """
    every = (files.main, *files.others)
    for carrier in CARRIERS:
        for one in every:
            if carrier.is_mine(one):
                rest = tuple(other for other in every if other is not one)
                return carrier.read(replace(files, main=one, others=rest))
    known = ", ".join(dict.fromkeys(carrier.name for carrier in CARRIERS))
    raise NoHeadError(f"{files.main.name}: no configuration of a trainer that is known here ({known})")


def head_of_script(
    path: Path,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    n_devices: int | None = None,
    root: Path | None = None,
) -> Head:
    """Reads the training that a launch script would start.

    Args:
        arguments: positional arguments of the script.
        environment: variables that are set around it.
        n_devices: GPUs of the job; None: as the script says.
        root: folder below which files may be followed; None: that of the script.

    Raises:
        DataError: the file cannot be read, or starts no training that is known here.
        ConfigError: a configuration that it names cannot be read.
    """
    script = follow(path, arguments, environment, SLURM, root)
    trained: list[tuple[LaunchLine, LaunchProgram]] = []
    for command in script.commands:
        line = LaunchLine(command, script, path, n_devices, root, environment or {})
        program = next((one for one in PROGRAMS if one.is_mine(line)), None)
        if program is not None:
            trained.append((line, program))
    others: list[NoTrainingError] = []
    for line, program in reversed(trained):
        try:
            head = program.read(line)
        except NoTrainingError as error:
            others.append(error)
            continue
        if (n_more := len(trained) - len(others) - 1) > 0:
            lines = counted(n_more, "more command line")
            head.notes.append(f"{lines} of the script would train, too; the last one was taken")
        head.notes += [
            f"line {word.line} starts {word.text}, which was followed: lines of its arguments are of that file"
            for word in script.started
        ]
        head.missing += [SaidValue(word.text, word.line, "source") for word in script.missing]
        if script.missing:
            head.notes.append(f"not followed{_missing(script)}; --root DIR names a folder above them")
        return head
    if others:
        raise others[0]
    names = "; ".join(one.name for one in PROGRAMS)
    raise DataError(
        f"{path}: no command line with arguments of Megatron-LM or of another trainer that is known here ({names}) was found"
        f"{_missing(script)}{_started(script)}. Name the script that starts the training, or import the log of its run."
    )


def _started(script: ShellScript) -> str:
    """The last command lines, for a message."""
    last = [f"`{script.open.shown(' '.join(word.text for word in one.words))[:60]}` (line {one.line})"
            for one in script.commands[-MOST_SHOWN:]]  # fmt: skip
    return f"; its last command lines are {', '.join(last)}" if last else ""


def _missing(script: ShellScript) -> str:
    sourced = ", ".join(f"{word.text} (line {word.line})" for word in script.missing)
    return f"; files that it sources are not in its folder: {sourced}" if sourced else ""
