"""Step times among logged scalars: files of every kind, and names."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.quantities import is_clock, is_step, is_time, meaning
from prism_jax.recorded.formats.scalars import choose
from prism_jax.trace.step_log import Stated
from tests.support.training_logs import VERSION, event, event_file, event_record, read_log, wandb_history


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["steps.csv", "steps.tsv", "steps.txt"])
def test_tables_in_any_separator(tmp_path: Path, separator: str, name: str):
    text = "step,step_time_s\n5,1.5\n6,1.25\n".replace(",", separator)
    assert read_log(tmp_path, text, name).step.tolist() == [5, 6]
    assert read_log(tmp_path, text, name + ".gz").step_s.tolist() == [1.5, 1.25]


def test_a_table_of_times_alone_is_numbered(tmp_path: Path):
    log = read_log(tmp_path, "step_time_ms\n1500\n1250\n", "steps.csv")
    assert (log.step.tolist(), log.step_s.tolist()) == ([1, 2], [1.5, 1.25])


def test_a_unit_may_be_stated(tmp_path: Path):
    assert read_log(tmp_path, "step,step_time\n1,1500\n", unit="ms").step_s.tolist() == [1.5]
    with pytest.raises(DataError, match="--unit h: not a unit of time"):
        read_log(tmp_path, "step,step_time\n1,1500\n", unit="h")
    with pytest.raises(DataError, match=r"say the unit of their times and what their columns are"):
        read_log(tmp_path, "step,dp,pp,op_type,start_s,duration_s\n0,0,0,forward-compute,0,1\n", "a.csv", unit="s")


def test_rows_without_the_value_are_passed_over(tmp_path: Path):
    log = read_log(tmp_path, 'Step,"a - train/step_time_s"\n1,\n2,1.5\n3,NaN\n4,1.25\n')
    assert log.step.tolist() == [2, 4]


def test_means_over_several_steps_are_told_by_the_name_alone(tmp_path: Path):
    means = read_log(tmp_path, "step,time_metrics/end_to_end(s)\n10,1.5\n20,1.5\n30,1.5\n")
    assert means.n_steps.tolist() == [10, 10, 10]
    single = read_log(tmp_path, "step,step_time_s\n10,1.5\n20,1.5\n30,1.5\n")
    assert single.n_steps.tolist() == [1, 1, 1]
    assert any("entries are 10 steps apart" in note for note in single.notes)


@settings(max_examples=20, deadline=None)
@given(step_s=st.lists(st.floats(0.3, 9.0), min_size=4, max_size=20))
@example(step_s=[5.0, 5.0, 1.0, 1.0])  # the clock knows nothing of the first step, without which the median is another
def test_the_clock_tells_the_unit(step_s: list[float], tmp_path_factory: pytest.TempPathFactory):
    log = read_log(tmp_path_factory.mktemp("history"), wandb_history(step_s), "history.jsonl")
    np.testing.assert_allclose(log.step_s, step_s, atol=1e-6)
    assert any("train/step_time is in ms, by _timestamp" in note for note in log.notes)


def test_a_clock_that_fits_no_unit_is_no_witness(tmp_path: Path):
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "step_time": 0.03} for n in range(5)]
    with pytest.raises(DataError, match="no unit fits '_timestamp'"):
        read_log(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "a.jsonl")


def test_times_of_day_as_text_are_a_clock(tmp_path: Path):
    log = read_log(
        tmp_path, "step,timestamp\n1,2025-03-12T12:00:00.0Z\n2,2025-03-12T12:00:01.5Z\n3,2025-03-12T12:00:03.0Z\n"
    )
    assert log.step_s.tolist() == [1.5, 1.5]


def test_milliseconds_since_1970_are_told_by_their_size(tmp_path: Path):
    assert read_log(tmp_path, "step,timestamp\n1,1700000000000\n2,1700000001500\n").step_s.tolist() == [1.5]


def test_values_of_tensorboard_count_if_the_tag_is_a_step_time(tmp_path: Path):
    text = "Wall time,Step,Value\n1700000000,1,2.5\n1700000002,2,2.0\n1700000004,3,2.0\n"
    assert read_log(tmp_path, text, "run-x-tag-perf_step_time_seconds.csv").step_s.tolist() == [2.5, 2.0, 2.0]
    assert read_log(tmp_path, text, "run-x-tag-train_loss.csv").step_s.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("step,step_time_s\n", "no row holds a value of 'step_time_s'"),
        ("step,step_time_s\n1,x\n", r"steps\.csv:2 step_time_s: 'x' is not a number"),
        ("step,step_time_s\n1,1_0\n", r"steps\.csv:2 step_time_s: '1_0' is not a number"),
        ("step,step_time_s\n1,-2\n", r"steps\.csv:2 step_time_s: -2 is not a step time"),
        ("step,step_time_s\n1,inf\n", r"steps\.csv:2 step_time_s: inf is not a step time"),
        ("step,step_time_s\n1.5,2\n", r"steps\.csv:2 step: 1\.5 is not the number of a step"),
        ("step,step_time_s\ninf,2\n", r"steps\.csv:2 step: inf is not the number of a step"),
        ("step,step_time_s\n1,2,3\n", r"steps\.csv:2: 3 fields, but the first line names 2"),
        ("step,step_time_s,step_time_ms\n1,2,3\n", "several could be the step time"),
        ("loss,lr\n1,2\n", "no column of step times"),
        ("step,_timestamp\n1,7\n", "no two rows between which time passed"),
        ("step,time_s\n" + "".join(f"{n},{n}\n" for n in range(1, 20)), "grows with every entry"),
    ],
)
def test_broken_tables(tmp_path: Path, text: str, match: str):
    with pytest.raises(DataError, match=match):
        read_log(tmp_path, text, "steps.csv")


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ('{"_step": 2,', "not JSON"),
        ("{" * 100_000, "not JSON"),
        ('{"_step": "a", "step_time_s": 1}', "_step: 'a' is not a number"),
        ('{"_step": ' + "9" * 5000 + "}", "not JSON"),
        ("[1]", "not a JSON object"),
    ],
)
def test_broken_lines_of_a_history(tmp_path: Path, bad: str, match: str):
    good = '{"_step": 1, "step_time_s": 1.0}'
    with pytest.raises(DataError, match=rf"a\.jsonl:2:? {match}"):
        read_log(tmp_path, f"{good}\n{bad}\n", "a.jsonl")
    log = read_log(tmp_path, f"{good}\n{bad}\n{good.replace('1,', '2,')}\n", "a.jsonl")
    assert log.step.tolist() == [1, 2]
    assert any("1 row is left out: line 2" in note for note in log.notes)


def state(*records: dict[str, object]) -> str:
    return json.dumps(
        {"best_metric": None, "epoch": 1.0, "global_step": 500, "log_history": records, "max_steps": 500}, indent=2
    )


def test_a_state_of_the_trainer_has_one_mean_or_what_a_callback_logged(tmp_path: Path):
    loss = {"epoch": 0.1, "loss": 2.3, "step": 50}
    end = {"epoch": 1.0, "step": 500, "train_runtime": 1500.0, "train_steps_per_second": 0.333}
    log = read_log(tmp_path, state(loss, end), "trainer_state.json")
    assert (log.step_s.tolist(), log.n_steps.tolist(), log.framework) == ([3.0], [500], "HF Trainer")
    timed = read_log(
        tmp_path,
        state({**loss, "step_time_s": 2.9}, {**loss, "step": 51, "step_time_s": 3.1}, end),
        "trainer_state.json",
    )
    assert timed.step_s.tolist() == [2.9, 3.1]
    with pytest.raises(DataError, match="neither a step time nor train_runtime"):
        read_log(tmp_path, state(loss), "trainer_state.json")
    with pytest.raises(DataError, match="Was the file cut off"):
        read_log(tmp_path, state(loss, end)[:-60], "trainer_state.json")


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize(
    ("tag", "unit_s"), [("perf/step_time_seconds", 1.0), ("iteration-time", 1.0), ("iteration-time", 1e-3)]
)
def test_event_files(tmp_path: Path, tag: str, unit_s: float, as_tensor: bool):
    step_s = [1.5, 1.25, 1.75, 1.5]
    log = read_log(tmp_path, event_file(step_s, tag, unit_s, as_tensor), "events.out.tfevents.1700000000.host.1.0")
    np.testing.assert_allclose(log.step_s, step_s, rtol=1e-6)
    assert log.step.tolist() == [1, 2, 3, 4]


STEP_S = [2.5, 2.0, 2.25, 2.0, 2.125, 1.75]
CLOCK_S = [sum(STEP_S[: n + 1]) for n in range(len(STEP_S))]
NUMBERED = list(enumerate(zip(STEP_S, CLOCK_S, strict=True), start=1))
OTHERS = {
    "logging.jsonl": [  # ms-swift
        {"loss": 2.3, "train_speed(iter/s)": 1 / s, "global_step/max_steps": f"{n}/100", "elapsed_time": f"{int(c)}s"}
        for n, (s, c) in NUMBERED
    ],
    "mmcv.log.json": [{"env_info": "x"}]
    + [{"mode": "train", "iter": n, "data_time": 0.01, "time": s} for n, (s, _) in NUMBERED],
    "scalars.json": [
        {"step": n, "train/batches_per_second": 1 / s, "tokens_per_second": 1e6} for n, (s, _) in NUMBERED
    ],
}


@pytest.mark.parametrize("name", OTHERS)
def test_histories_of_other_trainers(tmp_path: Path, name: str):
    log = read_log(tmp_path, "".join(json.dumps(row) + "\n" for row in OTHERS[name]), name)
    assert log.step.tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(log.step_s, STEP_S)


def test_a_table_of_one_metric_per_row(tmp_path: Path):
    rows = "".join(
        f"r,loss,2.3,{n},{1.7e12 + 1e3 * c:.0f}\nr,step_time,{s},{n},{1.7e12 + 1e3 * c:.0f}\n" for n, (s, c) in NUMBERED
    )
    log = read_log(tmp_path, f"run_id,key,value,step,timestamp\n{rows}", "mlflow.csv")
    np.testing.assert_allclose(log.step_s, STEP_S)


def test_a_clock_of_whole_seconds_in_a_history_gives_means(tmp_path: Path):
    rows = [{"current_steps": n, "elapsed_time": f"0:{2 * n // 60:02d}:{2 * n % 60:02d}"} for n in range(1, 101)]
    log = read_log(tmp_path, "".join(json.dumps(row) + "\n" for row in rows), "trainer_log.jsonl")
    np.testing.assert_allclose(log.step_s, 2.0)
    assert log.n_steps.tolist() == [25, 25, 25]


def test_what_goes_back_is_no_clock(tmp_path: Path):
    rows = "".join(f"{n},{2000 + 10 * (n % 2)}\n" for n in range(1, 30))
    with pytest.raises(DataError, match=r"goes back in 14 of 29 rows.* --map 'elapsed_ms'=step_time"):
        read_log(tmp_path, f"iteration,elapsed_ms\n{rows}")


def test_event_files_without_a_step_time_have_a_clock(tmp_path: Path):
    log = read_log(tmp_path, event_file([1.5, 1.25, 1.75], "train/loss"), "events.out.tfevents.1")
    np.testing.assert_allclose(log.step_s, [1.25, 1.75], rtol=1e-6)


def test_pictures_and_a_cut_end_of_an_event_file_are_passed_over(tmp_path: Path):
    one, two = (event_record(event(1.7e9 + n, n, "step_time_s", 1.0)) for n in (1, 2))
    picture = event_record(b"\x2a" + bytes(2**20))
    assert len(read_log(tmp_path, VERSION + one + picture + two + two[:20], "events.out.tfevents.1")) == 2


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (VERSION, "without scalars"),
        (VERSION + struct.pack("<Q", 2**40) + bytes(100), "record 2 is damaged"),
        (VERSION + event_record(b"\x2a\xff\xff\xff\x7f"), "record 2 is damaged"),
        (VERSION + event_record(b"\x2a" + b"\xff" * 12), "record 2 is damaged"),
        (VERSION + event_record(b"\x0b"), "record 2 is damaged"),
    ],
)
def test_damaged_event_files(tmp_path: Path, content: bytes, match: str):
    with pytest.raises(DataError, match=match):
        read_log(tmp_path, content, "events.out.tfevents.1")


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(30, 400), flip=st.integers(0, 399), byte=st.integers(0, 255))
def test_any_damage_ends_in_an_answer(cut: int, flip: int, byte: int, tmp_path_factory: pytest.TempPathFactory):
    content = bytearray(event_file([1.5] * 6, "step_time_s")[:cut])
    if 26 < flip < len(content):
        content[flip] = byte
    try:
        assert len(read_log(tmp_path_factory.mktemp("events"), bytes(content), "events.out.tfevents.1")) > 0
    except DataError as error:
        assert "events.out.tfevents.1" in str(error)


# --- What names of scalars say ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "unit_s"),
    [
        ("step_time_s", 1.0),
        ("step_time", None),
        ("Step Time (ms)", 1e-3),
        ("train/step_time_ms", 1e-3),
        ("run-7 - train/step_time_s", 1.0),
        ("perf/step_time_seconds", 1.0),
        ("iteration_time_ms", 1e-3),
        ("elapsed_time_per_iteration_s", 1.0),
        ("elapsed_time_per_iteration", None),
        ("iteration-time", None),
        ("time_metrics/end_to_end(s)", 1.0),
        ("train_step_timing in s", 1.0),
        ("ms_per_step", 1e-3),
        ("sec_per_iter", 1.0),
        ("stepTimeMs", 1e-3),
        ("step_us", 1e-6),
    ],
)
def test_step_times(name: str, unit_s: float | None):
    assert is_time(name, beside_steps=False)
    assert not is_step(name)
    assert meaning(name).unit_s == unit_s


@pytest.mark.parametrize("name", ["duration", "duration_s", "time_s", "seconds", "dt", "ms"])
def test_plain_times_are_step_times_beside_steps_only(name: str):
    assert is_time(name, beside_steps=True)
    assert not is_time(name, beside_steps=False)


@pytest.mark.parametrize(
    "name", ["step", "_step", "Step", "global_step", "train/global_step", "iteration", "run-7 - _step"]
)
def test_numbers_of_steps(name: str):
    assert is_step(name)
    assert not is_time(name, beside_steps=True)


@pytest.mark.parametrize("name", ["_timestamp", "_runtime", "Wall time", "timestamp", "Relative Time (s)", "elapsed_s"])
def test_clocks(name: str):
    assert is_clock(name)
    assert not is_time(name, beside_steps=True)


@pytest.mark.parametrize(
    "name",
    ["loss", "lr", "tokens_per_s", "forward_time_ms", "data_time", "run - train/step_time__MAX", "", "s/m", "x" * 9999],
)
def test_other_scalars(name: str):
    assert not is_time(name, beside_steps=True)
    assert not is_clock(name)


def test_training_comes_before_evaluation_and_whole_steps_before_their_parts():
    chosen = choose(["_step", "eval/step_time_s", "train/step_time_s", "train/global_step", "_runtime"], "a.csv:1")
    assert (chosen.step, chosen.time, chosen.clock) == ("train/global_step", "train/step_time_s", "_runtime")


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["a", "b"], r"a\.csv:1: no column of step times\. Looked for .*There are 'a', 'b'"),
        (["Step", "a/step_time_s", "b/step_time_s"], r"several could be the step time: 'a/step_time_s', 'b"),
        (
            ["step", "tokens_per_sec"],
            r"'tokens_per_sec' say no step time without the work of a step\. .*--work-per-step",
        ),
        (["loss"], r"no column of step times"),
    ],
)
def test_what_cannot_be_told_is_refused(names: list[str], match: str):
    with pytest.raises(DataError, match=match):
        choose(names, "a.csv:1")


def test_a_stated_unit_must_not_contradict_the_name():
    assert choose(["step", "step_time"], "a", Stated(1e-3)).unit_s == 1e-3
    assert choose(["step", "step_time_ms"], "a", Stated(1e-3)).unit_s == 1e-3
    with pytest.raises(DataError, match="another unit than --unit"):
        choose(["step", "step_time_s"], "a", Stated(1e-3))
