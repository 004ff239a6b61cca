"""A log written from known steps reads back those steps, in every format that has one."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.trace.step_log import StepLog
from tests.support.training_logs import LOGS, Written

SECONDS = st.lists(st.integers(800, 1500).map(lambda ms: ms / 1e3), min_size=3, max_size=8)


def read(folder: Path, written: Written, step_s: list[float]) -> StepLog:
    path = folder / written.name
    path.write_text(written.write(step_s), encoding="utf-8")
    found = open_trace(path)
    assert isinstance(found, StepLog)
    return found


@pytest.mark.parametrize("kind", LOGS)
@settings(max_examples=15, deadline=None)
@given(step_s=SECONDS)
def test_steps_are_read_back(kind: str, step_s: list[float], tmp_path_factory: pytest.TempPathFactory):
    written = LOGS[kind]
    log = read(tmp_path_factory.mktemp("log"), written, step_s)
    np.testing.assert_allclose(log.step_s, step_s[written.lost :], rtol=0, atol=written.rounds_s)
    assert log.n_steps.tolist() == [1] * len(log)
    assert log.framework == written.framework
    assert np.diff(log.step).tolist() == [1] * (len(log) - 1)


@pytest.mark.parametrize("kind", LOGS)
def test_a_log_of_no_steps_is_refused_with_what_is_read(kind: str, tmp_path: Path):
    path = tmp_path / "train.log"
    path.write_text("loading the model\n" + LOGS[kind].write([])[:0] + "done\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"Supported formats: .*torchtitan, DeepSpeed, MaxText .*Looked for"):
        open_trace(path)
