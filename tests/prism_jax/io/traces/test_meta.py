"""Metadata of a trace: both spellings, and which file belongs to which trace."""

from pathlib import Path

import pytest

from prism_jax.core.errors import ConfigError, DataError
from prism_jax.recorded.formats.open_trace import find_meta, read_meta
from prism_jax.trace.trace import JobShape

PUBLISHED = (
    "trial_name: SE\nrun_id: 0\ndp_size: 32\ndsp_size: 2\npp_size: 2\ntp_size: 1\nvpp_size: 1\nworld_size: 128\n"
)


def write(path: Path, text: str = "dp: 1\n") -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_published_names_and_ours_mean_the_same(tmp_path: Path):
    expected = JobShape("SE", dp=32, pp=2, tp=1, sp=2, virtual_stages=1)
    ours = "name: SE\ndp: 32\nsp: 2\npp: 2\ntp: 1\nvirtual_stages: 1\nworld_size: 128\n"
    assert read_meta(write(tmp_path / "a.yaml", PUBLISHED)) == expected
    assert read_meta(write(tmp_path / "b.yaml", ours)) == expected


def test_what_is_absent_is_one_and_the_file_names_the_job(tmp_path: Path):
    assert read_meta(write(tmp_path / "job7.yaml", "pp: 4\n")) == JobShape("job7", pp=4)


def test_every_mistake_is_listed_with_its_line(tmp_path: Path):
    path = write(tmp_path / "m.yaml", "dp: 0\npp: two\nworld_sise: 3\nname: [a]\n")
    with pytest.raises(ConfigError) as error:
        read_meta(path)
    assert [str(mistake).split(": ")[0] for mistake in error.value.mistakes] == [
        f"{path}:3:1 world_sise",
        f"{path}:1:1 dp",
        f"{path}:2:1 pp",
        f"{path}:4:1 name",
    ]


def test_wrong_world_size_says_the_right_one(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"dp 32 x pp 2 x tp 1 x sp 2 = 128\. Write 128, or correct the degrees"):
        read_meta(write(tmp_path / "m.yaml", PUBLISHED.replace("128", "64")))


def test_absent_file_is_said(tmp_path: Path):
    with pytest.raises(DataError, match=r"no\.yaml: cannot be read: No such file"):
        read_meta(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    ("trace", "files", "found"),
    [
        ("trace-SE.parquet", ["meta-SE.yaml", "meta-ST.yaml", "meta.yaml"], "meta-SE.yaml"),
        ("trace-SE.parquet", ["meta-ST.yaml"], None),
        ("trace-SE.csv.gz", ["meta-SE.yaml"], "meta-SE.yaml"),
        ("trace-SE.parquet", ["meta.yaml", "meta-ST.yaml"], "meta.yaml"),
        ("ops.csv.gz", ["ops.meta.yaml", "meta.yaml"], "ops.meta.yaml"),
        ("ops.parquet", ["meta.yaml", "meta-A.yaml", "meta-B.yaml"], "meta.yaml"),
        ("ops.parquet", ["meta-A.yaml"], "meta-A.yaml"),
        ("ops.parquet", ["job.yaml"], None),
        ("rank0.pt.trace.json", ["rank0.meta.yaml"], "rank0.meta.yaml"),
    ],
)
def test_metadata_beside_the_trace(tmp_path: Path, trace: str, files: list[str], found: str | None):
    for name in files:
        write(tmp_path / name)
    assert find_meta(tmp_path / trace) == (tmp_path / found if found else None)


def test_metadata_of_a_folder_lies_inside(tmp_path: Path):
    write(tmp_path / "meta-job.yaml")
    assert find_meta(tmp_path) == tmp_path / "meta-job.yaml"


def test_several_that_could_be_meant_are_named(tmp_path: Path):
    for name in ("meta-A.yaml", "meta-B.yaml"):
        write(tmp_path / name)
    with pytest.raises(ConfigError, match=r"meta-A\.yaml, meta-B\.yaml\? Say it with --meta"):
        find_meta(tmp_path / "ops.csv")


def test_published_metadata(shared_data: Path):
    assert read_meta(shared_data / "traces" / "meta-SE.yaml").world_size == 128
    assert read_meta(shared_data / "traces" / "meta-ST.yaml") == JobShape("ST", dp=2, pp=4)


def test_a_trace_with_a_name_as_long_as_names_may_be_has_no_metadata(tmp_path: Path):
    assert find_meta(tmp_path / f"{'x' * 251}.csv") is None
