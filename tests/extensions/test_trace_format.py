"""A trace format of a caller, in this one file: JSON lines of ops, and JSON lines of step times."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from prism_jax import open_trace
from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.open_trace import TRACE_FORMATS
from prism_jax.shell.app import main
from prism_jax.trace.step_log import FileStart, StepLog, TraceFormat
from prism_jax.trace.trace import NONE, JobShape, OpRow, OpTable, Trace
from tests.support.recipes import printed


def read_op_lines(path: Path) -> OpTable:
    """One object per line: step, rank, op, start_s, seconds; ranks are data-parallel."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        try:
            op = json.loads(line)
            rows.append(OpRow(op["step"], op["rank"], 0, 0, op["op"], NONE, NONE, op["start_s"], op["seconds"], "main"))
        except (ValueError, KeyError) as error:
            raise DataError(f"{path}:{number}: not an op: {error!r}. Remove the line.") from None
    return OpTable.from_rows(str(path), rows)


def read_step_lines(path: Path) -> StepLog:
    """One object per line: step, step_time_s."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    step, seconds = (np.array([line[name] for line in lines]) for name in ("step", "step_time_s"))
    return StepLog(str(path), path.stem, step, seconds.astype(np.float64), np.ones(len(step), dtype=np.int32))


def begins_with(field: str, begins: FileStart) -> bool:
    """Whether the first line is an object with `field`."""
    try:
        return field in json.loads(begins.text.partition("\n")[0])
    except ValueError:
        return False


OP_LINES = TraceFormat(
    "op lines",
    "JSON lines of ops",
    lambda begins: begins_with("op", begins),
    lambda files: (read_op_lines(files[0]), JobShape("from-lines", dp=2)),
)
STEP_LINES = TraceFormat(
    "step lines",
    "JSON lines of step times",
    lambda begins: begins_with("step_time_s", begins),
    lambda files: read_step_lines(files[0]),
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with TRACE_FORMATS.with_item(OP_LINES), TRACE_FORMATS.with_item(STEP_LINES):
        yield


@pytest.fixture
def ops(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = []
    for step in range(12):
        for rank in range(2):
            work, end = 1.0 + 0.1 * rng.random(), 10.0 * step
            for op, seconds in (("compute", work), ("optimizer", 0.25)):
                lines.append({"step": step, "rank": rank, "op": op, "start_s": end, "seconds": seconds})
                end += seconds
    path = tmp_path / "ops.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    path = tmp_path / "steps.jsonl"
    seconds = 2.0 + 0.1 * np.random.default_rng(1).random(40)
    path.write_text("".join(f'{{"step": {step}, "step_time_s": {s}}}\n' for step, s in enumerate(seconds)))
    return path


def test_ops_become_a_trace(ops: Path, tmp_path: Path):
    trace = open_trace(ops)
    assert isinstance(trace, Trace)
    assert trace.job == JobShape("from-lines", dp=2)
    assert trace.n_replica == 2
    assert ((trace.step_s > 1.25) & (trace.step_s < 1.36)).all()
    (tmp_path / "meta.yaml").write_text("name: stated\ndp: 2\ntp: 4\n")
    stated = open_trace(ops)
    assert stated.job == JobShape("stated", dp=2, tp=4) if isinstance(stated, Trace) else False


def test_step_times_become_a_log(steps: Path):
    log = open_trace(steps)
    assert isinstance(log, StepLog)
    assert len(log) == 40


def test_only_registered_formats_are_known(ops: Path):
    own = TraceFormat("own", "nothing", lambda begins: True, lambda files: read_step_lines(files[0]))
    with TRACE_FORMATS.with_item(own), pytest.raises(KeyError):  # the one added last is asked first
        open_trace(ops)
    assert isinstance(open_trace(ops), Trace)


def test_broken_line_is_one_message_with_the_place(ops: Path):
    ops.write_text(ops.read_text() + "{}\n")
    with pytest.raises(DataError, match=r"ops\.jsonl:49: not an op"):
        open_trace(ops)


def test_commands_know_the_format(ops: Path, steps: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["trace", "info", str(ops), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["name"] == "from-lines"
    assert main(["trace", "replay", str(ops), "--json"]) == 0
    capsys.readouterr()
    for file in (ops, steps):
        assert main(["trace", "predict", str(file), "--draws", "200", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["n_test"] > 0


def test_show_lists_it(capsys: pytest.CaptureFixture[str]):
    assert main(["show", "traces", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)][-2:] == ["op lines", "step lines"]
    assert main(["show", "traces", "op lines"]) == 0
    assert "JSON lines of ops" in capsys.readouterr().out


def test_the_recipe_of_the_documentation_runs(ops: Path):
    more = f"from prism_jax import open_trace\nprint(open_trace({str(ops)!r}).n_replica)"
    assert printed("A trace format", more) == "2\n"


def test_messages_about_unknown_files_list_it(tmp_path: Path):
    path = tmp_path / "trace.dat"
    path.write_bytes(bytes(range(256)) * 40)
    with pytest.raises(DataError, match="JSON lines of step times, JSON lines of ops, the straggler-analysis parquet"):
        open_trace(path)
