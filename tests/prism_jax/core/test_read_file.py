"""The door of every file that people name, and JSON whose objects have every key once."""

import gzip
import json
import os
import socket
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.core.read_file import check_input, open_input, parse_json, read_bytes, read_text

REMEDY = "Give a table."
WAIT_S = 20.0  # far beyond what opening takes; only a reader that waits for ever reaches it


def refusal(path: Path, limit: int = 100) -> str:
    found: list[DataError] = []

    def read() -> None:
        try:
            read_bytes(path, limit, REMEDY, unpack=True)
        except DataError as error:
            found.append(error)

    reader = Thread(target=read, daemon=True)  # which may wait for ever without holding up the other tests
    reader.start()
    reader.join(WAIT_S)
    assert found, "still waiting, or read"
    assert str(path)[:300] in str(found[0])  # names beyond what a message shows are cut
    return found[0].text


def test_pipes_sockets_devices_and_folders_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        here = Path.cwd()
        os.chdir(tmp_path)  # names of sockets are short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for path in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero"), Path("/dev/null")):
            assert refusal(path).startswith("not a regular file but a pipe, socket or device")
    assert refusal(tmp_path).startswith("a folder, not a file")


def test_links_are_followed_to_what_they_stand_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    for name in ("pipe", "file", "absent"):
        (tmp_path / f"to {name}").symlink_to(tmp_path / name)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert read_text(tmp_path / "to file", 10, REMEDY) == "x"
    assert refusal(tmp_path / "to pipe").startswith("not a regular file")
    assert refusal(tmp_path / "to absent") == f"cannot be read: No such file or directory. {REMEDY}"
    assert "symbolic links" in refusal(tmp_path / "loop")


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000])
def test_names_that_no_file_can_have_are_said(tmp_path: Path, name: str) -> None:
    assert refusal(tmp_path / name) == f"cannot be read: File name too long. {REMEDY}"


def test_a_nul_in_a_name_is_said() -> None:
    with pytest.raises(DataError, match=r"'a\\x00b': not a usable file name"):
        check_input("a\0b")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(("n", "fits"), [(0, True), (100, True), (101, False), (10_000_000, False)])
def test_the_limit_is_of_the_content(tmp_path: Path, pack, n: int, fits: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(pack(b"a" * n))
    if fits:
        assert read_bytes(path, 100, REMEDY, unpack=True) == b"a" * n
    else:
        assert refusal(path) == f"larger than 100 bytes. {REMEDY}"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux shows files without a size")
def test_a_file_that_hides_its_size_is_read_to_the_limit_only() -> None:
    path = Path("/proc/self/status")
    assert path.stat().st_size == 0
    assert refusal(path).startswith("larger than")
    assert read_bytes(path, 2**16, REMEDY).startswith(b"Name:")


def test_what_is_packed_is_unpacked_only_where_that_is_asked_for(tmp_path: Path) -> None:
    packed = gzip.compress(b"abc", mtime=0)
    (tmp_path / "file").write_bytes(packed)
    assert read_bytes(tmp_path / "file", 100, REMEDY) == packed


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"abc", mtime=0)[:-3], "the gzip file ends too early"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 60, "a damaged gzip file"),
        (gzip.compress(b"abc", mtime=0) + b"junk", "a damaged gzip file"),
        (b"a\0b", "a binary file"),
        ("a".encode("utf-16"), "not UTF-8 text"),
        (b"abc\xe9", r"not UTF-8 text \(byte 3\). Save it as UTF-8"),
    ],
)
def test_what_is_no_text_is_said(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}: {message}"):
        read_text(path, 1000, REMEDY, unpack=True)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes("\ufeffa\r\nb".encode())
    assert read_text(path, 1000, REMEDY) == "a\r\nb"


def test_an_open_file_is_closed_by_its_user(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    with open_input(path) as file:
        assert file.read() == b"abc"
    assert file.closed


# --- JSON whose objects have every key once --------------------------------------------------------------------------


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(value=VALUES)
def test_what_json_writes_is_read(value: object) -> None:
    assert parse_json(json.dumps(value), "x") == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 1}', "x: the key 'a' is there twice"),
        ('[{"b": {"c": 1, "c": 2}}]', "x: the key 'c' is there twice"),
        ('{"a":\n 1 2}', "x:2:4 is not JSON"),
        ("[" * 100_000, "x is not JSON"),
        ("9" * 5000, "x is not JSON"),
        ("", "x:1:1 is not JSON"),
    ],
)
def test_everything_else_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_json(text, "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu,x\n", "a:1:1 is not JSON: Expecting value. Give a report."),
        ("[" * 100_000, "a is not JSON: nested too deeply. Give a report."),
        ("1" * 5000, "a is not JSON: a number of thousands of digits. Write it as 1e30."),
    ],
)
def test_what_is_no_json_is_refused_with_a_remedy(text: str, message: str):
    with pytest.raises(DataError) as error:
        parse_json(text, "a", "Give a report.")
    assert str(error.value) == message
