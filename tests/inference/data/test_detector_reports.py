"""Reports of detectors as measurements of GPUs."""

from typing import Any

import numpy as np
import pytest

from inference.data.read import read_measurements
from inference.fleet.data import COLUMNS as FLEET
from tests.inference.data.tables import STEPS, accounted
from tests.support.detector_reports import N_GPU, OF_NODES, REPORTS, SLOW, factors, megatron_straggler


@pytest.mark.parametrize("case", REPORTS)
def test_times_per_gpu_are_those_of_the_report(tmp_path, case):
    _, name, text = REPORTS[case]
    (tmp_path / name).write_text(text(factors()))
    found = read_measurements([tmp_path / name], FLEET)
    assert accounted(found)
    node = found.frame["node"].astype(str) if "node" in found.frame else ""
    frame: Any = found.frame.assign(gpu=node + ":" + found.frame["gpu"].astype(str))
    if case not in (*OF_NODES, "nvrx", "megatron-straggler", "megatron-sniff-test"):
        assert frame["gpu"].nunique() == N_GPU
    kernel = frame["kernel"].iloc[0] if "kernel" in frame else None
    own = frame if kernel is None or frame["kernel"].isna().all() else frame[frame["kernel"] == kernel]
    typical = own.groupby("gpu")["duration_s"].median()
    usual = min(SLOW.values()) if case == "megatron-sniff-test" else 1.0  # it lists outliers alone
    assert max(typical / typical.min()) == pytest.approx(max(SLOW.values()) / usual, rel=0.05)


def test_steps_of_a_log_with_a_detector_in_it_are_still_steps(tmp_path):
    (tmp_path / "train.log").write_text(megatron_straggler(factors(), n_report=8))
    found = read_measurements([tmp_path / "train.log"], STEPS)
    assert np.allclose(found.frame["duration_s"], 10 * 4.0112)  # of 10 iterations
