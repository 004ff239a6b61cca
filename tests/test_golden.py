"""Every command prints and writes what is stored in tests/golden; `python -m benchmarks.golden record` renews it."""

from pathlib import Path

import pytest

from benchmarks.golden.cases import stored_cases
from benchmarks.golden.differences import differing_lines
from benchmarks.golden.inputs import write_inputs
from benchmarks.golden.stored import ROOT, STORED, TOLERANCE, environment, file_of
from benchmarks.golden.transcript import Main, play
from benchmarks.golden.worker import main_of


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden_inputs")
    write_inputs(folder)
    return folder


@pytest.fixture(scope="module")
def program() -> Main:
    return main_of(ROOT)


@pytest.mark.parametrize("name", stored_cases())
def test_output_is_what_is_stored(
    name: str, inputs: Path, program: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in environment().items():
        monkeypatch.setenv(variable, value)
    stored = file_of(name).read_text(encoding="utf-8")
    found = play(stored_cases()[name], inputs, tmp_path, program, ROOT, brief=True)
    lines = differing_lines(stored, found, TOLERANCE)
    assert not lines, "\n".join([*lines, "if that is intended: python -m benchmarks.golden record --only " + name])


def test_every_stored_file_has_a_case() -> None:
    assert {file_of(name) for name in stored_cases()} == set(STORED.rglob("*.txt"))


@pytest.mark.parametrize(
    ("new", "differs"),
    [
        ("p50  1.2346 s of 40 rows", True),  # more than the last digit and the tolerance
        ("p50  1.2341 s of 40 rows", False),
        ("p50 1.2340 s of 40 rows", False),
        ("p50  1.2340 s of 41 rows", True),
        ("p50  1.2340 s in 40 rows", True),
        ("p50  1.2340 s of 40 rows\n", False),
        ("p50  1.2340 s of 40 rows\n\n", True),
    ],
)
def test_words_and_counts_are_exact_and_figures_are_rounded(new: str, differs: bool) -> None:
    old = "p50  1.2340 s of 40 rows"
    assert bool(differing_lines(old, new, TOLERANCE)) is differs
    assert differing_lines(old, old, 0.0) == []
    assert differing_lines(old, "p50  1.2341 s of 40 rows", 0.0)
