"""The one atomic writer: files are whole or absent, whatever stops it, and their records say what made them."""

import json
import os
import platform
import resource
import signal
import socket
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import prism_jax
from prism_jax.core.errors import DataError
from prism_jax.core.write_file import (
    MARK,
    atomic_path,
    check_target,
    run_record,
    temporary_file,
    to_json,
    write_bytes,
    write_text,
)


def left(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("ask", [check_target, lambda path: write_text(path, "x")])
def test_a_pipe_is_refused_and_stays(ask, pipe: Path):
    with pytest.raises(DataError, match=r"pipe: that is a pipe, .* Name a file"):
        ask(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert left(pipe.parent) == ["pipe"]


def test_a_link_to_a_pipe_is_refused(pipe: Path):
    link = pipe.with_name("link")
    link.symlink_to(pipe)
    with pytest.raises(DataError, match="that is a pipe"):
        write_text(link, "x")


def test_a_device_is_refused_and_stays():
    with pytest.raises(DataError, match=r"/dev/null: that is a device"):
        write_text("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # names of sockets must be short
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("s")
        with pytest.raises(DataError, match="that is a socket"):
            write_text("s", "x")


def test_a_link_is_written_through(tmp_path: Path):
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "a.txt", tmp_path / "b.txt"
    real.write_text("old")
    link.symlink_to(Path("real") / "a.txt")
    write_text(link, "new")
    assert (link.is_symlink(), real.read_text()) == (True, "new")
    assert left(tmp_path) == ["b.txt", "real"]
    assert left(tmp_path / "real") == ["a.txt"]


def test_a_link_to_nothing_makes_the_file_it_names(tmp_path: Path):
    (tmp_path / "link").symlink_to("real")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


@pytest.mark.parametrize("link", ["loop", "nowhere/a.txt"])
def test_links_that_lead_nowhere_are_refused(link: str, tmp_path: Path):
    (tmp_path / "loop").symlink_to(link)
    with pytest.raises(DataError, match=r"loop: "):
        check_target(tmp_path / "loop")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_of_a_file_is_kept(mode: int, tmp_path: Path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    target.chmod(mode)
    write_text(target, "new")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", mode)


def test_a_name_as_long_as_the_disk_takes_is_written(tmp_path: Path):
    longest = tmp_path / ("é" * 125 + ".json")  # 255 bytes
    check_target(longest)
    write_text(longest, "x")
    assert longest.read_text() == "x"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a" * 256, "File name too long"),
        ("nowhere/a.txt", "there is no folder"),
        ("file/a.txt", "Not a directory"),
        ("a\0b", "null byte|null character"),
    ],
)
def test_names_that_cannot_be_written_are_refused_before_the_work(name: str, says: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=says):
        check_target(tmp_path / name)
    assert left(tmp_path) == ["file"]


def test_a_folder_that_takes_no_files_is_refused_before_the_work():
    with pytest.raises(DataError, match=r"/proc/a\.txt: cannot be written: .* Name another file"):
        check_target("/proc/a.txt")  # for root, too


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_files_and_folders_are_refused(tmp_path: Path):
    (tmp_path / "a.txt").touch(0o400)
    with pytest.raises(DataError, match="read-only"):
        check_target(tmp_path / "a.txt")
    tmp_path.chmod(0o500)
    with pytest.raises(DataError, match="cannot be written"):
        check_target(tmp_path / "b.txt")
    tmp_path.chmod(0o700)


def test_asking_leaves_nothing(tmp_path: Path):
    check_target(tmp_path / "a.txt")
    assert left(tmp_path) == []


@pytest.fixture
def small_disk():
    """Files of this process end at 1,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path: Path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(OSError, match="File too large") as full:
        write_bytes(target, bytes(1001))
    assert full.value.filename == str(target)
    assert target.read_bytes() == b"old"
    assert left(tmp_path) == ["a.bin"]


def test_errors_that_are_no_fault_of_the_disk_pass(tmp_path: Path):
    with pytest.raises(FileNotFoundError) as error, atomic_path(tmp_path / "a"):
        (tmp_path / "other").read_text()
    assert error.value.filename == str(tmp_path / "other")


# --- Written files are whole or absent; run records say what made them -----------------------------------------------


def test_file_is_replaced_whole(tmp_path):
    target = tmp_path / "a.txt"
    write_text(target, "old")
    write_text(target, "new é")
    assert target.read_text(encoding="utf-8") == "new é"
    write_bytes(target, b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError, SystemExit])
def test_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, interruption):
    target = tmp_path / "a.png"
    target.write_text("old")
    with pytest.raises(interruption), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise interruption
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_temporary_file_keeps_the_ending_and_the_folder(tmp_path):
    with atomic_path(tmp_path / "step.json.gz") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith(".gz")
        assert not (tmp_path / "step.json.gz").exists()


def test_permissions_are_those_of_any_new_file(tmp_path):
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_missing_folder_and_folder_in_place_are_said(tmp_path):
    with pytest.raises(DataError, match="there is no folder .*absent. Make it"):
        write_text(tmp_path / "absent" / "a.txt", "x")
    with pytest.raises(DataError, match="a folder stands there"):
        write_text(tmp_path, "x")


@dataclass
class Point:
    x: float
    y: tuple[int, ...]


def test_json_holds_plain_values_and_null_for_what_json_lacks(tmp_path):
    value = {
        "p": Point(float("nan"), (1, 2)),
        "a": np.arange(2.0),
        "n": np.float64(1.5),
        "i": np.int64(3),
        "f": tmp_path,
    }
    expected = {"p": {"x": None, "y": [1, 2]}, "a": [0.0, 1.0], "n": 1.5, "i": 3, "f": str(tmp_path)}
    assert json.loads(to_json(value)) == expected
    write_text(tmp_path / "v.json", to_json(value))
    assert json.loads((tmp_path / "v.json").read_text(encoding="utf-8")) == expected


def test_json_refuses_what_it_cannot_hold():
    with pytest.raises(TypeError):
        to_json({"f": object()})


def test_run_record_names_versions_inputs_and_seed():
    record = run_record({"job": "x.yaml", "overrides": ["plan.tp=4"]}, seed=7)
    assert record["versions"]["prism-jax"] == prism_jax.__version__
    assert record["versions"]["python"] == platform.python_version()
    assert record["versions"]["numpy"] == np.__version__
    assert record["versions"]["jax"]
    assert record["inputs"] == {"job": "x.yaml", "overrides": ["plan.tp=4"]}
    assert record["seed"] == 7
    revision = record["git_revision"]
    assert revision is None or len(revision.removesuffix("+changes")) == 40


# --- What killed writers leave: the old file, and a temporary one that the next writer of the same file removes ------


WRITER = """\
import os, sys
from prism_jax.core.write_file import atomic_path
with atomic_path(sys.argv[1]) as file:
    file.write_text("half")
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), 9)
    print("writing", flush=True)
    input()
