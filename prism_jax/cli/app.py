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
    ("search", "search:search", "Search for the parallel plan that minimises the tail of the step time."),
    ("place", "place:place", "Place measured nodes so that the tail of the step time is smallest."),
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
    ("fit", "fit:fit_app", "Fit variability to measurements; `predict --fit` uses it."),
    ("validate", "validate:validate_app", "Compare predictions with measurements."),
)  # name, where it is, and its line in `prism-jax --help`
COMMANDS = registry(lambda: tuple(Command(name, f"{HERE}.{target}", text) for name, target, text in SHIPPED))

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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        say("interrupted", always=True)
        return INTERRUPTED
    except FailedFitError as error:
        if VERBOSITY.debug:
            traceback.print_exc()
        say(f"error: {error.for_command_line()}", always=True)
        return WRONG_INPUT
    except PrismError as error:
        if VERBOSITY.debug:
            traceback.print_exc()
        say(str(error) if isinstance(error, ConfigError) else f"error: {error}", always=True)
        return WRONG_INPUT
    except OSError as error:  # a full disk, too many open files
        if VERBOSITY.debug:
            traceback.print_exc()
        place = f"{error.filename}: " if error.filename else ""
        say(f"error: {place}{error.strerror or error}", always=True)
        return FAILED
    except Exception as error:
        if VERBOSITY.debug:
            traceback.print_exc()
            return FAILED
        text = " ".join(str(error).split())
        say(
            f"error: {type(error).__name__}: {text} (a bug in prism-jax or a fault of the machine; run with --debug for details)",
            always=True,
        )
        return FAILED


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
