"""Messages stay readable whatever they quote."""

from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

import prism_jax
from prism_jax.core.errors import (
    FIRST,
    MOST_LINE,
    ConfigError,
    DataError,
    Mark,
    Mistake,
    PrismError,
    SpecError,
    printable,
    shortened,
)
from prism_jax.horizon.reliability_file import load_reliability
from prism_jax.queue.trace_file import read_queue_trace
from prism_jax.shell.app import main
from prism_jax.validation.job_table import read_job_table, read_memory_runs
from prism_jax.variability.slowdowns_file import read_slowdowns
from tests.support.job_texts import JOB

LONG = "x" * 100_000
FILES = {
    "reliability.yaml": (f"hazards: [{{cause: x, per_job_h: {LONG}, {LONG}: 1}}]", load_reliability),
    "job.yaml": (f"{JOB}{LONG}: 1\n", prism_jax.check_job),
    "model.yaml": (f"model: {LONG}\ncluster: {LONG}\n", prism_jax.check_job),
    "queue.csv": (f"submit_s,gpus,{LONG}\n0,1,2\n", read_queue_trace),
    "slow.csv": (f"gpu,slowdown\n0,{LONG}\n", lambda file: read_slowdowns(file, 8, 8)),
    "steps.csv": (f"{LONG},y\n1,2\n", read_job_table),
    "memory.csv": (f"{LONG},y\n1,2\n", read_memory_runs),
    "trace.csv": (f"step,dp,pp,op_type,start_s,duration_s,{LONG}\n0,0,0,{LONG},0,1,2\n", prism_jax.open_trace),
}


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.text(st.sampled_from("ab\n\x1b"), max_size=5000))
def test_lines_are_bounded_and_short_ones_stay(text: str) -> None:
    found = shortened(text).split("\n")
    for line, kept in zip(text.split("\n"), found, strict=True):
        assert len(kept) <= MOST_LINE
        assert kept == line or (len(line) > MOST_LINE and kept.startswith(line[:FIRST]))


def test_the_place_and_the_remedy_of_a_long_message_stay() -> None:
    whole = f"job.yaml:3:1 plan.tp: {LONG} is no number. Give one."
    found = shortened(whole)
    assert found.startswith("job.yaml:3:1 plan.tp: xxx")
    assert found.endswith("xxx is no number. Give one.")
    assert f"... ({len(whole) - 950:,} characters) ..." in found


@pytest.mark.parametrize("kind", [PrismError, SpecError, DataError])
def test_errors_are_bounded_and_keep_what_others_are_made_of(kind: type[PrismError]) -> None:
    error = kind(LONG)
    assert len(str(error)) <= MOST_LINE
    assert error.text == LONG


def test_every_mistake_has_its_own_bound() -> None:
    error = ConfigError([Mistake("\x00" * 5000, Mark("a.yaml", 1, 1)), Mistake("short")])
    first, second = str(error).split("\n")
    assert (len(first) <= MOST_LINE, first.isprintable(), second) == (True, True, "short")


@pytest.mark.parametrize("name", FILES)
def test_long_texts_of_files_are_not_printed_whole(name: str, tmp_path: Path) -> None:
    text, read = FILES[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(PrismError) as error:
        read(tmp_path / name)
    assert all(len(line) <= MOST_LINE for line in str(error.value).split("\n"))
    assert name in str(error.value)


def test_long_options_are_not_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["predict", "llama2_7b_fsdp_64", "--set", f"plan.tp={LONG}"], ["predict", LONG], ["show", LONG]):
        assert main(arguments) == 2
        said = capsys.readouterr().err
        assert said
        assert len(said) < 3 * MOST_LINE


def test_what_is_short_and_plain_is_printed_as_it_is() -> None:
    assert shortened(printable("plain text, 5 % of it")) == "plain text, 5 % of it"
