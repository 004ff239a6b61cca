"""The command line: which commands there are, and what becomes of errors."""

from __future__ import annotations

import _thread
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from .. import __version__
from ..errors import ConfigError, FailedFitError, PrismError
from .exit_codes import FAILED, INTERRUPTED, OK, WRONG_INPUT
from .lazy_group import Command, lazy_group, registry
from .streams import prepare_streams
from .verbosity import VERBOSITY, say

HERE = "prism_jax.cli.commands"
SHIPPED = (
    ("predict", "predict:predict", "Predict the distribution of the step time of a job."),
    ("job", "job:job", "Predict when a training run is done: failures, checkpoints, slow phases, deadline."),
    (
        "cloud",
        "studies.cloud:cloud",
        "Choose which instances to rent, how many, and spot or not, for a deadline and a budget.",
    ),
    ("search", "search:search", "Search for the parallel plan that minimises the tail of the step time."),
    ("sweep", "studies.sweep:sweep", "Predict a grid of jobs and compare them."),
    ("scale", "studies.scale:scale", "Predict a job on several numbers of GPUs, and where more stops paying."),
    ("compare", "studies.compare:compare", "Compare jobs, and tell how probable it is that one beats another."),
    ("plan", "studies.plan:plan", "Plan capacity: what fleets make of a job in tokens, days and money."),
    (
        "capture",
        "capture:capture",
        "Capture a training step from its code (PyTorch, JAX, HLO, execution traces), without a GPU.",
    ),
    ("place", "place:place", "Place measured nodes so that the tail of the step time is smallest."),
    ("shard", "shard:shard", "Choose which embedding table goes where so that the step is shortest."),
    (
        "schedule",
        "schedule:schedule",
        "Simulate the queue of a cluster under several scheduling policies and duration estimates.",
    ),
    ("init", "init:init", "Write a commented job file to start from."),
    ("check", "check:check", "Validate a job and print what follows from it, without simulating anything."),
    (
        "calibrate",
        "calibrate:calibrate",
        "Calibrate the cost model with a few measured runs, and show how the error falls with their number.",
    ),
    (
        "show",
        "show:show",
        "List the shipped models, devices, clusters, schedules, frameworks, jobs and more.",
    ),
    ("trace", "trace.group:trace_app", "Analyse recorded jobs: summary, replay, prediction and what-if."),
    ("watch", "watch:watch", "Find slow phases in a step log: onset, size, rank, and whether to act or to wait."),
    ("fit", "fit:fit_app", "Fit variability to measurements; `predict --fit` uses it."),
    ("validate", "validate:validate_app", "Compare predictions with measurements."),
)  # name, where it is, and its line in `prism-jax --help`
COMMANDS = registry(lambda: tuple(Command(name, f"{HERE}.{target}", text) for name, target, text in SHIPPED))

OUT_OF_MEMORY = (
    "out of memory: this machine, or a limit set on the process, has too little for what was asked. Ask for fewer samples, a "
    "smaller job or table, or use a machine with more memory."
)
app = typer.Typer(
    name="prism-jax",
    cls=lazy_group(COMMANDS),
    help="Predict the distribution of the step time of a distributed training job.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"prism-jax {__version__}")
        raise typer.Exit(OK)


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Predict the distribution of the step time of a distributed training job."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `prism-jax` with `arguments` (those of the process by default) and returns its exit code."""
    VERBOSITY.reset()
    prepare_streams()
    sys.unraisablehook = _keep_interrupts
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        _discard_output()
        return FAILED
    except KeyboardInterrupt:
        say("interrupted", always=True)
        return INTERRUPTED
    except Exception as error:
        if VERBOSITY.debug:
            _say_lines(traceback.format_exc().rstrip("\n"))
        code = _failure(error)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk: what is left would be written again, and fail, when Python ends
            _discard_output()
        return code


def _discard_output() -> None:
    """Lets what was not written of stdout go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failure(error: Exception) -> int:
    """Says what went wrong, and returns the exit code: 2 where the input is to blame."""
    match error:
        case FailedFitError():
            say(f"error: {error.for_command_line()}", always=True)
            return WRONG_INPUT
        case ConfigError():  # one line for each mistake
            _say_lines(str(error))
            return WRONG_INPUT
        case PrismError():
            say(f"error: {error}", always=True)
            return WRONG_INPUT
        case OSError():  # a full disk, too many open files
            place = f"{error.filename}: " if error.filename else ""
            say(f"error: {place}{error.strerror or error}", always=True)
        case _ if _is_out_of_memory(error):
            say(f"error: {OUT_OF_MEMORY}", always=True)
        case _ if not VERBOSITY.debug:
            text = " ".join(str(error).split())
            remark = "a bug in prism-jax or a fault of the machine; run with --debug for details"
            say(f"error: {type(error).__name__}: {text} ({remark})", always=True)
    return FAILED


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy or the compiled program (XLA) got no memory."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def _say_lines(text: str) -> None:
    for line in text.split("\n"):
        say(line, always=True)


def _keep_interrupts(ignored: sys.UnraisableHookArgs) -> None:
    """Python drops a Ctrl-C that arrives in a callback of the garbage collector (JAX has one): send it again."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Timer(0.05, _thread.interrupt_main).start()  # not from here, where it would be dropped again
    else:
        sys.__unraisablehook__(ignored)


def _run(arguments: Sequence[str] | None) -> int:
    """Exit code of the parser, which ends every command by SystemExit."""
    try:
        app(None if arguments is None else list(arguments), prog_name="prism-jax")
    except SystemExit as end:
        if end.code == INTERRUPTED:  # the parser has caught Ctrl-C
            raise KeyboardInterrupt from None
        return end.code if isinstance(end.code, int) else OK if end.code is None else FAILED
    return OK
