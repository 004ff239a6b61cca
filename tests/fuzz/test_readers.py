"""Whatever becomes of a file, reading it ends well or in one error that names the file, in time and within memory.

`pytest -m slow tests/fuzz --hypothesis-seed=N` damages the files in ways that no run before has tried; without a seed they are
always the same.
"""

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from prism_jax.core.errors import MOST_LINE, PrismError
from tests.fuzz.changes import changed
from tests.fuzz.readers import READERS, Reader

N_FAST, N_SLOW = 150, 20_000  # of each reader; of all together
MOST_S = 10.0
MOST_BYTES = 1e9  # more than the process held before
QUIET = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large)


def ends_well(reader: Reader, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.use(file)
    except PrismError as error:
        assert any(one.name in str(error) for one in file.parent.iterdir()), f"no file: {error}"
        assert all(len(line) <= MOST_LINE for line in str(error).split("\n"))


def memory_bytes(field: str) -> int:
    """Memory of this process by `field` of the kernel's status: VmRSS is of now, VmHWM the largest since it was last reset."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith(f"{field}:")).split()[1])


def memory_is_measured() -> bool:
    """Reset the largest size of this process, and say whether this system can."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


@contextmanager
def bounded_memory(most_bytes: float = MOST_BYTES) -> Iterator[None]:
    """Fail where the process grows by more than `most_bytes` meanwhile, whatever tests before have left in it."""
    before = memory_bytes("VmRSS") if memory_is_measured() else None
    yield
    if before is not None:
        assert memory_bytes("VmHWM") - before < most_bytes


def fuzz(reader: Reader, folder: Path, n: int, seed: str | None = None) -> None:
    """`n` damaged files, always the same ones where `seed` (which Hypothesis takes from its option itself) is None."""

    @settings(
        max_examples=max(1, math.ceil(n * reader.share)),
        derandomize=seed is None,
        database=None,
        deadline=1000.0 * MOST_S,
        suppress_health_check=QUIET,
    )
    @given(changed(reader.seeds))
    def run(content: bytes) -> None:
        ends_well(reader, folder / reader.file, content)

    run()


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_valid_files_are_read(reader: Reader, tmp_path: Path) -> None:
    for content in reader.seeds:
        (tmp_path / reader.file).write_bytes(content)
        reader.use(tmp_path / reader.file)


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_damaged_files_are_read_or_refused(reader: Reader, tmp_path: Path) -> None:
    with bounded_memory():
        fuzz(reader, tmp_path, N_FAST)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_many_damaged_files(reader: Reader, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    each = math.ceil(N_SLOW / sum(one.share for one in READERS))
    with bounded_memory():
        fuzz(reader, tmp_path, each, request.config.getoption("--hypothesis-seed"))


def test_the_bound_on_memory_can_fail() -> None:
    if not memory_is_measured():
        pytest.skip("this system cannot reset the largest size of a process")
    with pytest.raises(AssertionError), bounded_memory(50e6):
        _ = bytearray(b"1") * 100_000_000
