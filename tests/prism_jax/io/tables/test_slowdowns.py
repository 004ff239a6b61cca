"""Tables of measured slowdowns: what is read, and every mistake with its row and remedy."""

from __future__ import annotations

import pytest

from prism_jax.errors import DataError
from prism_jax.io.tables.slowdowns import read_slowdowns


def read(tmp_path, text: str):
    file = tmp_path / "gpus.csv"
    file.write_text(text, encoding="utf-8")
    return read_slowdowns(file, n_devices=16, node_size=8)


def test_gpus_nodes_and_classes_are_read(tmp_path):
    assert read(tmp_path, "gpu,slowdown\n3,1.5\n") == {"all": {3: 1.5}}
    assert read(tmp_path, "node,slowdown\n1,1.5\n") == {"all": dict.fromkeys(range(8, 16), 1.5)}
    assert read(tmp_path, "gpu,gemm,memory\n3,1.5,1\n") == {"gemm": {3: 1.5}, "memory": {3: 1.0}}


def test_spaces_blank_lines_and_windows_line_ends_do_not_matter(tmp_path):
    assert read(tmp_path, "gpu, slowdown\r\n\r\n3, 1.5\r\n") == {"all": {3: 1.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: needs one of gpu or node"),
        ("gpu,slowdown\n", "no rows"),
        ("gpus,slowdown\n1,1\n", "did you mean gpu"),
        ("gpu,slowdown,slowdown\n1,1.1,1.2\n", ":1: a column is there twice. Keep one"),
        ("gpu,node,slowdown\n1,1,1\n", "needs one of gpu or node"),
        ("gpu,slowdown\n-1,1\n", ":2 gpu: '-1' is not a whole number"),
        (f"gpu,slowdown\n{'9' * 5000},1\n", ":2 gpu: .* is not a whole number"),
        ("gpu,slowdown\n16,1\n", "the job has 16 GPUs"),
        ("node,slowdown\n2,1\n", "the job has 16 GPUs"),
        ("gpu,slowdown\n1,1\n1,1\n", ":3 gpu: 1 is listed twice"),
        ("gpu,slowdown\n1,nan\n", "between 0.01 and 100"),
        ("gpu,slowdown\n1,fast\n", "'fast' is not a number"),
        ("gpu,slowdown\n1\n", "another number of fields"),
    ],
)
def test_mistake_names_row_field_and_remedy(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_a_message_is_short_however_long_the_value(tmp_path):
    with pytest.raises(DataError) as error:
        read(tmp_path, f"gpu,slowdown\n{'9' * 5000},1\n")
    assert len(str(error.value)) < 300


def test_a_folder_and_a_missing_file_are_said(tmp_path):
    for path in (tmp_path, tmp_path / "absent.csv"):
        with pytest.raises(DataError, match="cannot be read as CSV"):
            read_slowdowns(path, 16, 8)
