"""The scripts of `examples/scripts`: short, made of public names alone, and what they print is what they promise."""

import ast
import re
import runpy
from pathlib import Path

import pytest

import prism_jax

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "examples" / "scripts").glob("*.py"))
MOST_LINES = 40
NUMBER = re.compile(r"-?\d+\.\d+")


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What a script prints."""
    runpy.run_path(str(ROOT / "examples" / "scripts" / name), run_name="__main__")
    return capsys.readouterr().out


def numbers(text: str) -> list[float]:
    """Decimal numbers of a text, in their order."""
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_short_and_use_public_names_alone(script: Path):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("prism_jax", "inference")):
            assert node.module == "prism_jax"
            assert {alias.name for alias in node.names} <= set(prism_jax.__all__)
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith(("prism_jax.", "inference")) for alias in node.names)


def test_a_page_links_every_script():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    assert [script.name for script in SCRIPTS if f"examples/scripts/{script.name}" not in page] == []


def test_soft_placement_is_as_good_as_annealing_and_better_than_chance(capsys: pytest.CaptureFixture[str]):
    gradient, annealed, random = numbers(printed("soft_placement.py", capsys))
    assert gradient < annealed * 1.0015  # three Monte Carlo errors of a p95 of 1,024 steps
    assert gradient < random


def test_more_bandwidth_saves_less_the_more_there_is(capsys: pytest.CaptureFixture[str]):
    *_, curve = printed("which_bandwidth_to_buy.py", capsys).partition("GB/s per GPU")
    saved_ms = [numbers(line)[-1] for line in curve.splitlines() if "saves" in line]
    assert len(saved_ms) == 4
    assert saved_ms == sorted(saved_ms, reverse=True)
    assert saved_ms[-1] > 0.0


def test_leaving_out_slow_nodes_makes_the_tail_shorter(capsys: pytest.CaptureFixture[str]):
    text = printed("fit_a_fleet_and_place.py", capsys)
    assert text.startswith("good")
    whichever, placed, gain, low, high = numbers(text)[-5:]
    assert placed < whichever
    assert 0.0 < low <= high
    assert low - 0.01 < gain < high + 0.01


def test_packing_beats_padding_and_lengths_own_the_tail_of_what_is_padded(capsys: pytest.CaptureFixture[str]):
    lines = {line.split()[0]: line for line in printed("lengths_and_packing.py", capsys).splitlines()}
    rate = {name: float(re.findall(r"([\d,]+) tokens/s", line)[0].replace(",", "")) for name, line in lines.items()}
    assert rate["padded"] < rate["bucketed"] < rate["packed"] < rate["masked"]
    assert all("lengths of sequences" in lines[name] for name in ("padded", "bucketed"))


def test_the_tail_grows_with_the_spread_between_gpus(capsys: pytest.CaptureFixture[str]):
    tails = [numbers(line)[2] for line in printed("batch_study.py", capsys).splitlines() if line.startswith("spread")]
    assert len(tails) == 8
    assert tails == sorted(tails)
