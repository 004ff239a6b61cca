"""Decides what a file is (a launch script, a configuration of a trainer, a log), and reads the heads of the jobs that it states.

`prism-jax import` and every command that takes a job file go through `heads_of_file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import ConfigError, DataError
from ..tables.streams import head
from .carriers import head_of_config
from .config_files import SUFFIXES, ConfigFiles, NoHeadError, read_document, read_documents
from .head import Head, runs_of
from .programs import head_of_script
from .read_heads import read_heads

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".srun", ".pbs")
OF_JOBS = ("plan", "cluster")  # sections of a job file that no configuration of a trainer has beside each other


def is_script(path: Path) -> bool:
    """Whether a file is a script of a shell, by its name or its first line.

    Raises:
        DataError: the file cannot be read.
    """
    if path.suffix in SCRIPTS:
        return True
    start = head(path, 64)
    return start.startswith(b"#!") and any(shell in start for shell in (b"bash", b"/sh", b"zsh"))


def states_job(path: Path) -> bool:
    """Whether a file may state a job in the words of a trainer: no job file, and none that cannot be read.

    Raises:
        DataError: the file cannot be read.
    """
    if path.suffix not in SUFFIXES:
        return True
    try:
        return not any(section in document.data for document in read_documents(path) for section in OF_JOBS[:1])
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
    _refuse_options(
        path, {"ARGUMENT": arguments, "--env": variables, "--gpus": n_devices}, "scripts and configurations"
    )
    heads = list(runs_of(read_heads(path)))
    if not heads:
        raise NoHeadError(
            f"{path}: neither a launch script nor a log with a head. Give a script of bash (run.sh), a configuration of a "
            f"trainer ({', '.join(SUFFIXES)}), or a training log (docs/launch.md)."
        )
    return heads


def _refuse_options(path: Path, given: dict[str, object], what: str) -> None:
    """Refuses what has no meaning for a file.

    Raises:
        DataError: something was given.
    """
    named = [name for name, value in given.items() if value]
    if named:
        raise DataError(f"{path}: {named[0]} is for {what}, and this is none (scripts end in {', '.join(SCRIPTS)})")


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
