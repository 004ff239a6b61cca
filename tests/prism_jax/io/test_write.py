"""Written files are whole or absent; run records say what made them."""

import json
import os
import platform
from dataclasses import dataclass

import numpy as np
import pytest

import prism_jax
from prism_jax.core.errors import DataError
from prism_jax.core.write_file import atomic_path, run_record, to_json, write_bytes, write_text


def test_file_is_replaced_whole(tmp_path):
    target = tmp_path / "a.txt"
    write_text(target, "old")
    write_text(target, "new é")
    assert target.read_text(encoding="utf-8") == "new é"
    write_bytes(target, b"\x00\x01")
    assert target.read_bytes() == b"\x00\x01"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError, SystemExit])
def test_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, interruption):
    target = tmp_path / "a.png"
    target.write_text("old")
    with pytest.raises(interruption), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise interruption
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_temporary_file_keeps_the_ending_and_the_folder(tmp_path):
    with atomic_path(tmp_path / "step.json.gz") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith(".gz")
        assert not (tmp_path / "step.json.gz").exists()


def test_permissions_are_those_of_any_new_file(tmp_path):
    write_text(tmp_path / "a", "x")
    (tmp_path / "b").write_text("x")
    assert os.stat(tmp_path / "a").st_mode == os.stat(tmp_path / "b").st_mode


def test_missing_folder_and_folder_in_place_are_said(tmp_path):
    with pytest.raises(DataError, match="there is no folder .*absent. Make it"):
        write_text(tmp_path / "absent" / "a.txt", "x")
    with pytest.raises(DataError, match="a folder stands there"):
        write_text(tmp_path, "x")


@dataclass
class Point:
    x: float
    y: tuple[int, ...]


def test_json_holds_plain_values_and_null_for_what_json_lacks(tmp_path):
    value = {
        "p": Point(float("nan"), (1, 2)),
        "a": np.arange(2.0),
        "n": np.float64(1.5),
        "i": np.int64(3),
        "f": tmp_path,
    }
    expected = {"p": {"x": None, "y": [1, 2]}, "a": [0.0, 1.0], "n": 1.5, "i": 3, "f": str(tmp_path)}
    assert json.loads(to_json(value)) == expected
    write_text(tmp_path / "v.json", to_json(value))
    assert json.loads((tmp_path / "v.json").read_text(encoding="utf-8")) == expected


def test_json_refuses_what_it_cannot_hold():
    with pytest.raises(TypeError):
        to_json({"f": object()})


def test_run_record_names_versions_inputs_and_seed():
    record = run_record({"job": "x.yaml", "overrides": ["plan.tp=4"]}, seed=7)
    assert record["versions"]["prism-jax"] == prism_jax.__version__
    assert record["versions"]["python"] == platform.python_version()
    assert record["versions"]["numpy"] == np.__version__
    assert record["versions"]["jax"]
    assert record["inputs"] == {"job": "x.yaml", "overrides": ["plan.tp=4"]}
    assert record["seed"] == 7
    revision = record["git_revision"]
    assert revision is None or len(revision.removesuffix("+changes")) == 40
