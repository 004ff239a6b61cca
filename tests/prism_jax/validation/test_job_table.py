"""Tables of measured jobs: what a spreadsheet writes is read, and what would count twice or cannot be is refused."""

import shutil
from math import isnan
from pathlib import Path

import pytest

from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.tables.streams import example_files
from prism_jax.validation.job_table import is_job_table, read_job_table

HEADER = "job,set,measured_step_time_s"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table beside a job file, still to be written."""
    shutil.copy(next(iter(example_files().values())), tmp_path / "job.yaml")
    return tmp_path / "runs.csv"


def test_runs_are_read_whatever_the_line_ends_and_the_spaces(file: Path) -> None:
    text = f'{HEADER}\rjob.yaml, ,2.5\r\n\r\n,,\n job.yaml ,"plan.seq_len=1024", 1e0\n'
    file.write_text(text, newline="")
    first, second = read_job_table(file)
    assert (first.measured_s, second.measured_s) == (2.5, 1.0)
    assert second.job.plan.seq_len == 1024
    assert second.id.endswith("line 5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEADER}\njob.yaml,,1.5\njob.yaml,,2\njob.yaml,,1.5\n", "line 4: the same row as runs.csv line 2. Keep one"),
        ("job,measured_step_time_s,job\n", "line 1: the column 'job' is there twice"),
        (
            "job,measured_s,measured_step_time_s\n",
            "line 1: the columns measured_s and measured_step_time_s are the same",
        ),
        (f"{HEADER},date\njob.yaml,,1,31.12.2024\n", "line 2 software.date: .* must be a year, or year and month"),
        (f"{HEADER}\njob.yaml,,1_0\n", "line 2: step_time_s = '1_0'"),
        (f"{HEADER}\njob.yaml,,١\n", "line 2: step_time_s = '١'"),
        (f"{HEADER}\n{'x' * 300},,1\n", "line 2: x+: not a usable file name: .*too long"),
        (f"{HEADER}\njob.yaml,1\n", "line 2: the number of fields differs"),
    ],
)
def test_mistakes_name_the_line(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(DataError, match=f"runs.csv {message}"):
        read_job_table(file)


@pytest.mark.parametrize(
    ("header", "is_table"),
    [
        ("job,step_time_s", True),
        ("model,measured_s", True),
        ("model,cluster,plan.tp", True),  # whose times are missing, which is said
        ("step,date,job,seconds", False),  # a log of a cluster
        ("id,job,loss", False),
    ],
)
def test_a_table_of_jobs_is_told_from_a_log_by_its_columns(file: Path, header: str, is_table: bool) -> None:
    file.write_text(f"{header}\n")
    assert is_job_table(file) == is_table


def test_equal_times_of_runs_with_names_are_two_runs(file: Path) -> None:
    file.write_text(f"id,{HEADER}\na,job.yaml,,1\nb,job.yaml,,1\n")
    assert len(read_job_table(file)) == 2


def test_fields_are_the_job_or_change_the_file_that_a_row_names(file: Path) -> None:
    """Whatever the order of columns, what stands in a section is set after the section; blank is not stated."""
    file.write_text(
        "cluster.n_devices,cluster,job,model,plan.dp,plan.micro_batch,plan.global_batch,plan.seq_len,step_time_s\n"
        "16,dgx-h100,,llama-2-7b,16,1,32,4096,1\n"
        ",,job.yaml,,,,,1024,2\n"
    )
    own, changed = read_job_table(file)
    assert (own.job.model.name, own.job.cluster.n_devices, own.job.plan.dp) == ("llama-2-7b", 16, 16)
    assert own.source == changed.source == "runs.csv"
    assert changed.job.plan.seq_len == 1024
    assert changed.job.cluster == load_job(file.parent / "job.yaml").cluster


def test_a_blank_time_is_no_number(file: Path) -> None:
    file.write_text(f"{HEADER}\njob.yaml,,\n")
    assert isnan(read_job_table(file)[0].measured_s)


def test_the_example_of_the_page_is_read(file: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "job_table.md").read_text(encoding="utf-8")
    file.write_text(page.partition("```text\n")[2].partition("```")[0])
    runs = read_job_table(file)
    assert [run.id for run in runs][::4] == ["one node", "to do"]
    assert runs[1].measured_range == pytest.approx((7.31, 7.51))
    assert runs[3].job.plan.global_batch == 256


TABLE = (
    "row,source,date,software.framework,model,cluster.device,cluster.n_devices,plan.dp,plan.micro_batch,plan.global_batch,plan.tp,"
    "plan.seq_len,measured_s\n"
    "a,lab,2024-05,fsdp,llama-2-7b,h100-sxm,16,16,1,32,,4096,1.5\n"
    "b,lab,,fsdp,llama-2-7b,h100-sxm,16,8,1,32,2,4096,2\n"
)


def test_a_parquet_is_read_as_the_csv_of_the_same_rows(file: Path) -> None:
    import pandas as pd

    file.write_text(TABLE)
    packed = file.with_suffix(".parquet")
    pd.read_csv(file).to_parquet(packed)  # whole numbers with gaps are floats there
    assert is_job_table(packed)
    rows = [[(run.id, run.job, run.measured_s, run.source) for run in read_job_table(one)] for one in (file, packed)]
    assert rows[0] == rows[1]
    assert [run.job.plan.software.date for run in read_job_table(packed)] == ["2024-05", ""]
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(DataError, match="parquet"):
        read_job_table(packed)


def test_a_parquet_has_no_more_text_than_a_csv_may_have(file: Path) -> None:
    """A text that all rows share is stored once: 100 rows of a MiB are a small file, and are not unpacked at once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 100, pa.int32()), pa.array(["x" * 2**20]))
    packed = file.with_suffix(".parquet")
    pq.write_table(pa.table({"notes": shared}), packed, store_schema=False, dictionary_pagesize_limit=2**24)
    assert packed.stat().st_size < 2**18
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(DataError, match="more than 64 MiB of text. Split the table"):
            read_job_table(packed)
    finally:
        pa.set_memory_pool(before)
    assert (pool.max_memory() or 0) < 2**24


@pytest.mark.parametrize("seconds", [[2**62, 0], [-(2**61), 1]])
def test_a_value_that_python_lacks_is_named(file: Path, seconds: list[int]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    packed = file.with_suffix(".parquet")
    table = {"job": ["job.yaml"] * 2, "step_time_s": [1.0, 2.0], "notes": pa.array(seconds, pa.timestamp("ms"))}
    pq.write_table(pa.table(table), packed)
    with pytest.raises(DataError, match="runs.parquet: no parquet file that can be read: column notes: "):
        read_job_table(packed)


def test_what_a_row_leaves_blank_stays_open(file: Path) -> None:
    """The job of a row is built again for its score: what the framework filled in must not count as stated there."""
    file.write_text(TABLE)
    job = read_job_table(file)[0].job
    again = Job(job.model, job.cluster, job.stated_plan, job.variability, framework=job.framework)
    assert "compile" in job.open_software
    assert again.open_software == job.open_software
    assert again.plan == job.plan
