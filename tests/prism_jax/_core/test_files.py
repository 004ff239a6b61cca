"""The one atomic writer: what may be replaced, what is kept, and what a full disk leaves."""

import os
import resource
import signal
import socket
import stat
from pathlib import Path

import pytest

from prism_jax.core.errors import DataError
from prism_jax.core.write_file import atomic_path, check_target, write_bytes, write_text


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
