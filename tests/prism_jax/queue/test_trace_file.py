"""Traces of jobs: CSV and parquet say the same, the order of rows says nothing, and wrong values are named."""

import gzip

import numpy as np
import pandas as pd
import pytest

from prism_jax.core.errors import DataError
from prism_jax.queue.trace_file import read_queue_trace

GOOD = "vc,submit_s,gpus,duration_s,user\na,100,1,50.5,x\nb,90,8,10,y\na,100,4,20,z\n"


def read(tmp_path, text, **options):
    (tmp_path / "jobs.csv").write_text(text)
    return read_queue_trace(tmp_path / "jobs.csv", **options)


def test_jobs_are_in_the_order_of_submission_from_zero_on(tmp_path):
    found = read(tmp_path, GOOD)
    assert found.jobs.submit_s.tolist() == [0, 10, 10]
    assert found.jobs.gpus.tolist() == [8, 1, 4]
    assert found.jobs.duration_s.tolist() == [10, 50.5, 20]
    assert found.groups == ("a", "b")
    assert "2 groups" in found.notes[0]


def test_one_group(tmp_path):
    found = read(tmp_path, GOOD, group="a")
    assert found.jobs.gpus.tolist() == [1, 4]
    with pytest.raises(DataError, match="the group 'c' is unknown; there are 'a', 'b'"):
        read(tmp_path, GOOD, group="c")


def test_the_order_of_rows_changes_nothing(tmp_path):
    head, *rows = GOOD.splitlines()
    first, other = read(tmp_path, GOOD), read(tmp_path, "\n".join([head, *reversed(rows)]) + "\n")
    assert first.jobs.gpus.tolist() == other.jobs.gpus.tolist()


def test_parquet_and_packed_csv_say_the_same(tmp_path):
    (tmp_path / "jobs.csv.gz").write_bytes(gzip.compress(GOOD.encode()))
    table = pd.DataFrame(
        {"vc": ["a", "b", "a"], "submit_s": [100, 90, 100], "gpus": [1, 8, 4], "duration_s": [50.5, 10, 20]}
    )
    table.astype({"gpus": np.int16}).to_parquet(tmp_path / "jobs.parquet")
    plain = read(tmp_path, GOOD)
    for name in ("jobs.csv.gz", "jobs.parquet"):
        found = read_queue_trace(tmp_path / name)
        assert found.groups == plain.groups
        for field in ("submit_s", "gpus", "duration_s"):
            assert (getattr(found.jobs, field) == getattr(plain.jobs, field)).all()


def test_copies_are_kept_and_told(tmp_path):
    found = read(tmp_path, "submit_s,num_gpus,run_s\n0,1,5\n0,1,5\n")
    assert len(found.jobs) == 2
    assert found.notes[0].startswith("1 jobs are the same as another")


