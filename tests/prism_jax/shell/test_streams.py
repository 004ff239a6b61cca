"""Streams of the command line, and completion in shells."""

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prism_jax.core.readable import bar
from prism_jax.shell.app import main
from prism_jax.shell.catalogue import COMMANDS, Command

ROOT = Path(__file__).resolve().parents[3]
JOB = """\
name: "Lama — ± 🦙"
model: llama-2-7b
cluster: dgx-h100
plan: {micro_batch: 1, global_batch: 64, seq_len: 4096, tp: 2, pp: 4, dp: 8}
variability: none
"""
RUN = f"{sys.executable} -m prism_jax"
posix = pytest.mark.skipif(os.name != "posix", reason="streams are closed by a POSIX shell")


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB, encoding="utf-8")
    return file


@pytest.fixture
def failing_collector(monkeypatch):
    """A command `fail` during which a callback of the garbage collector is interrupted."""

    def fail() -> None:
        gc.callbacks.append(interrupted)  # not before: a collection may start at any time
        gc.collect()
        time.sleep(1.0)

    def interrupted(phase: str, _: object) -> None:
        if phase == "start":
            gc.callbacks.remove(interrupted)
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # put back afterwards
    with COMMANDS.with_item(Command("fail", fail, "Fail.")):
        yield
    if interrupted in gc.callbacks:
        gc.callbacks.remove(interrupted)


def shell(command: str, job: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`command` in the folder of the job."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        command, shell=True, cwd=job.parent, env=env, capture_output=True, text=True, encoding="utf-8", errors="replace"
    )


@posix
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_are_no_error(closed, job):
    done = shell(f"{RUN} check job.yaml {closed}", job)
    assert (done.returncode, done.stderr) == (0, "")


@posix
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("option", ["", "--json"])
def test_full_disk_is_one_line_and_exit_1(option, job):
    done = shell(f"{RUN} check job.yaml {option} > /dev/full", job)
    assert done.returncode == 1
    assert done.stderr == "error: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_text_is_spelt_in_what_the_locale_has(encoding, job):
    done = shell(f"{RUN} check job.yaml", job, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.startswith("Lama ")


def test_json_is_escaped_where_the_locale_lacks_characters(job):
    done = shell(f"{RUN} check job.yaml --json", job, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["name"] == "Lama — ± 🦙"
    assert "🦙" in shell(f"{RUN} check job.yaml --json", job, PYTHONIOENCODING="utf-8").stdout


def test_bars_and_errors_have_an_ascii_spelling():
    code = (
        f"from prism_jax.shell.streams import prepare_streams; prepare_streams(); print({bar(0.4, 6)!r}, '2 ± 1', 'é')"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["##", "2", "+/-", "1", "?"]


hears_ctrl_c = pytest.mark.skipif(
    signal.getsignal(signal.SIGINT) == signal.SIG_IGN, reason="a shell's background jobs ignore SIGINT"
)


@posix
@hears_ctrl_c
def test_ctrl_c_says_interrupted_and_exits_with_130(job):
    """While the command reads its job file, which here takes for ever."""
    code = (
        "import sys, time; import prism_jax.job.load_job as read_job_file; from prism_jax.shell.app import main\n"
        "read_job_file.read_text = lambda *given: (print('reading', flush=True), time.sleep(600))\n"
        "sys.exit(main(['check', 'job.yaml']))"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=job.parent, env=env, stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "interrupted\n")


@hears_ctrl_c
def test_ctrl_c_in_a_callback_of_the_collector_is_not_lost(failing_collector, capsys):
    assert main(["fail"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@posix
def test_files_are_written_though_the_reader_has_left(job):
    shell(f"{RUN} predict job.yaml --set variability=a100-default --trace t.json | true", job)
    assert (job.parent / "t.json").exists()


@pytest.mark.parametrize(
    ("option", "target", "message"),
    [
        ("--plot", "absent/x.png", "there is no folder"),
        ("--trace", "absent/x.json", "there is no folder"),
        ("--plot", "folder.png", "a folder stands there"),
        ("--plot", "x.gif", "must end in .png"),
        ("--trace", "x.txt", "must end in .json"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_the_work(option, target, message, job, monkeypatch, capsys):
    monkeypatch.setattr("prism_jax.job.load_job.load_job", lambda *_: pytest.fail("work has begun"))
    (job.parent / "folder.png").mkdir()
    assert main(["predict", str(job), option, str(job.parent / target)]) == 2
    assert message in capsys.readouterr().err


def test_an_empty_name_and_a_far_name_get_no_wild_guess(job, capsys):
    assert main(["check", ""]) == 2
    assert "empty" in capsys.readouterr().err
    assert main(["check", str(job.parent / "missing.yaml")]) == 2
    assert "Did you mean" not in capsys.readouterr().err
    assert main(["check", str(job.parent / "jobb.yaml")]) == 2
    assert "Did you mean" in capsys.readouterr().err


# --- Shell completion: the script that a shell reads, where it is installed, and what it answers ---------------------


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
