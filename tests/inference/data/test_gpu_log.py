"""Logs of nvidia-smi and dcgmi, joined to measurements."""

from pathlib import Path

import pandas as pd
import pytest

from inference.data.columns import ModelColumn
from inference.data.read import read_measurements, tidy
from prism_jax.core.errors import DataError
from tests.inference.data.tables import FLEET, accounted, write

SMI = (
    "timestamp, uuid, clocks.current.sm [MHz], temperature.gpu, power.draw [W]\n"
    "1970/01/01 00:01:40.000, GPU-a, 1410 MHz, 60, 250.50 W\n"
    "1970/01/01 00:01:40.000, GPU-b, 1395 MHz, 71, [N/A]\n"
    "1970/01/01 00:01:50.000, GPU-a, 1400 MHz, 62, 255.00 W\n"
    "1970/01/01 00:01:50.000, GPU-b, [Not Supported], 73, [Unknown Error]\n"
)
TIMES = """kernel,gpu_uuid,unix_ts,time_ms
gemm,GPU-a,101,2
gemm,GPU-a,149,3
gemm,GPU-b,103,4
gemm,GPU-c,101,5
gemm,GPU-a,999,6
"""
DCGM = """#Entity   TMPTR                       POWER                       SMCLK
ID        C                           W                           MHz
GPU 0     34                          68.5                        1410
GPU 1     36                          N/A                         1395
GPU 0     36                          70.5                        1400
#Entity   TMPTR                       POWER                       SMCLK
ID        C                           W                           MHz
GPU 1     40                          71.0                        1385
"""


def test_every_row_gets_the_nearest_sample_of_its_gpu(tmp_path: Path) -> None:
    found = read_measurements([write(tmp_path / "t.csv", TIMES), write(tmp_path / "smi.csv", SMI)], FLEET)
    frame = found.frame.set_index("duration_s")
    assert frame["temp_c"].fillna(-1).tolist() == [60, -1, 71, -1, -1]  # 39 s away; no such GPU; 15 minutes away
    assert frame["power_w"].fillna(-1).tolist() == [250.5, -1, -1, -1, -1]
    assert any("2 of 5 rows have a GPU sample within 30 s" in note for note in found.hygiene.notes)
    assert accounted(found)


def test_units_in_the_values_and_none_are_read_alike(tmp_path: Path) -> None:
    plain = SMI.replace(" MHz,", ",").replace(" W\n", "\n").replace(" [MHz]", "").replace(" [W]", "")
    for text in (SMI, plain):
        found = read_measurements([write(tmp_path / "t.csv", TIMES), write(tmp_path / "smi.log", text)], FLEET).frame
        assert found["clock_mhz"].dropna().tolist() == [1410, 1395]


def test_clocks_that_lie_apart_by_a_time_zone_are_refused(tmp_path: Path) -> None:
    late = SMI.replace("00:01", "06:01")
    with pytest.raises(DataError, match=r"t\.csv: no row within 30 s .* is 5\.75 h away.*with their zone"):
        read_measurements([write(tmp_path / "t.csv", TIMES), write(tmp_path / "smi.csv", late)], FLEET)


def test_logs_of_other_gpus_are_refused(tmp_path: Path) -> None:
    other = write(tmp_path / "smi.csv", SMI.replace("GPU-a", "GPU-x").replace("GPU-b", "GPU-y"))
    with pytest.raises(DataError, match=r"have no GPU in common \(they hold GPU-a and GPU-x\)"):
        read_measurements([write(tmp_path / "t.csv", TIMES), other], FLEET)


def test_a_log_without_the_gpus_name_is_refused(tmp_path: Path) -> None:
    smi = write(tmp_path / "smi.csv", "timestamp, temperature.gpu\n1970/01/01 00:01:40.000, 60\n")
    with pytest.raises(DataError, match=r"smi\.csv: no uuid, index or bus id"):
        read_measurements([write(tmp_path / "t.csv", TIMES), smi], FLEET)


def test_dcgmi_has_no_times_and_gives_what_is_typical_of_a_gpu(tmp_path: Path) -> None:
    times = TIMES.replace("GPU-a", "0").replace("GPU-b", "1")
    found = read_measurements([write(tmp_path / "t.csv", times), write(tmp_path / "dmon.txt", DCGM)], FLEET)
    by_gpu = found.frame.groupby("gpu")[["temp_c", "power_w", "clock_mhz"]].first()
    assert by_gpu.loc["0"].tolist() == [35.0, 69.5, 1405.0]
    assert by_gpu.loc["1"].tolist() == [38.0, 71.0, 1390.0]
    assert any("medians of its GPU" in note for note in found.hygiene.notes)


def test_a_table_with_its_own_covariates_does_not_take_others(tmp_path: Path) -> None:
    own = write(
        tmp_path / "t.csv", "kernel,gpu_uuid,unix_ts,time_ms,freq_mhz,temp_c,power_w\ngemm,GPU-a,101,2,999,1,2\n"
    )
    found = read_measurements([own, write(tmp_path / "smi.csv", SMI)], FLEET)
    assert found.frame["clock_mhz"].tolist() == [999]
    assert any("the GPU logs are not used" in note for note in found.hygiene.notes)


def test_a_log_stands_alone_where_no_time_is_asked_for(tmp_path: Path) -> None:
    columns = (
        ModelColumn("gpu", required=True, text=True),
        ModelColumn("clock_mhz", positive=True),
        ModelColumn("temp_c"),
        ModelColumn("power_w"),
    )
    found = read_measurements([write(tmp_path / "smi.csv", SMI)], columns)
    assert found.frame["gpu"].tolist() == ["GPU-a", "GPU-b"] * 2
    assert found.frame["clock_mhz"].dropna().tolist() == [1410, 1395, 1400]


def test_a_table_of_times_with_clocks_is_no_gpu_log() -> None:
    frame = pd.DataFrame(
        {"kernel": "gemm", "uuid": ["GPU-a", "GPU-b"], "clocks.sm [MHz]": ["1410 MHz", "N/A"], "time_ms": [2.0, 3.0]}
    )
    found = tidy(frame, FLEET).frame
    assert found["clock_mhz"].fillna(0).tolist() == [1410, 0]


@pytest.mark.parametrize(
    "date", ["9999-12-31 23:59:59", "2300-01-01", "1500-01-01", "0001-01-01", "30000-01-01", "1e30"]
)
def test_a_date_beyond_nanoseconds_is_a_date_far_away(tmp_path: Path, date: str) -> None:
    times = write(tmp_path / "t.csv", TIMES.replace("149", date).replace("unix_ts", "time"))
    log = write(tmp_path / "smi.csv", SMI + f"{date}, GPU-b, 1395 MHz, 70, 250 W\n")
    found = read_measurements([times, log], FLEET)
    assert len(found.frame) == 5
    assert 70 not in found.frame["temp_c"].tolist()
