"""The scripts that `measure` writes stand alone, run on a CPU, and their tables go into three fits as they are."""

import ast
import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

import prism_jax as pj
from prism_jax.__main__ import main
from prism_jax.core.errors import DataError
from prism_jax.measure.write_scripts import HERE, SCRIPTS

N_GPU, N_RUN, N_SHAPE, N_SIZE = 4, 3, 13, 5  # devices, rounds, small shapes of kernels, small messages


def run(script: str, folder: Path, *options: str) -> None:
    command = [
        sys.executable,
        str(HERE / script),
        "--small",
        "--repeats",
        str(N_RUN),
        "--output",
        str(folder),
        *options,
    ]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "XLA_FLAGS")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def goes_into_fits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of the tables is used by the fits, whose checks may fail where a busy machine disturbs the times."""
    kernels, collectives = rows(folder / "kernels.csv"), rows(folder / "collectives.csv")
    assert len(kernels) == N_GPU * N_RUN * N_SHAPE
    assert len({row["gpu_uuid"] for row in kernels}) == N_GPU
    assert {row["op"] for row in kernels} == {"gemm", "attention", "memory"}
    assert len(collectives) == 2 * N_RUN * N_SIZE
    assert {row["op"]: row["n_gpus"] for row in collectives} == {"all_reduce": "4", "all_gather": "4"}
    assert all(0.0 < float(row["duration_s"]) < 60.0 for row in (*kernels, *collectives))
    monkeypatch.chdir(folder)
    for name, table, n, method in (
        ("kernels", "kernels.csv", len(kernels), "map"),
        ("fleet", "kernels.csv", len(kernels), "map"),
        ("collectives", "collectives.csv", len(collectives), "least_squares"),
    ):
        found = pj.fit_variability(name, [table], method=method)
        assert f"{n} of {n} rows" in str(found), name


def test_jax_measures_four_devices_of_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("measure_jax.py", tmp_path, "--cpu-devices", str(N_GPU))
    goes_into_fits(tmp_path, monkeypatch)


def test_torch_measures_with_four_processes_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="this script measures with PyTorch")
    run("measure_torch.py", tmp_path, "--processes", str(N_GPU))
    goes_into_fits(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_are_short_and_need_their_own_library_alone(name: str) -> None:
    text = (HERE / name).read_text()
    assert len(text.splitlines()) < 300
    nodes = list(ast.walk(ast.parse(text)))
    imported = {one.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for one in node.names}
    imported |= {str(node.module).partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported - sys.stdlib_module_names == {"torch" if "torch" in name else "jax"}


def test_both_scripts_have_the_same_columns_and_shapes() -> None:
    constants = []
    for name in SCRIPTS:
        body = ast.parse((HERE / name).read_text()).body
        own = {ast.unparse(node.targets[0]): ast.unparse(node.value) for node in body if isinstance(node, ast.Assign)}
        constants.append({key: value for key, value in own.items() if key not in ("DTYPES", "Shape")})
    assert constants[0] == constants[1]


def test_the_command_writes_them_and_replaces_none_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--save-dir", str(tmp_path / "out")]) == 0
    assert "fit kernels kernels.csv" in capsys.readouterr().err
    for name in SCRIPTS:
        assert (tmp_path / "out" / name).read_text() == (HERE / name).read_text()
    with pytest.raises(DataError, match="is there already"):
        pj.write_measuring_scripts(save_dir=tmp_path / "out")
    assert len(pj.write_measuring_scripts(save_dir=tmp_path / "out", overwrite=True)) == len(SCRIPTS)
