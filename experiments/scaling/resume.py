"""Does a sweep that is killed go on where it stopped, with the same table? 1,000 points, `kill -9` at random moments.

python experiments/scaling/resume.py [--points 1000] [--kills 5] [--seed 0]
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

JOB = "llama2_7b_fsdp_64"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, resumed = Path(folder, "whole.csv"), Path(folder, "resumed.csv")
        began = time.perf_counter()
        _run(_command(given.points, whole, Path(folder, "whole.npz")))
        whole_s = time.perf_counter() - began
        journal, rng = Path(folder, "resumed.npz"), np.random.default_rng(given.seed)
        for _ in range(given.kills):
            with subprocess.Popen(_command(given.points, resumed, journal), stdout=subprocess.DEVNULL) as process:
                time.sleep(float(rng.uniform(0.1, 0.9)) * whole_s / given.kills + 12.0)  # start-up, and a first save
                process.send_signal(signal.SIGKILL)
            print(f"killed; the journal has {journal.stat().st_size if journal.exists() else 0:,} bytes")
        _run(_command(given.points, resumed, journal))
        same = whole.read_bytes() == resumed.read_bytes()
    print(f"{given.points} points in {whole_s:.0f} s; {given.kills} kills; tables {'identical' if same else 'DIFFER'}")
    return int(not same)


def _run(command: list[str]) -> None:
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _command(n_points: int, table: Path, journal: Path) -> list[str]:
    """A sweep over bandwidths: all points share one program."""
    values = ",".join(f"{value:.6g} GB/s" for value in np.geomspace(2.0, 100.0, n_points))
    axis = f"cluster.tiers.infiniband.bandwidth={values}"
    files = ["--csv", str(table), "--resume", str(journal)]
    return [sys.executable, "-m", "prism_jax", "sweep", JOB, "--set", axis, "--samples", "64", "-q", *files]


if __name__ == "__main__":
    raise SystemExit(main())
