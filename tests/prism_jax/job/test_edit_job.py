"""One field of a job file is set or removed in its text: the text then says just that, and all comments are still there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.errors import ConfigError
from prism_jax.job.edit_job import with_field
from prism_jax.job.load_job import apply_overrides
from prism_jax.job.write_job import new_job_text
from prism_jax.tables.streams import example_files
from prism_jax.tables.yaml_toml import read_yaml
from tests.support.job_texts import INLINE_CLUSTER, JOB

TEXTS = {name: path.read_text() for name, path in example_files().items() if path.suffix == ".yaml"}
TEXTS |= {
    "inline": JOB.replace("cluster:\n  preset: dgx-h100\n  n_devices: 64\n", INLINE_CLUSTER),
    "no end": JOB.rstrip("\n"),
}
SECTIONS = {
    "model": {"preset": "llama-2-7b"},
    "cluster": {"preset": "dgx-h100", "n_devices": 8},
    "plan": {"micro_batch": 1, "global_batch": 8, "seq_len": 4096},
}
NEW = new_job_text(SECTIONS, "new.yaml")


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all values."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))
    if path and not items:
        yield path


def comments(text: str) -> list[str]:
    return sorted(line[line.index("#") :].strip() for line in text.split("\n") if "#" in line)


def data(text: str) -> dict[str, Any]:
    return read_yaml(text, "a.yaml").data


@pytest.mark.parametrize("name", TEXTS)
def test_every_field_of_every_job_can_be_set_and_the_rest_stays(name: str):
    text = TEXTS[name]
    for path in leaves(data(text)):
        changed = with_field(text, "a.yaml", path, "17 ms")
        wanted = apply_overrides(read_yaml(text, "a.yaml"), [f"{'.'.join(map(str, path))}=17 ms"])
        assert data(changed) == wanted.data
        assert comments(changed) == comments(text)
        assert len(set(text.split("\n")) - set(changed.split("\n"))) <= 1  # one line has changed


@pytest.mark.parametrize("name", TEXTS)
def test_a_field_that_is_added_and_removed_leaves_the_text_as_it_was(name: str):
    text = TEXTS[name]
    for path in (("plan", "host_threads"), ("zzz",)):
        longer = with_field(text, "a.yaml", path, "3")
        assert set(text.split("\n")) <= set(longer.split("\n"))
        assert data(with_field(longer, "a.yaml", path, None)) == data(text)


def test_fields_are_removed_with_their_line():
    assert with_field(JOB, "a.yaml", ("plan", "tp"), None) == JOB.replace("  tp: 2\n", "")
    assert with_field(JOB, "a.yaml", ("plan", "ep"), None) == JOB


def test_a_comment_of_a_new_job_file_becomes_the_field_that_it_names():
    for path, value, old in (
        (("plan", "etp"), "2", "## etp:"),
        (("model", "n_layers"), "30", "# n_layers:"),
        (("software", "norm"), "fused", "## norm:"),
        (("variability",), "none", "# variability:"),
    ):
        changed = with_field(NEW, "a.yaml", path, value)
        was, now = NEW.split("\n"), changed.split("\n")
        lines = [(a, b) for a, b in zip(was, now, strict=True) if a != b]
        assert len(lines) == 1
        assert lines[0][0].lstrip().startswith(old)
        assert lines[0][1].rpartition(" # ")[2] == lines[0][0].rpartition(" # ")[2]
        assert data(changed) == apply_overrides(read_yaml(NEW, "a.yaml"), [f"{'.'.join(path)}={value}"]).data


def test_a_preset_in_short_form_is_written_out():
    changed = with_field("model: llama-2-7b  # why\nplan:\n  tp: 2\n", "a.yaml", ("model", "n_layers"), "5")
    assert changed == "model:  # why\n  preset: llama-2-7b\n  n_layers: 5\nplan:\n  tp: 2\n"


def test_an_empty_text_is_begun():
    assert with_field("", "a.yaml", ("plan", "tp"), "2") == "plan:\n  tp: 2\n"
    assert with_field("# mine\n", "a.yaml", ("plan", "tp"), "2") == "# mine\nplan:\n  tp: 2\n"


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("a: &x {b: 1}\nc: *x\n", ("c", "b"), "2"),  # would change another field
        ("plan: {tp: [1", ("plan", "tp"), "2"),
        ("plan: {tp: 1}\n", ("plan", "tp"), "[1"),
        ("plan: {tp: 1}\n", ("plan", "tp", "x"), "1"),
        ("- 1\n", ("plan", "tp"), "1"),
    ],
)
def test_what_cannot_be_changed_by_itself_is_refused(text: str, path: tuple[str, ...], value: str):
    with pytest.raises(ConfigError):
        with_field(text, "a.yaml", path, value)


def test_texts_that_are_no_plain_words_are_quoted(tmp_path: Path):
    for value in ('"a: b"', "'#x'", "[1, 2]", "{a: 1}", "1e30", "~", "x  y"):
        changed = with_field(JOB, "a.yaml", ("name",), value)
        assert data(changed)["name"] == data(f"name: {value}")["name"]
