"""Every option that names a file refuses a pipe nobody writes to, an endless device and a folder: at once, with the name."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from prism_jax.shell.app import main

JOB = "llama3_405b_16384"
WAIT_S = 60.0  # only a command that waits for ever reaches it
COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "job": lambda file: ["check", file],
    "space": lambda file: ["search", JOB, "--space", file],
    "slowdowns": lambda file: ["predict", JOB, "--slowdowns", file],
    "slowdowns of a placement": lambda file: ["place", JOB, "--slowdowns", file],
    "steps": lambda file: ["validate", "steps", file],
    "memory": lambda file: ["validate", "memory", file],
    "catalogue of prices": lambda file: ["cloud", JOB, "--steps", "9", "--catalog", file],
    "state of a rented job": lambda file: ["cloud", JOB, "--steps", "9", "--resume", file],
    "jobs of a cluster": lambda file: ["queue", file],
    "runs": lambda file: ["calibrate", file],
    "jobs": lambda file: ["calibrate", file, "--suggest", "1"],
    "log": lambda file: ["calibrate", "--log", f"{JOB}={file}"],
    "job of a log": lambda file: ["calibrate", "--log", f"{file}=x.log"],
    "trace": lambda file: ["trace", "info", file],
    "metadata": lambda file: ["trace", "info", "x.csv", "--meta", file],
    "measurements": lambda file: ["fit", "fleet", file],
    "kept fit": lambda file: ["fit", "report", file],
    "fit": lambda file: ["predict", JOB, "--fit", file],
    "journal": lambda file: ["search", JOB, "--resume", file],
    "journal of a sweep": lambda file: ["sweep", JOB, "--set", "plan.micro_batch=1,2", "--resume", file],
    "journal of sizes": lambda file: ["scale", JOB, "--gpus", "16384,32768", "--resume", file],
    "reliability": lambda file: ["run", JOB, "--steps", "9", "--reliability", file],
    "reliability of fleets": lambda file: ["capacity", JOB, "--fleet", "8xh100", "--reliability", file],
    "watched log": lambda file: ["watch", file],
    "profile of a host": lambda file: ["trace", "host", file],
    "compared job": lambda file: ["compare", JOB, file],
    "swept job": lambda file: ["sweep", file, "--set", "plan.tp=1,2"],
    "failures": lambda file: ["fit", "failures", file],
    "ladder": lambda file: ["fit", "ladder", file],
    "saves": lambda file: ["fit", "saves", file],
    "startup": lambda file: ["fit", "startup", file],
}
FOLDERS = ("trace", "log", "journal", "journal of a sweep", "journal of sizes", "watched log", "profile of a host")


def exit_code(arguments: list[str]) -> int:
    codes: list[int] = []
    command = Thread(target=lambda: codes.append(main(arguments)), daemon=True)
    command.start()
    command.join(WAIT_S)
    assert codes, "still waiting"
    return codes[0]


@pytest.mark.parametrize("what", COMMANDS)
def test_a_pipe_and_a_device_are_refused(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in (str(tmp_path / "pipe"), "/dev/zero"):
        assert exit_code(COMMANDS[what](file)) == 2
        reason = (
            "that is a " if what.startswith("journal") else "not a regular file but a pipe, socket or device"
        )  # written, too
        assert f"{file}: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize("what", [what for what in COMMANDS if what not in FOLDERS])
def test_a_folder_is_refused(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(COMMANDS[what](str(tmp_path))) == 2
    assert f"{tmp_path}: a folder, not a file" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "reason"), [("pipe", "not a regular file"), ("x" * 300, "File name too long")])
def test_the_file_that_a_job_names_is_opened_by_the_same_rules(
    kind: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"model: {{hf_config: {kind}}}\ncluster: {{preset: dgx-h100, n_devices: 8}}\n"
        "plan: {tp: 8, micro_batch: 1, global_batch: 8, seq_len: 4096}\n"
    )
    assert exit_code(["check", str(job)]) == 2
    error = capsys.readouterr().err
    assert f"{job}:1:9 model.hf_config: {tmp_path / kind}" in error.replace("\n", "")
    assert reason in error
