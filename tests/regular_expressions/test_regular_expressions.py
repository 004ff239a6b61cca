"""Every regular expression of the package searches a long text in a time in proportion to it."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.device_names import device_of_text
from experiments.step_tables.cluster import defect_of_record, network_bytes_per_s
from experiments.step_tables.model import preset_named
from experiments.step_tables.records import StepRecord
from inference.data.columns import understand
from prism_jax.core.errors import PrismError
from prism_jax.core.units import parse
from prism_jax.system.catalog import normalised

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow  # two minutes
def test_no_regular_expression_is_slow() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.regular_expressions.slow_patterns"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
    )
    assert "patterns" in done.stdout, done.stderr
    assert "slow" not in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("text", "found"),
    [("8x 200 Gb/s per node", 25e9), ("1600 Gbps node-node", 25e9), ("4x HDR IB 200 Gb/s", 12.5e9), ("none", None)],
)
def test_networks_are_read_as_before(text: str, found: float | None) -> None:
    assert network_bytes_per_s(text, 8) == found


def test_names_keep_their_meaning_without_their_remarks() -> None:
    assert normalised("NVIDIA A100-SXM4-80GB (80 GB) (x)") == "a100sxm80gb"
    for name in ("llama 7B (4 layers)", "llama 7B [sft] ", "llama 7B (a) [b]"):
        assert preset_named(name) == preset_named("llama 7B") is not None
    assert understand(" clocks.sm  [ MHz ] ", "mhz").unit == "mhz"
    assert understand("Step Time (s)", "s")[:3] == ("step_time", "step_time", "s")


def test_quantities_keep_their_meaning() -> None:
    assert parse(" 1_000.5e-3  GB/s ", "bandwidth") == 1.0005e9
    for text in ("1_ GB/s", "1__0 GB/s", "١ GB/s", "5 a\nb", ""):
        with pytest.raises(PrismError, match="not a quantity|unknown unit"):
            parse(text, "bandwidth")


def test_numbers_of_notes_that_are_none_are_left_out() -> None:
    """Such as 1.2.3, which once ended in an error of `float`."""
    text = "NCCL BW measured in the same job GB/s: all-reduce ..; HFU ...; DDP bucket . MB; layer split [1,,2]"
    record = StepRecord("one", "here", notes=text)
    assert defect_of_record(record) == ""


def test_a_device_of_thousands_of_words_is_refused() -> None:
    with pytest.raises(PrismError, match="unknown device"):
        device_of_text("word " * 5_000)
