"""Memory and seconds of `trace info` and `trace predict` on large parquet tables of ops.

    python benchmarks/large_trace.py [--ops 7_900_000 50_000_000] [--folder /tmp]

The first size is just below what is read; a table of the second has 2 GB and is refused. Tables are made in a temporary folder
and removed afterwards. Peaks are those of a process of its own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DP, MICRO_BATCHES = 128, 8
KINDS = ("forward-compute", "backward-compute")
MOST_S, MOST_BYTES = 3600.0, 2e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=lambda text: int(float(text)), nargs="+", default=[7_900_000, 50_000_000])
    parser.add_argument("--folder", type=Path, default=None)
    chosen = parser.parse_args()
    for n_ops in chosen.ops:
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            file = Path(folder) / "trace.parquet"
            write(file, n_ops)
            print(f"{n_ops:,} ops, {file.stat().st_size / 1e9:.2f} GB")
            for words in (["trace", "info", str(file)], ["trace", "predict", str(file), "--draws", "200"]):
                measure(words)


def write(file: Path, n_ops: int) -> None:
    """Steps of `DP` replicas, one row group for each some of them; starts have all their digits, so that they do not compress."""
    rng, each = np.random.default_rng(0), DP * MICRO_BATCHES * len(KINDS)
    with pq.ParquetWriter(file, table(0, rng).schema, compression="none", use_dictionary=False) as writer:
        for step in range(0, n_ops // each, 64):
            writer.write_table(pa.concat_tables(table(own, rng) for own in range(step, step + 64)))


def table(step: int, rng: np.random.Generator) -> pa.Table:
    """The ops of one step."""
    dp, micro_batch, late = (part.ravel() for part in np.mgrid[:DP, :MICRO_BATCHES, : len(KINDS)])
    duration_s = 0.9 + 0.05 * rng.random(len(dp))
    ends_s = duration_s.reshape(DP, -1).cumsum(axis=1).ravel()  # one op after the other on each replica
    return pa.table(
        {
            "step": np.full(len(dp), step),
            "dp": dp,
            "op_type": pa.DictionaryArray.from_arrays(late.astype(np.int8), list(KINDS)).cast(pa.string()),
            "micro_batch": micro_batch,
            "start_s": 20.0 * step + ends_s - duration_s,
            "duration_s": duration_s,
        }
    )


def measure(words: Sequence[str]) -> None:
    """Runs a command and prints what it took."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CHILD, *words], capture_output=True, text=True, timeout=MOST_S)
    seconds = time.perf_counter() - started
    peak_bytes = 1024 * int(done.stdout.rsplit("\n", 2)[-2])
    verdict = "met" if done.returncode in (0, 2) and peak_bytes <= MOST_BYTES else "MISSED"
    print(f"  {' '.join(words[:2])}: exit {done.returncode}, {seconds:.1f} s, {peak_bytes / 1e9:.2f} GB: {verdict}")
    if done.returncode:
        print(f"    {done.stderr.strip()[-300:]}")


CHILD = """
import sys
from prism_jax.shell.app import main
code = main(sys.argv[1:])
import resource
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
sys.exit(code)
"""


if __name__ == "__main__":
    main()
