"""How experiments start, and how they compare their figures with the expected ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

from experiments.common import check, check_or_keep, known, moved

ROOT = Path(__file__).resolve().parents[2]
FOUND = {"a": {"share": 0.5, "tp": 8.0}}


def written(folder: Path, share: float = 0.5, tp: float = 8.0) -> Path:
    file = folder / "expected.json"
    file.write_text(json.dumps({"a": {"share": share, "tp": tp}}))
    return file


def test_what_is_within_its_tolerance_has_not_moved(tmp_path: Path, capsys):
    file = written(tmp_path, 0.5039, 8.4)
    assert moved(FOUND, file, {"tp": 0.5}) == []
    assert check(FOUND, file, {"tp": 0.5}) == 0
    assert capsys.readouterr().out == "as expected\n"


def test_figures_are_written_unless_they_are_compared(tmp_path: Path):
    file = written(tmp_path, 0.4)
    assert check_or_keep(FOUND, file, is_check=True) == 1
    assert known(file)["a"]["share"] == 0.4
    assert check_or_keep(FOUND, file, is_check=False) == 0
    assert known(file) == FOUND


def test_what_has_moved_is_named_with_both_values(tmp_path: Path, capsys):
    file = written(tmp_path, 0.51)
    assert moved(FOUND, file) == ["a share: 0.5000, expected 0.5100"]
    assert check(FOUND, file) == 1
    assert "a share" in capsys.readouterr().out


def test_a_figure_that_is_not_expected_has_moved(tmp_path: Path):
    assert moved({"b": {"share": 0.1}}, written(tmp_path)) == ["b share: 0.1000, not expected"]


def test_without_a_file_nothing_is_known(tmp_path: Path):
    assert known(tmp_path / "expected.json") == {}
    assert known(written(tmp_path)) == {"a": {"share": 0.5, "tp": 8.0}}


def test_start_reaches_a_jax_that_is_imported_already(tmp_path: Path):
    code = (
        "import os, jax; from experiments.common import start; start();"
        "print(jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_entry_size_bytes,"
        " len(jax.devices()) == len(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    )
    own = {"PYTHONPATH": str(ROOT), "PRISM_JAX_CACHE": str(tmp_path)}
    dropped = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "XLA_FLAGS", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in dropped} | own
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path), "-1", "True", "1"]
