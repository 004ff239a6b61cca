"""Shell completion: the script that a shell reads, where it is installed, and what it answers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("jax", "numpyro", "pandas", "matplotlib")


def in_shell(shell: str, option: str, home: Path) -> str:
    """What `prism-jax OPTION` prints, called from `shell` as a user calls it."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    command = (
        f'"{sys.executable}" -m prism_jax {option}; exit $?'  # a second command: the shell must not replace itself
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(home), "ZDOTDIR": str(home)}
    done = subprocess.run([shell, "-c", command], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(("shell", "word"), [("bash", "complete "), ("zsh", "compdef ")])
def test_the_script_of_the_shell_is_printed(shell, word, tmp_path):
    script = in_shell(shell, "--show-completion", tmp_path)
    assert word in script
    assert "_PRISM_JAX_COMPLETE" in script


@pytest.mark.parametrize(("shell", "profile"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_completion_is_installed_for_the_shell_of_the_user(shell, profile, tmp_path):
    assert f"{shell} completion installed" in in_shell(shell, "--install-completion", tmp_path)
    assert (tmp_path / profile).exists()
    assert any("_PRISM_JAX_COMPLETE" in file.read_text() for file in tmp_path.rglob("*prism-jax*") if file.is_file())


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [
        ("prism-jax se", 1, {"search"}),
        ("prism-jax trace pr", 2, {"predict"}),
        ("prism-jax predict --sam", 2, {"--samples"}),
    ],
)
def test_commands_and_options_are_completed_without_jax(words, position, expected):
    code = (
        "import atexit, sys; from prism_jax.cli.app import main; "
        "atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main([])"
    )
    asked = {"_PRISM_JAX_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | asked
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert expected <= set(done.stdout.split())
    assert not set(HEAVY) & set(done.stderr.split())
