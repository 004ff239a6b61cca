"""The notebooks of `examples/notebooks`: small, without outputs, of public names alone, and every cell runs."""

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import prism_jax

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 10_000


def cells(notebook: Path) -> list[dict[str, Any]]:
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


def code(notebook: Path) -> list[str]:
    """Sources of the code cells."""
    return ["".join(cell["source"]) for cell in cells(notebook) if cell["cell_type"] == "code"]


each = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


@each
def test_notebooks_hold_no_outputs_and_are_small(notebook: Path):
    assert notebook.stat().st_size < MOST_BYTES
    made = [cell for cell in cells(notebook) if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in made)
    assert cells(notebook)[0]["cell_type"] == "markdown"


@each
def test_notebooks_use_public_names_alone(notebook: Path):
    for node in ast.walk(ast.parse("\n".join(code(notebook)))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("prism_jax", "inference")):
            assert node.module == "prism_jax"
            assert {alias.name for alias in node.names} <= set(prism_jax.__all__)


@each
def test_all_cells_run(notebook: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        for number, source in enumerate(code(notebook)):
            exec(compile(source, f"{notebook.name}, cell {number}", "exec"), names)