"""


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A file whose second writer was killed."""
    target = tmp_path / "a.txt"
    target.write_text("old")
    done = subprocess.run([sys.executable, "-c", WRITER, str(target), "killed"], check=False)
    assert done.returncode == -9
    return target


@pytest.mark.parametrize("again", [check_target, lambda path: write_text(path, "new")])
def test_the_next_writer_removes_what_a_killed_one_left(again, killed: Path):
    assert killed.read_text() == "old"
    assert len(left(killed.parent)) == 2
    again(killed)
    assert left(killed.parent) == ["a.txt"]


def test_writers_of_other_files_leave_it_alone(killed: Path):
    before = left(killed.parent)
    for name in ("b.txt", "a.png", "a.b.txt"):
        check_target(killed.with_name(name))
    assert left(killed.parent) == before


def test_the_file_of_a_living_writer_stays(tmp_path: Path):
    target = tmp_path / "a.txt"
    command = [sys.executable, "-c", WRITER, str(target), "alive"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "writing\n"
        write_text(target, "ours")
        assert len(left(tmp_path)) == 2
        writer.communicate("\n")
    assert target.read_text() == "half"
    assert left(tmp_path) == ["a.txt"]


def test_two_writers_of_one_process_do_not_disturb_each_other(tmp_path: Path):
    with atomic_path(tmp_path / "a.txt") as first, atomic_path(tmp_path / "a.txt") as second:
        first.write_text("first")
        second.write_text("second")
    assert (tmp_path / "a.txt").read_text() == "first"  # the last to end
    assert left(tmp_path) == ["a.txt"]


def test_links_and_files_of_users_are_no_leftovers(tmp_path: Path):
    (tmp_path / "kept").write_text("x")
    (tmp_path / f".a{MARK}link.txt").symlink_to("kept")
    (tmp_path / ".a.mine.txt").write_text("x")
    with temporary_file(tmp_path / "a.txt"):
        pass
    assert left(tmp_path) == [".a.mine.txt", f".a{MARK}link.txt", "kept"]