HEAD = "submit_s,gpus,duration_s\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column submit_s is missing"),
        (HEAD, "no jobs"),
        ("submit_s,gpus\n0,1\n", "column duration_s is missing; there are 'submit_s', 'gpus'"),
        (HEAD + "0,1,-5\n", ":2 duration_s: -5, but it must be above 0"),
        (HEAD + "0,1,0\n", ":2 duration_s: 0, but it must be above 0"),
        (HEAD + "0,1,5\n0,-1,5\n", ":3 gpus: -1, but it must be a whole number"),
        (HEAD + "0,1.5,5\n", "gpus: 1.5, but it must be a whole number"),
        (HEAD + "0,1e30,5\n", "gpus: 1e"),
        (HEAD + "0,many,5\n", ":2 gpus: 'many' is not a number"),
        (HEAD + "2017-09-44 10:30,1,5\n", "submit_s: '2017-09-44 10:30' is not a number"),
        (HEAD + "nan,1,5\n", "submit_s: 'nan' is not a number"),
        (HEAD + "0,1,1e999\n", "duration_s: inf, but it must"),
        (HEAD + "0,1,\n", "duration_s: is empty"),
        (HEAD + "0,1\n", "number of fields"),
        ("submit_s,n_gpus,N-GPUs,duration_s\n0,1,1,5\n", "n_gpus and N-GPUs mean the same"),
        ("submit_s,gpus,duration_s,deadline_s\n10,1,5,9\n", "deadline_s: 9, but it must lie after submit_s"),
    ],
)
def test_wrong_tables_are_named(text, message, tmp_path):
    with pytest.raises(DataError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


def test_steps_of_slurm_and_jobs_without_a_gpu_are_counted(tmp_path):
    notes = read(tmp_path, SACCT_STEPS).notes
    assert "2 jobs without a GPU passed over" in notes
    assert "2 steps of jobs passed over" in notes


HELIOS = (
    "job_id,gpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "a,8,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:01:00,2020-04-01 04:01:00,14400,50\n"
    "b,0,1,COMPLETED,2020-04-01 00:00:20,2020-04-01 00:01:00,2020-04-01 04:01:00,14400,40\n"
    "c,1,1,FAILED,2020-04-01 00:10:00,2020-04-01 00:10:05,2020-04-01 00:20:05,600,5\n"
    "d,2,1,CANCELLED,2020-04-01 00:10:00,,,None,None\n"
)
SACCT = (
    "JobID|Partition|Submit|Start|End|Elapsed|AllocTRES\n"
    "1|a100|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-01T04:01:00|04:00:00|billing=64,cpu=64,gres/gpu=8,node=1\n"
    "2|a100|2024-01-01T00:10:00|2024-01-01T00:10:05|2024-01-01T00:20:05|00:10:00|cpu=8,gres/gpu:a100=1\n"
)
SACCT_STEPS = (
    "JobID|AllocTRES|State|Submit|Start|End|ElapsedRaw|Partition|\n"
    "1|billing=64,cpu=64,gres/gpu=8|COMPLETED|2024-01-01T00:00:10|2024-01-01T00:01:00|2024-01-01T04:01:00|14400|gpu|\n"
    "1.batch|cpu=64,gres/gpu=8|COMPLETED|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T04:01:00|14400||\n"
    "1.0|cpu=64,gres/gpu=8|COMPLETED|2024-01-01T00:01:00|2024-01-01T00:01:00|2024-01-01T04:01:00|14400||\n"
    "2_7|cpu=8,gres/gpu:a100=1|FAILED|2024-01-01T00:10:00|2024-01-01T00:10:05|Unknown|600|gpu|\n"
    "3|cpu=8,node=1|COMPLETED|2024-01-01T00:10:00|2024-01-01T00:10:05|2024-01-01T00:20:05|600|cpu|\n"
    "4||CANCELLED by 1000|2024-01-01T00:10:00|None|2024-01-01T00:20:05|0|gpu|\n"
)
PBS = "Job Id;ngpus;qtime;stime;etime;walltime\n1;8;10;60;0;04:00:00\n2;1;600;605;0;00:10:00\n"
OWN = "when,cards,how_long_min\n10,8,240\n600,1,10\n"


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        (HELIOS, {}),
        (SACCT_STEPS, {}),
        (PBS, {}),
        (PBS.replace(";", "\t"), {}),
        (SACCT, {}),
        ("submitted_time,num_gpus,start_time,end_time\n10,8,60,14460\n600,1,605,1205\n", {}),
        (OWN, {"when": "submit_s", "cards": "gpus", "how_long_min": "duration_s"}),
        (OWN, {"submit_s": "when", "gpus": "cards", "duration_s": "how_long_min"}),
    ],
)
def test_tables_of_others_are_read_by_their_names_or_as_said(text, columns, tmp_path):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    found = read_queue_trace(path, columns=columns)
    assert found.jobs.submit_s.tolist() == [0.0, 590.0]
    assert found.jobs.gpus.tolist() == [8, 1]
    assert found.jobs.duration_s.tolist() == [14400.0, 600.0]


def test_bad_rows_and_jobs_without_gpus_are_counted_and_named(tmp_path):
    found = read(tmp_path, HELIOS)
    assert found.groups == ()  # seconds in the queue are no groups
    assert any("1 row is left out: line 5 duration: 'None' is not a number" in note for note in found.notes)
    assert any("1 job without a GPU passed over" in note for note in found.notes)


def test_wrong_parquet_is_named(tmp_path):
    file = tmp_path / "jobs.parquet"
    for column, values, message in (
        ("gpus", ["1", "2"], "gpus: holds"),
        ("duration_s", [1.0, -2.0], "row 2 duration_s: -2"),
        ("duration_s", [1.0, None], "row 2 duration_s: is empty"),
        ("submit_s", [0.0, np.inf], "row 2 submit_s: inf"),
    ):
        pd.DataFrame({"submit_s": [0, 1], "gpus": [1, 1], "duration_s": [1, 1]} | {column: values}).to_parquet(file)
        with pytest.raises(DataError) as error:
            read_queue_trace(file)
        assert message in str(error.value)
    file.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(DataError, match="not a whole parquet file"):
        read_queue_trace(file)
