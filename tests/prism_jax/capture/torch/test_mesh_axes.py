"""Order of mesh dimensions, what is left of the world, and which dimension a group of ranks runs along."""

import sys
from pathlib import Path

import pytest

from prism_jax.capture.front_end import CaptureRequest
from prism_jax.capture.torch.contract import CollectiveGroup, data_parallel_size, group_of, mesh_axes, rank_of_stage
from prism_jax.capture.torch.front_end import FRONT_END
from prism_jax.core.errors import DataError


def test_what_the_axes_leave_is_data_parallel() -> None:
    assert mesh_axes({"tp": 8, "pp": 16}, 8192) == {"pp": 16, "dp": 64, "tp": 8}


def test_axes_that_do_not_fill_the_world_are_refused() -> None:
    with pytest.raises(DataError, match="Leave --dp out, or make it 8"):
        mesh_axes({"tp": 4, "dp": 4}, 32)


def test_groups_are_named_by_the_dimension_that_differs() -> None:
    axes = {"pp": 2, "dp": 4, "tp": 8}
    assert group_of(axes, range(8)) == CollectiveGroup("tp", 8, 1)
    assert group_of(axes, [3, 11, 19, 27]) == CollectiveGroup("dp", 4, 8)
    assert group_of(axes, [5, 37]) == CollectiveGroup("pp", 2, 32)


def test_stages_are_outermost() -> None:
    assert rank_of_stage({"pp": 2, "dp": 4, "tp": 8}, 1) == 32


def test_replicas_and_shards_both_divide_the_batch() -> None:
    assert data_parallel_size({"dp": 2, "fsdp": 8, "tp": 4}) == 16


def test_without_torch_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(DataError, match=r"pip install 'prism-jax\[capture\]'"):
        FRONT_END.capture(CaptureRequest(str(tmp_path / "train.py")))


def test_a_file_that_imports_torch_is_recognised_without_running_it(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import torch\nraise SystemExit(1)\n")
    assert FRONT_END.recognises(CaptureRequest(f"{file}:build"))
