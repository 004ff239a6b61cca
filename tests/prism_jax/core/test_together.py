"""Processes that work together: what names them, what passes between them, and how the loss of one ends all."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prism_jax.core.archive import opened
from prism_jax.core.errors import DataError
from prism_jax.core.together import _stated, _Watch, check_processes, dealt, of_first, owners, together
from prism_jax.shell.app import main

ROOT = Path(__file__).parents[3]
SPACE = "tp: [2, 4]\npp: [1, 2]\nmicro_batch: [1]\nschedule: [1f1b, gpipe]\n"
SMALL = (
    *("--set", "plan.sharding=none", "--set", "plan.dp=16", "--set", "plan.global_batch=64"),
    *("--set", "plan.micro_batch=1", "--set", "cluster.n_devices=16"),
)
SEARCH = ("search", "llama2_7b_fsdp_64", *SMALL, "--json", "--top", "3", "--space")
BRUTE = (
    "predict",
    "llama2_7b_fsdp_64",
    *SMALL,
    "--json",
    "--method",
    "brute-force",
    "--samples",
    "48",
    "--fast",
    "--ignore-memory",
)
OF_RUN = ("elapsed_s", "record", "command")


def address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def started(
    words: tuple[str, ...], *, devices: int = 1, code: str = "", variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """A process of the command line, in the place of which `code` may stand."""
    program = ["-c", code] if code else ["-m", "prism_jax"]
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}", "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, *program, *words],
        cwd=ROOT,
        env=os.environ | flags | dict(variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pair(words: tuple[str, ...], **settings: Any) -> list[subprocess.Popen[str]]:
    first = address()
    return [started((*words, "--processes", f"{k}/2@{first}"), **settings) for k in range(2)]


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def answer(text: str) -> dict[str, Any]:
    return {name: value for name, value in json.loads(text).items() if name not in OF_RUN}


@pytest.fixture
def space(tmp_path: Path) -> str:
    file = tmp_path / "space.yaml"
    file.write_text(SPACE)
    return str(file)


@pytest.mark.slow
def test_two_processes_find_what_one_does_and_the_first_answers(space: str) -> None:
    alone, *both = [ended(own) for own in (started((*SEARCH, space)), *pair((*SEARCH, space)))]
    assert [code for code, *_ in (alone, *both)] == [0, 0, 0], both
    assert answer(both[0][1]) == answer(alone[1])
    assert both[1][1] == ""


@pytest.mark.slow
def test_brute_force_is_the_same_on_eight_devices_of_one_process_and_of_two() -> None:
    alone, eight, *both = [ended(own) for own in (started(BRUTE), started(BRUTE, devices=8), *pair(BRUTE, devices=4))]
    assert [code for code, *_ in (alone, eight, *both)] == [0, 0, 0, 0], both
    assert answer(eight[1]) == answer(alone[1])
    assert answer(both[0][1]) == answer(alone[1])


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_other_with_a_sentence_and_both_go_on(
    space: str, tmp_path: Path, victim: int
) -> None:
    file = tmp_path / "found.npz"
    words = (*SEARCH, space, "--resume", str(file))
    running = pair(words)
    deadline = time.monotonic() + 120
    while not file.exists() and time.monotonic() < deadline:  # costs of all plans are kept, and scores are not
        time.sleep(0.02)
    running[victim].send_signal(signal.SIGKILL)
    code, out, err = ended(running[1 - victim])
    ended(running[victim])
    assert (code, out) == (2, "")
    assert f"process {victim} of 2 was lost" in err
    with opened(file, "search", "") as archive:
        assert "screen/bound" in archive.headers
    again = [ended(own) for own in pair(words)]
    assert [own[0] for own in again] == [0, 0], again
    assert answer(again[0][1]) == answer(ended(started((*SEARCH, space)))[1])


OTHER = "import sys; from prism_jax.core import kept_work; kept_work.version = lambda _: '0'\n"
COMMAND_LINE = "from prism_jax.shell.app import main; sys.exit(main())"
IMPATIENT = "import sys; from prism_jax.core import together; together.WAIT_S = 5\n"
QUICK = "import os, signal, sys; from prism_jax.core import together; together.SILENCE_S = 5.0\n"
STOPPED = "from prism_jax.search.evaluate import Evaluator\nEvaluator.bounds = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)\n"


@pytest.mark.slow
def test_another_version_is_refused_by_both(space: str) -> None:
    first = address()
    words = (*SEARCH, space, "--processes")
    both = [started((*words, f"0/2@{first}")), started((*words, f"1/2@{first}"), code=OTHER + COMMAND_LINE)]
    for code, out, err in map(ended, both):
        assert (code, out) == (2, "")
        assert "process 1 of 2 differs from the first" in err


@pytest.mark.slow
def test_a_mistake_of_one_is_told_to_the_other(space: str) -> None:
    first = address()
    wrong = (*SEARCH, "nothing.yaml", "--processes", f"1/2@{first}")
    (code, _, err), (own_code, _, own) = map(
        ended, (started((*SEARCH, space, "--processes", f"0/2@{first}")), started(wrong))
    )
    assert (code, own_code) == (2, 2)
    assert "nothing.yaml: no such file" in own
    assert "process 1 of 2 stopped: nothing.yaml: no such file" in err


@pytest.mark.slow
def test_a_process_that_falls_silent_ends_the_other(space: str) -> None:
    first = address()
    words = (*SEARCH, space, "--processes")
    live = started((*words, f"0/2@{first}"), code=QUICK + COMMAND_LINE)
    stopped = started((*words, f"1/2@{first}"), code=QUICK + STOPPED + COMMAND_LINE)
    code, _, err = ended(live)
    stopped.kill()
    stopped.communicate()
    assert code == 2
    assert "process 1 of 2 was lost (it has said nothing for 5 s)" in err


@pytest.mark.slow
def test_who_waits_in_vain_says_so(space: str) -> None:
    words = (*SEARCH, space, "--processes", f"0/2@{address()}")
    code, _, err = ended(started(words, code=IMPATIENT + COMMAND_LINE))
    assert code == 2
    assert "does not meet the others (none within 5 s)" in err


@pytest.mark.slow
def test_processes_of_slurm_and_mpirun_find_each_other(space: str) -> None:
    """The variables that `srun` and `mpirun` of two processes on one host set, with those of JAX where it knows no address."""
    job = str(int(address().rpartition(":")[2]) % 4096)  # JAX makes its port of it
    slurm = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "2"}
    mpi = {"JAX_COORDINATOR_ADDRESS": address(), "OMPI_COMM_WORLD_SIZE": "2"}
    alone = answer(ended(started((*SEARCH, space)))[1])
    for common, numbered in (slurm, ("SLURM_PROCID", "SLURM_LOCALID")), (mpi, ("OMPI_COMM_WORLD_RANK",)):
        own = [common | dict.fromkeys(numbered, str(k)) for k in range(2)]
        both = [
            ended(each) for each in [started((*SEARCH, space, "--processes", "auto"), variables=one) for one in own]
        ]
        assert [code for code, *_ in both] == [0, 0], both
        assert answer(both[0][1]) == alone


def test_mpirun_inside_an_allocation_of_slurm_counts_by_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    """There all processes have the variables of the one step that started `mpirun`."""
    said = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}
    for name, value in {"JAX_COORDINATOR_ADDRESS": "node01:9000", **said}.items():
        monkeypatch.setenv(name, value)
    assert _stated() == (3, 4, "node01:9000")


@pytest.mark.parametrize("where", ["", "2", "2/2@a:1", "0/2@a", "0/2@a:0", "0/2@a:70000", "-1/2@a:1", "0/2@a b:1"])
def test_what_names_no_process_is_refused(where: str) -> None:
    with pytest.raises(DataError, match="names no process"):
        check_processes("--processes", where)


@pytest.mark.parametrize("where", [None, "auto", "0/1@localhost:9000", "3/8@[fe80::1]:9000"])
def test_what_names_a_process_is_taken(where: str | None) -> None:
    check_processes("--processes", where)


def test_options_that_processes_cannot_share_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    where = ("--processes", "0/2@127.0.0.1:9")
    for words, said in (
        (("predict", "llama2_7b_fsdp_64"), "shares the steps of brute force"),
        (("search", "llama2_7b_fsdp_64", "--gpus", "64"), "cannot be combined"),
        (("search", "llama2_7b_fsdp_64", "--continuous", "power"), "cannot be combined"),
        (("search", "llama2_7b_fsdp_64", "--method", "local"), "shares an exhaustive search"),
    ):
        assert main([*words, *where]) == 2
        assert said in capsys.readouterr().err


def test_a_sign_of_life_is_no_answer_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that answered each other at once would exchange tens of thousands of signs in a second, on the cores that compute."""
    monkeypatch.setattr("prism_jax.core.together.EACH_S", 60.0)
    one, other = socket.socketpair()
    with one, other:
        watch = _Watch(0, 2, {1: one})
        for _ in range(20):
            other.sendall(b"\n")
            time.sleep(0.01)
        watch._done.set()
        other.sendall(b"\n")  # wakes it
        watch._thread.join(30.0)
        assert other.recv(4096) == b"\n"


def test_a_process_alone_computes_all_rows_and_keeps_what_it_has() -> None:
    with together(None):
        found = dealt(np.zeros(3, np.intp), lambda rows: 2.0 * rows)
    np.testing.assert_array_equal(found, [0.0, 2.0, 4.0])
    np.testing.assert_array_equal(owners(np.array([5.0, 0.0, 1.0])), 0)
    assert of_first({"a": np.arange(2)})["a"].tolist() == [0, 1]


def test_owners_have_about_as_much_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process has more than its share and the longest row; rows of one process follow each other."""
    monkeypatch.setattr("prism_jax.core.together.n_processes", lambda: 4)
    work = np.random.default_rng(0).pareto(2.0, 200)
    owner = owners(work)
    assert (np.diff(owner) >= 0).all()
    assert np.bincount(owner, work, minlength=4).max() <= work.sum() / 4 + work.max()
