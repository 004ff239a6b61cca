"""The command line: which commands there are, and what becomes of errors."""

from __future__ import annotations

import _thread
import atexit
import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from cyclopts import App, CycloptsError, Group

from .._version import __version__
from ..core.errors import ConfigError, DataError, FailedFitError, PrismError, printable
from ..core.processes import OPTIONS, Terminated, end_if_failed
from .catalogue import COMMANDS, GROUPS, called, completed
from .command import OWN, below_options, example_of, group_of, runner_of
from .output import help_console, print_lines
from .streams import FAILED, INTERRUPTED, OK, TERMINATED, VERBOSITY, WRONG_INPUT, prepare_streams, say

PLAIN = (
    (re.compile(r"invalid literal for int\(\) with base \d+: '(.*)'"), r'"\1" is not a whole number.'),
    (re.compile(r'unable to convert "(.*)" into float\.'), r'"\1" is not a number.'),
    (re.compile(r'Command "(.*)" parameter (\S+) requires an argument\.'), r"\1: \2 is missing or has no value."),
    (re.compile(r"Unused Tokens: \[(.*)\]\."), r"Unexpected arguments: \1."),
)  # words of Python and of the parser -> ours
OUT_OF_MEMORY = (
    "out of memory: this machine, or a limit set on the process, has too little for what was asked. Ask for fewer samples, a "
    "smaller job or table, or use a machine with more memory."
)
NO_MEMORY = ("RESOURCE_EXHAUSTED", "can't start new thread", "failed to map segment", "annot allocate memory")
LIBRARIES = ("JAX_", "MPLBACKEND")
HARMLESS = ("JAX_LOGGING_LEVEL", "JAX_LOG_COMPILES", "JAX_TRACEBACK_FILTERING")

COMPLETION = {
    "--install-completion": "Install completion for the current shell.",
    "--show-completion": "Show completion for the current shell, to copy it or customize the installation.",
}


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
    except (KeyboardInterrupt, Terminated) as stop:
        code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        if code == INTERRUPTED:
            say("interrupted", always=True)
        end_if_failed(code)
        if arguments is None:
            _end_at_once(code)
        return code
    except Exception as error:
        if VERBOSITY.debug:
            _say_lines(traceback.format_exc().rstrip("\n"))
        code = _failure(error, sys.argv[1:] if arguments is None else arguments)
        end_if_failed(code)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk: what is left would be written again, and fail, when Python ends
            _discard_output()
        return code


def _end_at_once(code: int) -> NoReturn:
    """Ends the process without taking JAX apart, which takes longer than people wait after Ctrl-C."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code)


def _discard_output() -> None:
    """Lets what was not written of stdout go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _as_typed(text: str, typed: Sequence[str]) -> str:
    """A message without the absolute path of the working folder, where nobody typed that."""
    try:
        folder = f"{os.getcwd()}{os.sep}"
    except OSError:  # it was removed
        return text
    return text if folder == os.sep or any(folder in one for one in typed) else text.replace(folder, "")


