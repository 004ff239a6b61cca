"""A command of one's own: one file, no change of the package."""

from typing import Annotated

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.core.use_case import Option
from prism_jax.prediction.check import check_job
from prism_jax.shell.app import main
from prism_jax.shell.catalogue import COMMANDS, Command

JOB = "llama3_405b_16384"


def batch(job: str, half: Annotated[bool, Option(help="Of half the batch.")] = False) -> None:
    """Tokens of a step."""
    print(check_job(job).tokens_per_step // (2 if half else 1))


@pytest.fixture
def known():
    with COMMANDS.with_item(Command("batch", batch, "Print the tokens of a step.")):
        yield


@pytest.mark.usefixtures("known")
def test_help_lists_the_command(capsys):
    assert main(["--help"]) == 0
    assert "Print the tokens of a step." in capsys.readouterr().out
    assert main(["batch", "--help"]) == 0
    assert "Of half the batch." in capsys.readouterr().out


@pytest.mark.usefixtures("known")
def test_the_command_runs_with_its_options_and_those_of_all_commands(capsys):
    assert main(["batch", JOB]) == 0
    whole = int(capsys.readouterr().out)
    assert main(["batch", JOB, "--half", "--quiet"]) == 0
    assert int(capsys.readouterr().out) == whole // 2
    assert main(["batch", "absent.yaml"]) == 2
    assert "absent.yaml" in capsys.readouterr().err


def test_a_command_may_be_named_and_imported_only_when_it_is_called(capsys):
    with COMMANDS.with_item(Command("late", f"{__name__}:batch", "Imported late.")):
        assert main(["--help"]) == 0
        assert "Imported late." in capsys.readouterr().out


def test_commands_are_gone_after_the_block_and_names_are_taken_once(capsys):
    assert main(["batch", JOB]) == 2
    assert "batch" in capsys.readouterr().err
    with pytest.raises(SpecError, match="'predict' is there already"):
        COMMANDS.add(Command("predict", batch, "Another one."))
