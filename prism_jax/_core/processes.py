"""Processes of this host that share work which Python does one piece at a time."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from ..errors import DataError
from ..start_jax import start_jax

MOST = 256


def check_workers(n_workers: int) -> None:
    """Refuses a number of processes that no host has.

    Raises:
        DataError: below 1 or above `MOST`.
    """
    if not 1 <= n_workers <= MOST:
        raise DataError(f"--workers: {n_workers}, but it must be between 1 and {MOST}")


@contextmanager
def processes(n_workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool whose functions and arguments are pickled; where the caller fails, what has not begun is given up.

    Notes:
        The processes start from nothing: a fork of one that has started JAX may hang. A script that asks for more than one needs
        `if __name__ == "__main__":` around its work.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_workers, mp_context=context, initializer=_start) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start() -> None:
    """JAX as on the command line; a process whose parent was killed ends, too."""
    start_jax()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
