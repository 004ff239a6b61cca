"""`prism-jax trace`: which options, files and recordings it refuses, before any work."""

import re
from pathlib import Path

import pytest

from prism_jax.shell.app import main
from tests.prism_jax.recorded.calls import LOCAL, refused, run_json, written
from tests.support.broken_traces import BROKEN, Broken
from tests.support.trace_oracle import PipelineJob


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "--fit-replicas", "4"], ["--fit-replicas 4", "3 dp replicas were recorded", "Choose 1 to 3"]),
        (["predict", "--train-fraction", "0.1"], ["--train-fraction 0.1", "1 of 8", "at least 2", "1 for no check"]),
        (["predict", "--train-fraction", "0.9"], ["--train-fraction 0.9", "7 of 8", "at least 2"]),
        (["what-if", "--replace-rank", "99"], ["--replace-rank", "rank 99 was not recorded", "10, 11, 12, 20"]),
        (["what-if", "--swap", "10:99"], ["--swap", "rank 99 was not recorded"]),
        (["what-if", "--swap", "10"], ["--swap", "'10' is not two ranks, such as 3:17"]),
        (["what-if", "--swap", "10-20"], ["--swap", "not two ranks"]),
        (["what-if", "--swap", ":"], ["--swap", "not two ranks"]),
        (["what-if", "--swap", "1:2:3"], ["--swap", "not two ranks"]),
        (["what-if", "--swap", "9" * 5000], ["--swap", "not two ranks"]),
        (["what-if", "--swap", "10:10"], ["--swap", "change places"]),
        (["what-if", "--swap", "10:11", "--swap", "11:12"], ["--swap", "a rank can change places once"]),
        (["what-if", "--slow-rank", "10"], ["--slow-rank", "such as 3:1.2"]),
        (["what-if", "--slow-rank", "10:nan"], ["--slow-rank", "such as 3:1.2"]),
        (["what-if", "--slow-rank", "10:-1"], ["--slow-rank", "such as 3:1.2"]),
        (["what-if", "--slow-rank", "99:1.1"], ["--slow-rank", "rank 99 was not recorded"]),
        (["export", "--perfetto", "x.json", "--step", "99"], ["--step", "99 was not recorded", "nearest one is 17"]),
        (["export", "--perfetto", "x.json", "--step", "9" * 40], ["--step", "was not recorded"]),
        (["export", "--perfetto", "x.txt"], ["--perfetto", "must end in .json or .json.gz"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_wrong_options_are_named_with_the_remedy(
    arguments: list[str], words: list[str], table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """And before the work begins."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prism_jax.recorded.recorded_job.observed_waits", lambda *_: pytest.fail("work has begun"))
    message = refused([arguments[0], table, *arguments[1:]], capsys)
    for word in words:
        assert word in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["predict", "FILE", "--splits", "0"],
        ["predict", "FILE", "--splits", "1001"],
        ["predict", "FILE", "--train-fraction", "2"],
        ["predict", "FILE", "--draws", "1"],
        ["predict", "FILE", "--seed", "-1"],
        ["predict", "FILE", "--replicas", "none"],
        ["export", "FILE"],
        ["predict"],
        ["frobnicate", "FILE"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_told_on_stderr(arguments: list[str], table: str, capsys) -> None:
    assert main(["trace", *(table if word == "FILE" else word for word in arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: `prism-jax " in captured.err


PICTURES = [
    ("absent/x.png", "there is no folder"),
    ("folder.png", "a folder stands there"),
    ("x.gif", "--plot: .*x.gif: the name must end in .png, .pdf or .svg"),
    ("x", "must end in .png"),
]


@pytest.mark.parametrize(
    ("command", "option", "target", "message"),
    [
        *((command, "--plot", *picture) for command in ("predict", "what-if") for picture in PICTURES),
        ("export", "--perfetto", "absent/x.json", "there is no folder"),
        ("export", "--perfetto", "x.json.zip", "must end in .json"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_the_work(
    command: str, option: str, target: str, message: str, table: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("prism_jax.recorded.trace_facts.open_trace", lambda *_: pytest.fail("work has begun"))
    (tmp_path / "folder.png").mkdir()
    assert re.search(message, refused([command, table, option, str(tmp_path / target)], capsys))


def test_timelines_do_not_land_on_or_among_their_inputs(tmp_path: Path, capsys) -> None:
    for file in Path(LOCAL).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = sorted(tmp_path.iterdir())
    rank0 = str(tmp_path / "rank0.json.gz")
    for file, target in ((str(tmp_path), str(tmp_path / "out.json")), (str(tmp_path / "rank?.json.gz"), rank0)):
        assert "--perfetto: " in refused(["export", file, "--perfetto", target], capsys)
    assert sorted(tmp_path.iterdir()) == before


def test_jobs_of_one_stage_have_no_layer_to_move(tmp_path: Path, capsys) -> None:
    path = str(written(tmp_path / "ops.csv", PipelineJob(1, 2, 2), 4))
    assert "--layers-per-stage" in refused(["what-if", path, "--layers-per-stage", "3"], capsys)


def test_groups_with_another_name_in_every_step_are_pointed_out(tmp_path: Path, capsys) -> None:
    """Of three dp ranks two were recorded, and of rank 2 a step differs."""
    path = tmp_path / "ops.csv"
    rows = [f"{step},{dp},meet,{step},1,g{step}" for step in range(3) for dp in (0, 2)]
    path.write_text("\n".join(["step,dp,op_type,start_s,duration_s,group", *rows]))
    message = refused(["info", str(path)], capsys)
    assert "alone has meet 0 of stage 0, whose group must be the same in every step" in message
    path.write_text(
        "\n".join(["step,dp,op_type,start_s,duration_s,group", *rows])
        .replace(",2,meet,1,", ",2,greet,1,")
        .replace("g1", "g0")
        .replace("g2", "g0")
    )
    notes = run_json(["info", str(path)], capsys)["notes"]
    assert any("in step 1 dp rank 2 " in note for note in notes)
    assert any("2 of 3 data-parallel ranks were recorded" in note for note in notes)


def test_two_workers_of_one_rank_are_refused(tmp_path: Path, capsys) -> None:
    path = tmp_path / "ops.csv"
    path.write_text("step,dp,rank,op_type,start_s,duration_s\n1,0,5,a,0,1\n1,1,5,a,0,1\n")
    assert "rank 5 stands at two workers" in refused(["info", str(path)], capsys)


# --- Broken ----------------------------------------------------------------------------------------------------------
# `prism-jax trace` on every kind of broken input: exit code 2, one message that names the place, nothing else
# happens.


FEW = BROKEN[:: len(BROKEN) // 6]  # from every chapter of the list
COMMANDS = (["predict"], ["what-if"], ["replay"], ["export", "--perfetto"])


def state(folder: Path) -> dict[Path, tuple[int, int, bytes]]:
    """All that lies in a folder: size, time of the last change, and of long files the ends."""
    found = {}
    for file in sorted(folder.rglob("*")):
        facts = file.stat()
        data = file.read_bytes() if file.is_file() else b""
        found[file] = (facts.st_size, facts.st_mtime_ns, data[:1000] + data[-1000:])
    return found


def broken_refused(arguments: list[str], kind: Broken, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kind.make(folder)
    before = state(folder)
    message = refused([arguments[0], str(path), *arguments[1:]], capsys)
    assert message[:-1].isprintable()
    assert len(message) < 1100
    assert "a bug in prism-jax" not in message
    assert re.search(kind.match, message)
    assert state(folder) == before


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.name)
def test_info_refuses_broken_input_in_one_line(
    tmp_path: Path, kind: Broken, capsys: pytest.CaptureFixture[str]
) -> None:
    broken_refused(["info"], kind, tmp_path, capsys)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize("kind", FEW, ids=lambda kind: kind.name)
def test_other_commands_refuse_it_as_well(
    tmp_path: Path, kind: Broken, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    target = [str(tmp_path / "out.json")] if "--perfetto" in command else []
    broken_refused([*command, *target], kind, tmp_path / "in", capsys)
    assert not (tmp_path / "out.json").exists()


def test_json_output_is_not_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken_refused(["predict", "--json", "--plot", str(tmp_path.parent / "x.png")], BROKEN[0], tmp_path, capsys)
    assert not (tmp_path.parent / "x.png").exists()
