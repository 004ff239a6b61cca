"""A Dask cluster on this host: a scheduler and workers as processes of their own, one processor and one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

START_S = 60.0


@dataclass(frozen=True)
class DaskCluster:
    """A running scheduler.

    Attributes:
        address: HOST:PORT.
    """

    address: str

    def worker_pids(self) -> list[int]:
        """Processes of the workers, which nannies start again when they end."""
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=10) as client:
            found: Any = client.run(os.getpid)
            return sorted(int(pid) for pid in found.values())


@contextmanager
def dask_cluster(n_worker: int) -> Iterator[DaskCluster]:
    """Starts a scheduler and workers, and ends them behind the block."""
    from distributed import Client

    started: list[subprocess.Popen[bytes]] = []
    with TemporaryDirectory() as folder:
        quiet = os.environ | {"DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error", "DASK_TEMPORARY_DIRECTORY": folder}
        log = (Path(folder) / "log").open("wb")

        def start(*words: str, core: int | None = None) -> None:
            pinned = [] if core is None else ["taskset", "-c", str(core)]
            command = [*pinned, sys.executable, "-m", "dask", *words]
            started.append(subprocess.Popen(command, stdout=log, stderr=log, env=quiet, start_new_session=True))

        try:
            file = Path(folder) / "scheduler.json"
            start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
            address = _address(file, started[0])
            cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
            for number in range(n_worker):
                core = cores[number % len(cores)] if cores else None
                start("worker", address, "--nthreads", "1", "--no-dashboard", "--memory-limit", "0", core=core)
            with Client(address, timeout=START_S, set_as_default=False) as client:
                client.wait_for_workers(n_worker, timeout=START_S)
            yield DaskCluster(address)
        finally:
            for process in reversed(started):
                _end(process)
            log.close()


def _address(file: Path, scheduler: subprocess.Popen[bytes]) -> str:
    """The address that the scheduler has written."""
    import json

    until = time.monotonic() + START_S
    while time.monotonic() < until and scheduler.poll() is None:
        try:
            return str(json.loads(file.read_text())["address"]).removeprefix("tcp://")
        except (OSError, ValueError, KeyError):
            time.sleep(0.1)
    raise RuntimeError("the Dask scheduler did not start")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process with all that it has started."""
    try:
        os.killpg(process.pid, 15)
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
    except ProcessLookupError:
        pass
