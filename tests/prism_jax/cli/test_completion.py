"""Shell completion: the script that a shell reads, where it is installed, and what it answers."""

import os
import re
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
    assert {"search", "what-if", "--samples"} <= set(re.findall(r"[-\w]+", script))


@pytest.mark.parametrize(("shell", "profile"), [("bash", ".bashrc"), ("zsh", ".zshrc")])
def test_completion_is_installed_for_the_shell_of_the_user(shell, profile, tmp_path):
    assert "completion installed" in in_shell(shell, "--install-completion", tmp_path)
    assert (tmp_path / profile).exists()
    assert any("--samples" in file.read_text() for file in tmp_path.rglob("*prism*jax*") if file.is_file())


def test_bash_completes_commands_and_options(tmp_path):
    (tmp_path / "script").write_text(in_shell("bash", "--show-completion", tmp_path))
    for words, expected in (
        ("prism-jax se", "search"),
        ("prism-jax trace pr", "predict"),
        ("prism-jax predict --sam", "--samples"),
    ):
        code = (
            f"source {tmp_path}/script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _prism_jax; "
            'printf "%s\\n" "${COMPREPLY[@]}"'
        )
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert expected in done.stdout.split()


def test_completion_needs_no_jax():
    code = "import sys; from prism_jax.shell.app import main; main(['--show-completion']); print(*sys.modules, file=sys.stderr)"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SHELL": "/bin/bash"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stderr.split())
