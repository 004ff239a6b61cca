"""The gate: a few of its jobs, made by a rule that other jobs do not change, and what it says of predictions that moved."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gate.__main__ import main
from benchmarks.gate.jobs import ONE_OF, GateJob, gate_jobs
from benchmarks.gate.moved import GROUPS, compare, lines
from benchmarks.gate.predicted import EXPECTED, Predicted, predictions, read, write

FEW = 80 * ONE_OF


@pytest.fixture(scope="module")
def jobs() -> list[GateJob]:
    return gate_jobs(FEW)


@pytest.fixture(scope="module")
def found(jobs: list[GateJob]) -> dict[str, Predicted]:
    return predictions(jobs)


def test_few_jobs_are_among_all(jobs: list[GateJob]) -> None:
    names, more = ({one.job.name for one in some} for some in (jobs, gate_jobs(8 * ONE_OF)))
    assert 5 <= len(names) <= 40
    assert names < more


def test_the_committed_file_can_be_read() -> None:
    every = read(EXPECTED)
    assert 800 <= len(every) <= 1200
    assert all(0.0 < one.low_s < one.p50_s < one.high_s for one in every.values())


def test_what_moved_is_counted_and_named(jobs: list[GateJob], found: dict[str, Predicted]) -> None:
    slower = jobs[0].job.name
    before = {**found, slower: replace(found[slower], p50_s=found[slower].p50_s / 1.05), "gone": found[slower]}
    del before[jobs[1].job.name]
    outcome = compare(jobs, found, before)
    assert (outcome.only_now, outcome.only_before) == ((jobs[1].job.name,), ("gone",))
    assert outcome.largest[0].job is jobs[0]
    assert outcome.largest[0].change == pytest.approx(0.05)
    assert outcome.exceeds(0.2)  # jobs came and went
    text = [*lines(outcome)]
    count = next(line for line in text if line.startswith("p50_s "))
    assert count.split()[1:] == [str(len(jobs) - 1), "1", ".", "1", ".", ".", "."]
    assert all(any(line == f"p50_s by {group}" for line in text) for group in GROUPS)
    assert any("+5.00%" in line and slower in line for line in text)


def test_a_file_holds_what_was_written(tmp_path: Path, found: dict[str, Predicted]) -> None:
    write(found, tmp_path / "some.csv")
    for name, own in read(tmp_path / "some.csv").items():
        assert own.p50_s == pytest.approx(found[name].p50_s, rel=1e-4)


def test_exit_status_says_whether_anything_moved(
    tmp_path: Path, found: dict[str, Predicted], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.gate.__main__.predictions", lambda jobs: found)
    path = str(tmp_path / "some.csv")
    few = ["--one-of", str(FEW), "--expected", path]
    with pytest.raises(SystemExit) as missing:
        main(few)
    assert missing.value.code == 2
    assert main([*few, "--write"]) == 0
    assert main([*few, "--fail-above", "0.01"]) == 0
    moved = {name: replace(one, high_s=1.1 * one.high_s) for name, one in read(tmp_path / "some.csv").items()}
    write(moved, tmp_path / "some.csv")
    assert main([*few, "--fail-above", "5"]) == 1
    assert "-9.09%  high_s" in capsys.readouterr().out
