"""What killed writers leave: the old file, and a temporary one that the next writer of the same file removes."""

import subprocess
import sys
from pathlib import Path

import pytest

from prism_jax.core.write_file import MARK, atomic_path, check_target, temporary_file, write_text

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


def left(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


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
