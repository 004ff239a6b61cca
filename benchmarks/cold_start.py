"""Whole commands from the outside: wall seconds with an empty compilation cache, with a filled one, and of the
commands without JAX."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

JOB = "examples/llama3_405b_16384.yaml"
LIGHT = (["--help"], ["check", JOB], ["show", "models"], ["show", "devices"], ["show", "schedules"])
REPEATS = 3


def main() -> None:
    cold, cached = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_seconds(["predict", JOB], folder))
            cached.append(_seconds(["predict", JOB], folder))
    print(f"predict, nothing cached:   median {sorted(cold)[REPEATS // 2]:.2f} s, min {min(cold):.2f} s")
    print(f"predict, programs cached:  median {sorted(cached)[REPEATS // 2]:.2f} s, min {min(cached):.2f} s")
    for arguments in LIGHT:
        found = sorted(_seconds(arguments, "") for _ in range(2 * REPEATS))
        print(f"{' '.join(arguments):44s} median {found[REPEATS]:.2f} s, min {found[0]:.2f} s")


def _seconds(arguments: list[str], cache: str) -> float:
    environment = {**os.environ, "PRISM_JAX_CACHE": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "prism_jax", *arguments], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
