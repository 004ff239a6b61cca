"""Help pages: they fit the terminal, their examples run, and their sentences say what an option does."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from benchmarks.golden.inputs import write_inputs
from prism_jax.fits.models import MODELS
from prism_jax.shell.app import main
from prism_jax.shell.catalogue import COMMANDS, GROUPS
from prism_jax.shell.command import parts_of_command

SHIPPED = [  # not the models that tests of experiments add
    one
    for one in COMMANDS
    if one.name.split()[0] != "fit"
    or one.name == "fit report"
    or MODELS[one.name.split()[1]].place.startswith("inference.")
]
NAMES = ["", *GROUPS, *(command.name for command in SHIPPED)]
NO_BEGINNING = re.compile(
    r"(That|What|Those|Of|The same|The|With|Which|Whether|Where|How|For|Instead|To|After|From|If|When|Each|Told)\b"
)


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """Commands run as users run them."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    for name in ("before.csv", "after.csv"):
        shutil.copy(folder / "phases.csv", folder / name)
    (folder / "layouts.csv").write_text("job,fits,plan.micro_batch\njob.yaml,true,1\njob.yaml,true,2\n")
    return folder


def page(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*name.split(), "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_as_wide_as_the_terminal_and_has_an_example(name, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = page(name, capsys)
    assert max(map(len, text.splitlines())) <= columns
    assert re.search(rf"Example:\n(  prism-jax fit .*\n)?  prism-jax {name}", text)
    assert "<bool>" not in text
    assert "│" not in re.sub(r"^│.*│$", "", text, flags=re.MULTILINE)


ENDING = [command for command in SHIPPED if command.name != "serve"]  # which serves until Ctrl-C


@pytest.mark.parametrize("command", ENDING, ids=lambda command: command.name)
def test_the_example_runs(command, inputs, tmp_path, monkeypatch, capsys):
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    if command.name == "report":
        assert main(["check", "job.yaml", "--json"]) == 0
        (tmp_path / "saved.json").write_text(capsys.readouterr().out)
    if command.name == "init":
        (tmp_path / "job.yaml").unlink()
    *before, last = command.example.splitlines()
    assert last.startswith(f"prism-jax {command.name}")
    for line in (*before, last):
        name, *words = shlex.split(line)
        assert name == "prism-jax"
        code, told = main(words), capsys.readouterr()
        assert code in (0, 1), told.err
        assert "a bug" not in told.err
        assert told.out + told.err


@pytest.mark.parametrize("command", SHIPPED, ids=lambda command: command.name)
def test_help_of_an_option_is_a_sentence_that_says_what_it_does(command):
    for part in parts_of_command(command.load(), command.fixed):
        assert part.help, part.name
        assert not NO_BEGINNING.match(part.help), part.help
        assert part.help.rstrip(")]").endswith("."), part.help


@pytest.mark.parametrize(("typed", "meant"), [("predcit", "predict"), ("quue", "queue"), ("trace prdict", "predict")])
def test_a_misspelt_command_is_told_which_is_meant(typed, meant, capsys):
    assert main(typed.split()) == 2
    assert f'Did you mean "{meant}"?' in capsys.readouterr().err


@pytest.mark.parametrize("words", [["job.yaml"], ["-o", "job.yaml"], ["--output", "job.yaml"], ["--out=job.yaml"]])
def test_a_file_to_write_has_one_name_and_an_earlier_one(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", *words, "--quiet"]) == 0
    assert (tmp_path / "job.yaml").exists()
    assert "--out " not in page("init", capsys) + page("fit steps", capsys) + page("calibrate", capsys)
