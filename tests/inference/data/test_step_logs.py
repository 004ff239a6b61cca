"""Training logs, one run per file. The logs are written here."""

import json
from pathlib import Path

import pytest

from inference.data.read import read_measurements
from prism_jax.core.errors import DataError
from tests.inference.data.tables import STEPS, accounted, records, write
from tests.support.training_logs import LOGS


def mllog(key: str, time_ms: int, value: object = None, **metadata: object) -> str:
    entry = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**entry, "metadata": metadata}) + "\n"


def about(platform: str = "4xDGX H100") -> str:
    return (
        "starting on 4 nodes, see below\n"
        + mllog("submission_benchmark", 0, "llama2_70b_lora")
        + mllog("submission_org", 0, "Example")
        + mllog("submission_platform", 0, platform)
        + mllog("global_batch_size", 0, 8)
        + mllog("run_start", 1000)
    )


def timed(seconds: list[float]) -> str:
    return "".join(
        mllog("tracked_stats", 1000 * step, {"train_step_time": value, "reduced_train_loss": 2.0}, step_num=step)
        for step, value in enumerate(seconds, start=1)
    )


def clocked(step_ms: list[int], every: int = 10) -> str:
    time_ms, text = 2000, mllog("train_loss", 2000, 2.0, step_num=0)
    for index, interval in enumerate(step_ms, start=1):
        time_ms += interval
        text += mllog("train_loss", time_ms, 2.0, step_num=index * every)
    return text


def test_a_log_with_step_times_is_one_run_with_its_system(tmp_path: Path) -> None:
    found = read_measurements([write(tmp_path / "result_0.txt", about() + timed([1.5, 1.25, 1.75]))], STEPS)
    frame = found.frame
    assert frame["duration_s"].tolist() == [1.5, 1.25, 1.75]
    assert frame["n_steps"].tolist() == [1, 1, 1]
    common = {
        "run": "result_0.txt",
        "system": "4xDGX H100",
        "submitter": "Example",
        "benchmark": "llama2_70b_lora",
        "metric": "step_s",
        "n_gpus": 32,
        "n_nodes": 4,
    }
    assert records(frame, list(common)) == [common]
    assert accounted(found)


def test_a_log_without_step_times_gives_intervals_over_their_steps(tmp_path: Path) -> None:
    found = read_measurements([write(tmp_path / "a.log", about() + clocked([5000, 5100, 4900]))], STEPS).frame
    assert found["duration_s"].tolist() == pytest.approx([5.0, 5.1, 4.9])
    assert found["n_steps"].tolist() == [10, 10, 10]
    assert set(found["metric"]) == {"log_dt_ms"}


@pytest.mark.parametrize(
    ("platform", "n_nodes", "n_gpus"),
    [
        ("1xMI325X", 1, None),
        ("DGX H100", None, None),
        ("16xDGXGB200", 16, None),
        ("2xHGX B200", 2, 16),
        ("x", None, None),
    ],
)
def test_gpus_are_counted_only_where_the_platform_says_them(
    platform: str, n_nodes: int | None, n_gpus: int | None, tmp_path: Path
) -> None:
    frame = read_measurements([write(tmp_path / "a.log", about(platform) + timed([1.0, 2.0]))], STEPS).frame
    assert (frame["n_nodes"].iloc[0] if n_nodes else n_nodes) == n_nodes
    assert (frame["n_gpus"].iloc[0] if n_gpus else n_gpus) == n_gpus
    assert ("n_gpus" in frame) == (n_gpus is not None)


def test_what_the_log_says_of_its_size_wins(tmp_path: Path) -> None:
    text = about() + mllog("number_of_nodes", 0, 2) + mllog("accelerators_per_node", 0, 6) + timed([1.0, 2.0])
    frame = read_measurements([write(tmp_path / "a.log", text)], STEPS).frame
    assert frame[["n_nodes", "n_gpus"]].iloc[0].tolist() == [2, 12]


def test_logs_of_equal_names_are_different_runs(tmp_path: Path) -> None:
    files = []
    for index, folder in enumerate(("one", "two")):
        (tmp_path / folder).mkdir()
        files.append(write(tmp_path / folder / "result_0.txt", about() + timed([1.0 + index, 2.0])))
    assert read_measurements(files, STEPS).frame["run"].unique().tolist() == ["one/result_0.txt", "two/result_0.txt"]


def test_a_log_that_was_submitted_again_is_dropped_and_rounded_times_are_not(tmp_path: Path) -> None:
    first, other = clocked([5000, 5100, 4900]), clocked([5000, 5100, 4800])
    files = [
        write(tmp_path / f"{name}.log", about() + text) for name, text in (("a", first), ("b", other), ("c", first))
    ]
    found = read_measurements(files, STEPS)
    assert found.hygiene.dropped == {"the same row again": 3}
    assert found.frame["run"].unique().tolist() == ["a.log", "b.log"]


def test_text_logs_of_frameworks_are_read_too(tmp_path: Path) -> None:
    line = " iteration {:8d}/     100 | consumed samples: 8 | elapsed time per iteration (ms): {:.1f} | lm loss: 2.1E+00 |\n"
    text = "setting up\n" + "".join(line.format(10 * step, 1000 + step) for step in range(1, 6))
    frame = read_measurements([write(tmp_path / "megatron.log", text)], STEPS).frame
    assert frame["duration_s"].tolist() == pytest.approx([10.01, 10.02, 10.03, 10.04, 10.05])
    assert frame["n_steps"].tolist() == [10] * 5
    assert set(frame["framework"]) == {"Megatron-LM"}


def test_a_damaged_entry_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.log:7: not JSON"):
        read_measurements([write(tmp_path / "a.log", about() + ':::MLLOG {"key": "ru\n')], STEPS)


@pytest.mark.parametrize("kind", sorted(LOGS))
def test_every_training_log_is_one_run(tmp_path: Path, kind: str) -> None:
    written = LOGS[kind]
    step_s = [1.25, 1.5, 1.125, 1.0, 1.375, 1.25]
    found = read_measurements([write(tmp_path / written.name, written.write(step_s))], STEPS)
    frame = found.frame
    assert frame["duration_s"].tolist() == pytest.approx(step_s[written.lost :], abs=written.rounds_s)
    assert set(frame["run"]) == {written.name}
    assert (set(frame["framework"]) if "framework" in frame else {""}) == {written.framework}
    assert accounted(found)


def test_a_log_loses_its_warm_up_with_a_note(tmp_path: Path) -> None:
    text = LOGS["MaxText"].write([30.0, 0.1, *[1.0, 1.01, 0.99] * 10])
    found = read_measurements([write(tmp_path / "train.log", text)], STEPS)
    assert len(found.frame) == 30
    assert any(note.endswith("times the median of the others, 1 s)") for note in found.hygiene.notes)


def test_a_table_of_one_run_takes_a_stated_unit_and_a_table_of_runs_stays_one(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "step,step_time\n1,1500\n2,1250\n")
    found = read_measurements([path], STEPS, units={"duration": "ms"}).frame
    assert found["duration_s"].tolist() == [1.5, 1.25]
    with pytest.raises(DataError, match=r"a\.csv 'step_time': nothing says the unit.*--unit duration=ms"):
        read_measurements([path], STEPS)
    runs = read_measurements([write(tmp_path / "b.csv", "run,step,step_time_s\na,1,1.5\nb,1,1.25\n")], STEPS).frame
    assert runs["run"].tolist() == ["a", "b"]
