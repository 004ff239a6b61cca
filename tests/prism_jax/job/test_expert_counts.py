"""Tables of the tokens of experts: both forms and both formats are one, what is wrong is named, jobs take them where they lie."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from prism_jax.core.errors import ConfigError, SpecError
from prism_jax.job.load_job import load_job
from prism_jax.job.read_tables import expert_columns, read_counts
from prism_jax.job.write_job import job_with_plan
from prism_jax.simulate.program import lower

TOKENS = np.random.default_rng(0).integers(1, 900, (12, 3, 8))
JOB = """
model: {{preset: mixtral-8x7b, moe: {{routing: {{counts: {file}}}}}}}
cluster: {{preset: dgx-h100, n_devices: 64}}
plan: {{micro_batch: 1, global_batch: 64, seq_len: 4096, dp: 32, tp: 2, ep: 8, zero_stage: 1}}
"""


def long() -> pd.DataFrame:
    at = np.indices(TOKENS.shape).reshape(3, -1)
    return pd.DataFrame(dict(zip(("step", "layer", "expert"), at, strict=True)) | {"tokens": TOKENS.ravel()})


def wide(name: str) -> pd.DataFrame:
    found = long().pivot_table(index=["step", "layer"], columns="expert", values="tokens").astype(int)
    return found.rename(columns=name.format).reset_index()


@pytest.mark.parametrize("name", ["{}", "expert_{}", "e{}", "Expert {}"])
def test_wide_and_long_tables_in_csv_and_parquet_are_one(name: str, tmp_path: Path) -> None:
    for k, frame in enumerate((long(), long().sample(frac=1.0, random_state=1), wide(name))):
        frame.to_csv(tmp_path / f"{k}.csv", index=False)
        frame.to_parquet(tmp_path / f"{k}.parquet")
        for file in (f"{k}.csv", f"{k}.parquet"):
            np.testing.assert_array_equal(read_counts(tmp_path / file).tokens, TOKENS)


def test_names_of_other_trainers_and_rows_without_tokens(tmp_path: Path) -> None:
    """Several micro-batches of one step are added up; experts that got nothing may be absent."""
    table = long().rename(columns={"step": "iteration", "layer": "layer_id", "expert": "Expert_ID", "tokens": "load"})
    twice = pd.concat([table, table[table["load"] > 450]])
    twice.to_csv(tmp_path / "a.csv", index=False)
    np.testing.assert_array_equal(read_counts(tmp_path / "a.csv").tokens, TOKENS + TOKENS * (TOKENS > 450))


def test_columns_of_experts() -> None:
    assert expert_columns(["step", "layer", "0", "1", "2"]) == {"0": "0", "1": "1", "2": "2"}
    assert expert_columns(["step", "expert", "0", "1"]) == {}
    assert expert_columns(["e1"]) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step,layer,expert\n0,0,1\n", "no column tokens"),
        ("step,layer,expert,tokens\n0,0,a,3\n0,0,b,x\n", "line 3: 'x' is no number of tokens"),
        ("step,layer,expert,tokens\n0,0,a,3\n0,0,b,-1\n", "no number of tokens"),
        ("step,layer,expert,tokens\n0,0,a,3\n0,0,b,nan\n", "no number of tokens"),
        ("step,layer,expert,tokens\n0,0,a,3\n", "all rows are of one expert"),
        ("step,layer,expert,tokens\n0,0,a,0\n0,0,b,0\n", "no expert has any tokens"),
        ("step,layer,expert,tokens\n0,0,a,3\n0,0,b,1\n1,0,a,3\n1,1,b,3\n", "3 of 4 steps and layers"),
        ("step,layer,expert,tokens\n", "no rows"),
    ],
)
def test_what_is_wrong_is_named(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(SpecError, match=said):
        read_counts(tmp_path / "c.csv")


def job_file(folder: Path, file: str) -> Path:
    (folder / "job.yaml").write_text(JOB.format(file=file))
    return folder / "job.yaml"


def test_a_job_takes_counts_from_its_folder_and_is_written_with_them(tmp_path: Path) -> None:
    wide("{}").to_csv(tmp_path / "counts.csv", index=False)
    job: Any = load_job(job_file(tmp_path, "counts.csv"))
    np.testing.assert_array_equal(job.model.moe.routing.counts.tokens, TOKENS)
    program = lower(job)
    assert program.work is not None
    assert program.work.popularity is not None
    (tmp_path / "other").mkdir()
    text = job_with_plan(tmp_path / "job.yaml", (), {"tp": 1, "dp": 64}, (), "", folder=tmp_path / "other")
    (tmp_path / "other" / "new.yaml").write_text(text)
    again: Any = load_job(tmp_path / "other" / "new.yaml")
    assert again.model.moe.routing.counts.tokens.shape == TOKENS.shape


@pytest.mark.parametrize(
    ("file", "said"),
    [("none.csv", "counts: .*none.csv: cannot be read"), ("3", "counts: must be a table"), ("few.csv", "2 experts")],
)
def test_a_job_says_what_is_wrong_with_its_counts(file: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("step,layer,expert,tokens\n0,0,a,3\n0,0,b,1\n")
    with pytest.raises(ConfigError, match=said):
        load_job(job_file(tmp_path, file))