def _failure(error: Exception, typed: Sequence[str]) -> int:
    """Says what went wrong, and returns the exit code: 2 where the input is to blame."""
    match error:
        case FailedFitError():
            say(f"error: {error.for_command_line()}", always=True)
            return WRONG_INPUT
        case ConfigError():  # one line for each mistake
            _say_lines(_as_typed(str(error), typed))
            return WRONG_INPUT
        case PrismError():
            say(f"error: {_as_typed(str(error), typed)}", always=True)
            return WRONG_INPUT
        case _ if _is_out_of_memory(error):
            say(f"error: {OUT_OF_MEMORY}", always=True)
        case OSError():  # a full disk, too many open files
            place = f"{error.filename}: " if error.filename else ""
            say(f"error: {place}{error.strerror or error}", always=True)
        case _ if settings := _settings_of_libraries(error):
            text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
            remedy = "which prism-jax was not made for. Unset it, or run with --debug for details."
            say(f"error: {text}. The environment sets {settings}, {remedy}", always=True)
            return WRONG_INPUT
        case _ if not VERBOSITY.debug:
            text = " ".join(str(error).split())
            remark = "a bug in prism-jax or a fault of the machine; run with --debug for details"
            say(f"error: {type(error).__name__}: {text} ({remark})", always=True)
    return FAILED


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy, a library that is loaded, a thread or the compiled program (XLA) got no memory."""
    return isinstance(error, MemoryError | BlockingIOError) or any(words in str(error) for words in NO_MEMORY)


def _settings_of_libraries(error: Exception) -> str:
    """Settings of the environment for JAX beyond its cache and the processor, and for matplotlib where the error names it."""
    own = {name: value for name, value in os.environ.items() if name.startswith("JAX_") or f"{value!r}" in str(error)}
    odd = [name for name, value in own.items() if value not in ("", "cpu", "cuda,cpu")]
    return ", ".join(
        f"{name}={own[name]}" for name in odd if name.startswith(LIBRARIES) and name not in (*OPTIONS, *HARMLESS)
    )


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
    """Exit code of the command, or of the parser where that has something against the words."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    VERBOSITY.words = tuple(words)
    if words[:1] in ([option] for option in COMPLETION):
        return _complete(words[0])
    if not words or (words[0] in GROUPS and len(words) == 1):
        command_line(words).help_print(words)
        return WRONG_INPUT
    words = completed(words)
    try:
        return command_line(words)(words, exit_on_error=False, print_error=False, result_action="return_value") or OK
    except CycloptsError as error:
        say(f"Error: {_plainly(error)}", always=True)
        say(f"Usage: `{' '.join(['prism-jax', *_command_of(words)])} --help` lists what can be given.", always=True)
        return WRONG_INPUT


def _plainly(error: CycloptsError) -> str:
    text = str(error)
    for pattern, plain in PLAIN:
        text = pattern.sub(plain, text)
    return text


def parsed(words: Sequence[str]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Reads the words of a command without running it.

    Args:
        words: in present names (`completed`).

    Returns:
        The function that the command line would call, and its parameters by name, as they were typed.

    Raises:
        DataError: the words do not fit a command.
    """
    try:
        function, found, _ = command_line([*words]).parse_args([*words], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise DataError(printable(_plainly(error))) from None
    return function, {**found.arguments}


def _complete(option: str) -> int:
    """Prints the completion script of the shell that called, or installs it."""
    parser = command_line([], complete=True)
    if option == "--show-completion":
        sys.stdout.write(parser.generate_completion())
    else:
        print_lines([f"completion installed in {parser.install_completion()}: start a new shell"])
    return OK


def command_line(words: list[str], *, complete: bool = False) -> App:
    """The parser: of the command that `words` name with its options; of all commands by name and one line where they name none.

    Args:
        words: what was typed; what stands below the options of a help page is made only where they ask for help.
        complete: all commands with their options.
    """
    top = App(
        name="prism-jax",
        help="Predict the distribution of the step time of a distributed training job.",
        version=f"prism-jax {__version__}",
        version_flags=["--version"],
        help_flags=["-h", "--help"],
        group_commands=group_of(OWN),
        help_format="plaintext",
        help_epilogue=f"{example_of(COMMANDS.named('predict'))}\n\n`prism-jax COMMAND --help` explains a command.",
        console=help_console(),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for option, text in COMPLETION.items():
        top.command(_not_called, name=option, help=text)
    groups: dict[str, App] = {}
    headings: dict[str, Group] = {}
    wanted, asks = called(words), not {"-h", "--help"}.isdisjoint(words)
    for place, command in enumerate(COMMANDS if wanted is None else (wanted,)):  # the others are not needed then
        *above, name = command.name.split(" ")
        parent, heading = top, headings.setdefault(command.group, Group(command.group, sort_key=place - len(COMMANDS)))
        for group in above:
            if group not in groups:
                own = Group("Commands")
                groups[group] = App(name=group, help=GROUPS.get(group, ""), version_flags=[], group_commands=own)
                groups[group].help_epilogue = example_of(command)
                groups[group].sort_key, groups[group].group = place, heading
                top.command(groups[group])
            parent, heading = groups[group], None
        function = command.load() if complete or command is wanted else None
        run = runner_of(function, command.fixed) if function else _not_called
        below = below_options(command) if asks and function else ""
        parent.command(run, name=name, help=command.help, help_epilogue=below, sort_key=place, group=heading)
    return top


def _not_called() -> None:
    """Stands for a command that the words do not name."""


def _command_of(words: list[str]) -> list[str]:
    """Words of the command or group that is called."""
    found = called(words)
    return found.name.split(" ") if found else words[:1] if words[:1] and words[0] in GROUPS else []
