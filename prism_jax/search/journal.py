"""Journal: the results of a search so far, in its own file, so that an interrupted search goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.kept_work import Schema, WorkFile
from ..core.processes import Progress
from ..core.together import n_processes, of_first, process_number
from .plan_table import Rows

CHUNK = 256  # plans that a process scores between two looks at the clock
SCORES, PLANS = "scores", "plans"


class Journal:
    """Remembers scores by name; in memory only if there is no file. Of several processes the first reads and writes it.

    Args:
        own: `identity` of the search.
        schema: "NAME/ITEM" -> what that array must be.
        told: of the arrays so far, what the file says of them to whoever looks into it; the search itself never reads that.
    """

    def __init__(
        self,
        path: Path | None = None,
        own: str = "",
        schema: Schema | None = None,
        told: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        is_kept = path is not None and process_number() == 0
        self._file, self._told = WorkFile(path if is_kept else None, "search", own), told if is_kept else None
        self._arrays: dict[str, Any] = of_first(self._file.read(lambda _: schema or {}, in_parts=True) or {})

    def scores(self, name: str, numbers: Rows, score: Callable[[Rows], Floats], progress: Progress) -> Floats:
        """Evaluates `score(numbers)` in chunks and reuses the chunks stored in the journal."""
        scores, plans = f"{name}/{SCORES}", f"{name}/{PLANS}"
        done = self._arrays.get(scores)
        if done is not None and not np.array_equal(self._arrays[plans][: len(done)], numbers[: len(done)]):
            done = None
        while done is None or len(done) < len(numbers):
            start = 0 if done is None else len(done)
            part = score(numbers[start : start + CHUNK * n_processes()])
            done = part if done is None else np.concatenate([done, part])
            self._arrays |= {scores: done, plans: numbers}
            progress(len(done) / len(numbers), f"tails of {len(numbers):,} plans")
            if self._file.is_due:
                self.save()
        return done

    def keep(self, name: str, make: Callable[[], Mapping[str, Floats]]) -> Mapping[str, Floats]:
        """Arrays that `make` gives, or gave in an earlier run."""
        own = f"{name}/"
        if not any(item.startswith(own) for item in self._arrays):
            self._arrays |= {own + item: value for item, value in make().items()}
            self.save()
        return {item.removeprefix(own): value for item, value in self._arrays.items() if item.startswith(own)}

    def refused(self, why: str) -> DataError:
        """The error of a journal that contradicts itself."""
        return self._file.refused(why)

    def save(self) -> None:
        """Writes the file, if there is one to write."""
        self._file.save(self._arrays, **({} if self._told is None else self._told(self._arrays)))
