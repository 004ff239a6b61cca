"""One search and one brute force, by one process and by two that share it on loopback, each held to one core.

    python -m benchmarks.distributed search brute-force

Prints wall and processor seconds of each process, start-up included, and whether the answers are the same to the last bit. The
speed of two is the time of one over that of the slower of two; other load spoils walls, hardly processor seconds. Programs are
compiled and kept by a run before. The bar is 1.7 for both, of walls on a quiet machine with two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

COMMANDS = {
    "search": ["search", "llama3_405b_16384", "--any-framework"],
    "brute-force": ["predict", "llama3_405b_16384", "--method", "brute-force", "--samples", "16384", "--fast"],
}
BAR = 1.7
OF_RUN = ("elapsed_s", "record", "command", "started", "git_revision")  # fields in which runs of one answer differ


def runs(words: list[str], n_process: int) -> tuple[Any, float, list[float]]:
    """Answer of the first process, wall seconds, and processor seconds of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    started, running = time.perf_counter(), []
    for k in range(n_process):
        shared = [] if n_process == 1 else ["--processes", f"{k}/{n_process}@127.0.0.1:{port}"]
        running.append(
            subprocess.Popen(
                [
                    "taskset",
                    "-c",
                    str(cores[k % len(cores)]),
                    sys.executable,
                    "-m",
                    "prism_jax",
                    *words,
                    "--json",
                    *shared,
                ],
                stdout=subprocess.PIPE if k == 0 else subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"JAX_PLATFORMS": "cpu"},
            )
        )
    assert running[0].stdout is not None
    text, spent = running[0].stdout.read(), []
    for one in running:
        _, status, usage = os.wait4(one.pid, 0)
        one.returncode = os.waitstatus_to_exitcode(status)
        assert one.returncode == 0, f"exit code {one.returncode} of process {len(spent)}"
        spent.append(usage.ru_utime + usage.ru_stime)
    return json.loads(text), time.perf_counter() - started, spent


def of_answer(report: Any) -> Any:
    """The report without what differs from run to run."""
    return {name: value for name, value in report.items() if name not in OF_RUN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=" or ".join(COMMANDS))
    for name in parser.parse_args().parts or COMMANDS:
        for n_process in (1, 2):
            runs(COMMANDS[name], n_process)
        (one, wall_1, spent_1), (two, wall_2, spent_2) = (runs(COMMANDS[name], n) for n in (1, 2))
        same = "the same to the last bit" if of_answer(one) == of_answer(two) else "OTHER FIGURES"
        each = " and ".join(f"{own:.1f}" for own in spent_2)
        print(
            f"{name}: one process {wall_1:.1f} s, {spent_1[0]:.1f} of its core; two {wall_2:.1f} s, {each} of their cores: "
            f"{wall_1 / wall_2:.2f} times as fast by walls, {spent_1[0] / max(spent_2):.2f} by processor seconds "
            f"(bar {BAR}); {same}",
            flush=True,
        )


if __name__ == "__main__":
    main()
