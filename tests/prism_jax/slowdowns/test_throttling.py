"""Logs of clocks with the reasons for which GPUs throttle, in the spellings of nvidia-smi and DCGM."""

from pathlib import Path

import pytest

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.slowdowns_file import SlowdownTable, read_slowdowns
from prism_jax.slowdowns.throttling import active
from prism_jax.tables.monitor_text import as_csv

N_GPU, HOT = 8, 5  # GPU 5 runs at 1500 MHz, all others at 1980
NAMED = "throttled by HW thermal slowdown: {} (100% of its samples at work)"


def _clock(gpu: int) -> int:
    return 1500 if gpu == HOT else 1980


def _dcgmi(*, prefix: str = "", idle: int = 0) -> str:
    """`dcgmi dmon -e 100,155,112`: the header again every ten samples, a mask in decimal, and the first samples idle."""
    lines = []
    for sample in range(12):
        if sample % 10 == 0:
            lines += ["#Entity   SMCLK       POWER       DVCCTR", "ID        MHz         W"]
        for gpu in range(N_GPU):
            busy = sample >= idle
            mask = (0x48 if gpu == HOT else 0) if busy else 1
            lines.append(f"GPU {gpu}     {_clock(gpu) if busy else 210}   {690.5 if busy else 75}   {mask}")
    return "".join(f"{prefix}{line}\n" for line in lines)


def _smi_dmon(separator: str = "   ") -> str:
    """`nvidia-smi dmon -s pucv`, in columns or as CSV."""
    names = ("# gpu", "pwr", "gtemp", "mtemp", "sm", "mem", "mclk", "pclk", "pviol", "tviol")
    units = ("# Idx", "W", "C", "C", "%", "%", "MHz", "MHz", "%", "bool")
    rows = [(g, 690, 60, "-", 99, 40, 2619, _clock(g), 0, int(g == HOT)) for _ in range(3) for g in range(N_GPU)]
    return "".join(separator.join(map(str, row)) + "\n" for row in (names, units, *rows))


def _query(header: str, hot: str, other: str, host: str = "") -> str:
    """`nvidia-smi --query-gpu=index,clocks.sm,...`: units in the values."""
    rows = (f"{host}{g}, {_clock(g)} MHz, {hot if g == HOT else other}\n" for _ in range(3) for g in range(N_GPU))
    return f"{'hostname, ' if host else ''}index, clocks.current.sm [MHz], {header}\n" + "".join(rows)


HW_THERMAL = "clocks_throttle_reasons.hw_slowdown, clocks_throttle_reasons.hw_thermal_slowdown"
SPELLINGS = {
    "dcgmi dmon": (_dcgmi(idle=4), "GPU 5"),
    "dcgmi of a fleet's shell": (_dcgmi(prefix="gpu013: ", idle=4), "gpu013:5"),
    "nvidia-smi dmon": (_smi_dmon(), "GPU 5"),
    "nvidia-smi dmon as CSV": (_smi_dmon(", "), "GPU 5"),
    "mask": (_query("clocks_event_reasons.active", "0x0000000000000048", "0x0000000000000000"), "GPU 5"),
    "mask, old name": (_query("clocks_throttle_reasons.active", "0x40", "0x0"), "GPU 5"),
    "one column each": (_query(HW_THERMAL, "Active, Active", "Not Active, Not Active", "n1, "), "n1:5"),
    "DCGM exporter": (_query("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "64", "0", "n1, "), "n1:5"),
}


def _read(tmp_path: Path, text: str) -> SlowdownTable:
    file = tmp_path / "clocks.log"
    file.write_text(text, encoding="utf-8")
    return read_slowdowns(file, 16, 8)


@pytest.mark.parametrize(("text", "name"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_the_slow_gpu_has_its_slowdown_and_its_reason_in_every_spelling(tmp_path: Path, text: str, name: str):
    found = _read(tmp_path, text)
    expected = {gpu: pytest.approx(1980 / _clock(gpu)) for gpu in range(N_GPU)}
    assert found.factors == {"gemm": expected, "attention": expected}
    assert [note for note in found.notes if "throttled" in note] == [f"{tmp_path}/clocks.log: {NAMED.format(name)}"]


def test_a_reason_of_most_gpus_is_said_once(tmp_path: Path):
    found = _read(tmp_path, _query("clocks_event_reasons.active", "0x4", "0x4"))
    assert found.notes[1:] == (f"{tmp_path}/clocks.log: SW power cap on 8 of 8 GPUs",)


@pytest.mark.parametrize(
    ("text", "value"), [("0x4", 4), ("4", 4), ("[N/A]", None), ("", None), ("0x" + "f" * 99, None)]
)
def test_masks_are_hexadecimal_or_decimal_and_what_is_none_says_nothing(text: str, value: int | None):
    assert active(["clocks_event_reasons.active"], {"clocks_event_reasons.active": text}) == value


def test_reasons_alone_do_not_say_how_slow(tmp_path: Path):
    with pytest.raises(DataError, match=r"says that a GPU throttles, not how slow .*field 100"):
        _read(tmp_path, "index,clocks_throttle_reasons.active\n0,0x8\n")


def test_messages_name_the_line_of_the_log(tmp_path: Path):
    with pytest.raises(DataError, match=r"clocks\.log:4: 1 values, but the header names 3"):
        _read(tmp_path, "#Entity SMCLK POWER DVCCTR\nID MHz W\nGPU 0 1980 690 0\nGPU 1 1980\n")
    with pytest.raises(DataError, match=r"clocks\.log:4 gpu: 99"):
        _read(tmp_path, "#Entity SMCLK\nID MHz\nGPU 0 1980\nGPU 99 1980\n")


def test_instances_and_switches_are_no_gpus_and_other_texts_stay(tmp_path: Path):
    found = _read(tmp_path, "#Entity SMCLK\nID MHz\nGPU 0 1980\nGPU-I 0 1000\nSwitch 0 9\nGPU 1 1980\n")
    assert found.factors["gemm"] == {0: 1.0, 1: 1.0}
    for text in ("gpu,slowdown\n0,1\n", "# 8 gpu run\ngpu,slowdown\n"):
        assert as_csv(text, "x") is text
