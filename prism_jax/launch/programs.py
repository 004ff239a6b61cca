"""Trainers that command lines of scripts start: `PROGRAMS` lists them, and the first that knows a command line reads it.

Of a script the last command line that trains counts; others are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import DataError
from .gpt_neox import NEOX_PROGRAM
from .head import Head, SaidValue
from .hf_lines import HF_PROGRAMS
from .launch_line import LaunchLine, LaunchProgram, NoTrainingError
from .maxtext import MAXTEXT_PROGRAM
from .megatron_programs import MEGATRON_PROGRAMS
from .nanotron import NANOTRON_PROGRAM
from .open_head import OpenHead
from .shell import ShellScript, follow
from .titan_config import TITAN_PROGRAM
from .verl import VERL_PROGRAMS

PROGRAMS: tuple[LaunchProgram, ...] = (
    MAXTEXT_PROGRAM,
    NEOX_PROGRAM,
    NANOTRON_PROGRAM,
    TITAN_PROGRAM,
    *VERL_PROGRAMS,
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
        if len(trained) - len(others) > 1:
            head.notes.append(
                f"{len(trained) - len(others) - 1} more command lines of the script start a training; the last one was taken"
            )
        if isinstance(head, OpenHead):
            head.missing += [SaidValue(word.text, word.line, "source") for word in script.missing]
        if script.missing:
            head.notes.append(f"not followed{_missing(script)}; --root DIR names a folder above them")
        return head
    if others:
        raise others[0]
    names = "; ".join(one.name for one in PROGRAMS)
    raise DataError(
        f"{path}: no command line with arguments of Megatron-LM or of another trainer that is known here ({names}) was found"
        f"{_missing(script)}. Name the script that starts the training, or import the log of its run."
    )


def _missing(script: ShellScript) -> str:
    sourced = ", ".join(f"{word.text} (line {word.line})" for word in script.missing)
    return f"; files that it sources are not in its folder: {sourced}" if sourced else ""
