"""A detector of one's own: one file, no change of the package."""

import re

import pytest

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.detectors import DETECTORS
from prism_jax.slowdowns.find_slow_gpus import find_slow_gpus
from prism_jax.slowdowns.readings import DetectorFile, DetectorReadings, SlowdownDetector, place_of
from prism_jax.slowdowns.slowdowns_file import read_slowdowns


def read_burn_in(file: DetectorFile) -> DetectorReadings:
    """Rates of GPUs."""
    found = DetectorReadings(file.name, n_report=1)
    for number, line in file.lines():
        if match := re.match(r"burn-in (\S+) gpu(\d+): (\d+) GFLOP/s", line):
            where = f"{file.name}:{number}"
            found.add(where, place_of(where, match[1], match[2]), "burn-in", "rate", float(match[3]))
    return found


BURN_IN = SlowdownDetector("burn-in", "logs of our burn-in", read_burn_in, sign=re.compile("^burn-in "))


def test_its_files_are_known_wherever_slowdowns_are_read(tmp_path):
    log = tmp_path / "burn.log"
    log.write_text("".join(f"burn-in n{k // 4} gpu{k % 4}: {800 if k != 6 else 640} GFLOP/s\n" for k in range(8)))
    with DETECTORS.with_item(BURN_IN):
        (slow,) = find_slow_gpus([log]).slow
        assert (slow.host, slow.index) == ("n1", 2)
        assert slow.factor == pytest.approx(1.25)
        assert read_slowdowns(log, 8, 4).factors["all"][6] == pytest.approx(1.25)
    with pytest.raises(DataError, match="no report of a detector"):
        find_slow_gpus([log])
