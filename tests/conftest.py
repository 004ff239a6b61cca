"""What all tests share: one compilation cache, repeatable hypothesis examples, and 64-bit JAX for those who ask."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

# A third of a collection is compiling and rewriting files that did not change since the last one: keep the bytecode, as
# `make test` does, even where the environment says not to. This stands before what it is to hold for.
sys.dont_write_bytecode = False

gc.disable()  # nothing that a collection of tests makes is garbage; see pytest_collection_finish

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent

# Read by JAX when a test first imports it; tests that import no JAX must not pay for it here.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "agg")

settings.register_profile("prism", deadline=None, derandomize=True, database=None, max_examples=50)
settings.load_profile("prism")


def pytest_configure(config: pytest.Config) -> None:
    """The run-time type checker looks at one item of a long list, at random, and so also inside strategies."""
    if config.getoption("--jaxtyping-packages", default=None):
        config.addinivalue_line("filterwarnings", "ignore:Do not use the `random` module")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases that `slow_tests.txt` names are slow; `scripts/slow_tests.py` writes it."""
    named = set((ROOT / "tests" / "slow_tests.txt").read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in named:
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end: the garbage collector need not look at them after every test."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def untyped() -> Iterator[None]:
    """A caller without a type checker: in runs with one, wrong types reach the function all the same."""
    import jaxtyping

    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def x64() -> Iterator[None]:
    """64-bit JAX for one test."""
    import jax

    before = bool(jax.config.read("jax_enable_x64"))
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module")
def shared_data() -> Path:
    """Folder of measured data that lies beside the checkout on some machines and never inside it."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the measured data beside the checkout (../shared/data) are absent")
    return folder


@pytest.fixture(scope="module")
def examples() -> Path:
    """Folder of the shipped jobs."""
    return ROOT / "examples"


@pytest.fixture(scope="session")
def case_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the commands of `report_cases` read: the files of the golden gate, and a kept fit."""
    from tests.support.report_cases import write_case_inputs

    folder = tmp_path_factory.mktemp("cases")
    write_case_inputs(folder)
    return folder


@pytest.fixture(scope="session")
def case_reports() -> dict[str, object]:
    """Reports that were made already."""
    return {}


@pytest.fixture
def report(
    request: pytest.FixtureRequest, case_folder: Path, case_reports: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> object:
    """The answer in Python, made once per kind; clocks and what is free stand still, so that no report tells of them."""
    from tests.support.report_cases import CASES

    monkeypatch.chdir(case_folder)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("prism_jax.show.doctor.available_bytes", lambda: 2.0**33)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=2**33))
    kind = request.param
    if kind not in case_reports:
        case_reports[kind] = CASES[kind][1]()
    return case_reports[kind]
