"""`prism-jax trace` on every kind of broken input: exit code 2, one message that names the place, nothing else happens."""

import re
from pathlib import Path

import pytest

from prism_jax.shell.app import main
from tests.support.broken_traces import BROKEN, Broken

FEW = BROKEN[:: len(BROKEN) // 12]  # from every chapter of the list
COMMANDS = (["predict"], ["what-if"], ["replay"], ["export", "--perfetto"])


def state(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """All that lies in a folder: size, time of the last change, and of long files the ends."""
    found = {}
    for file in sorted(folder.rglob("*")):
        facts = file.stat()
        data = file.read_bytes() if file.is_file() else b""
        found[file] = (facts.st_size, facts.st_mtime_ns, data[:1000] + data[-1000:])
    return found


def refused(arguments: list[str], kind: Broken, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kind.make(folder)
    before = state(folder)
    assert main(["trace", arguments[0], str(path), *arguments[1:]]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")
    assert captured.err[:-1].isprintable()
    assert len(captured.err) < 1100
    assert "Traceback" not in captured.err
    assert "a bug in prism-jax" not in captured.err
    assert re.search(kind.match, captured.err)
    assert state(folder) == before


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.name)
def test_info_refuses_broken_input_in_one_line(
    tmp_path: Path, kind: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(["info"], kind, tmp_path, capsys)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("kind", FEW, ids=lambda kind: kind.name)
def test_other_commands_refuse_it_as_well(
    tmp_path: Path, kind: Broken, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    target = [str(tmp_path / "out.json")] if "--perfetto" in command else []
    refused([*command, *target], kind, tmp_path / "in", capsys)
    assert not (tmp_path / "out.json").exists()


def test_json_output_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(["predict", "--json", "--plot", str(tmp_path.parent / "x.png")], BROKEN[0], tmp_path, capsys)
    assert not (tmp_path.parent / "x.png").exists()
