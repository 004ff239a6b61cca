"""Free GPUs of a cluster, and which of them a job gets. GPUs are numbered from the fastest."""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Protocol

import numpy as np


class Pool(Protocol):
    """Free GPUs; `len` counts them."""

    def __len__(self) -> int: ...

    def take(self, n_gpus: int) -> list[int]:
        """GPUs for a job; there are enough."""
        ...

    def give(self, gpus: list[int]) -> None:
        """GPUs that a job leaves."""
        ...


class AnyGpus:
    """The GPUs that have been free longest, from a random order: no regard to how fast they are."""

    def __init__(self, n_gpus: int, seed: int) -> None:
        self._free = deque(np.random.default_rng([seed, 4]).permutation(n_gpus).tolist())

    def __len__(self) -> int:
        return len(self._free)

    def take(self, n_gpus: int) -> list[int]:
        """The first in the row."""
        leave = self._free.popleft
        return [leave()] if n_gpus == 1 else [leave() for _ in range(n_gpus)]

    def give(self, gpus: list[int]) -> None:
        """To the end of the row."""
        self._free.extend(gpus)


class FastFirst:
    """The fastest free GPUs for every job."""

    def __init__(self, n_gpus: int) -> None:
        self._free = list(range(n_gpus))

    def __len__(self) -> int:
        return len(self._free)

    def take(self, n_gpus: int) -> list[int]:
        """The fastest."""
        taken = self._free[:n_gpus]
        del self._free[:n_gpus]
        return taken

    def give(self, gpus: list[int]) -> None:
        """In their places."""
        for gpu in gpus:
            insort(self._free, gpu)
