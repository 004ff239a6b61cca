"""A training log of a caller, in this one file: a line of one's own trainer that says how long a step took."""

import re
from pathlib import Path

import pytest

from prism_jax import open_trace
from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.log_entries import NUMBER, LineFormat, timed_line
from prism_jax.recorded.formats.text_logs import LINE_FORMATS
from prism_jax.shell.app import main
from prism_jax.trace.step_log import StepLog

TIME = re.compile(r"took " + NUMBER + r"(?P<unit>ms)")
STEP = re.compile(r"#(\d{1,15}) ")
MINE = LineFormat(
    "mytrainer",
    "mytrainer",
    "'#12 took 1250ms'",
    b" took ",
    timed_line("took", TIME, (STEP,), {"ms": 1e-3}),
    patterns=(TIME, STEP),
)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text("".join(f"#{n} took {1250 + n}ms\n" for n in range(1, 7)))
    return str(path)


def test_a_log_of_ones_own_is_read(log: str):
    with pytest.raises(DataError, match="Supported formats"):
        open_trace(log)
    with LINE_FORMATS.with_item(MINE):
        found = open_trace(log)
    assert isinstance(found, StepLog)
    assert found.step_s.tolist() == pytest.approx([1.251, 1.252, 1.253, 1.254, 1.255, 1.256])
    assert found.framework == "mytrainer"


def test_commands_and_messages_know_it(log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    other = tmp_path / "other.log"
    other.write_text("nothing\n")
    with LINE_FORMATS.with_item(MINE):
        assert main(["trace", "info", log, "--details"]) == 0
        assert "mytrainer log" in capsys.readouterr().out
        assert main(["trace", "info", str(other)]) == 2
        assert "'#12 took 1250ms' (mytrainer)" in capsys.readouterr().err
        assert main(["show", "logs"]) == 0
        assert "mytrainer" in capsys.readouterr().out
