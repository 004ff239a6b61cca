"""The file of a captured program: what is written is read, and whatever is wrong names the line."""

import gzip
import json
import tracemalloc
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.errors import DataError
from prism_jax.shell.app import main
from prism_jax.workload.captured.files import is_capture, lines, read_capture, write_capture
from tests.support.captured.programs import program, reduction

HEAD, CLASS, PRODUCT, SUM = 0, 1, 2, 4  # lines of the toy program, from 0


def test_what_is_written_is_read(tmp_path: Path):
    own = replace(program(), assumptions=("Kernels of another GPU.",))
    write_capture(tmp_path / "toy.capture.gz", own)
    assert read_capture(tmp_path / "toy.capture.gz") == own
    assert read_capture(tmp_path / "toy.capture.gz").assumptions == own.assumptions  # which == leaves out


def test_the_same_program_makes_the_same_bytes(tmp_path: Path):
    for name in ("a", "b"):
        write_capture(tmp_path / f"{name}.capture.gz", program())
    assert (tmp_path / "a.capture.gz").read_bytes() == (tmp_path / "b.capture.gz").read_bytes()


def test_a_capture_is_known_by_its_name_or_its_beginning(tmp_path: Path):
    plain, yaml = tmp_path / "toy.txt", tmp_path / "job.yaml"
    plain.write_text("\n".join(lines(program())))
    yaml.write_text("model: llama-2-7b\n")
    assert is_capture(plain)
    assert is_capture("anything.capture.gz")
    assert not is_capture(yaml)
    assert read_capture(plain) == program()
    assert read_capture(plain).assumptions == program().assumptions


def _with(line: int, **fields: Any) -> list[str]:
    texts = list(lines(program()))
    own = json.loads(texts[line]) | fields
    texts[line] = json.dumps({key: value for key, value in own.items() if value != "gone"})
    return texts


def _replaced(line: int, text: str) -> list[str]:
    texts = list(lines(program()))
    texts[line] = text
    return texts


NOT_A_NUMBER = '{"op": "mm", "kind": "gemm", "phase": "F", "dtype": "bf16", "flops": NaN}'
HOSTILE: dict[str, tuple[list[str], str]] = {
    "empty": ([], "empty"),
    "another version": (_with(HEAD, capture=99), ":1: version 99"),
    "no first line": (list(lines(program()))[1:], ":1: the first line"),
    "two programs": ([*lines(program()), next(iter(lines(program())))], ":9: the program is described twice"),
    "rows without a class": ([t for i, t in enumerate(lines(program())) if i != CLASS], ":2: a row in front"),
    "a kind of line that there is not": (_replaced(PRODUCT, '{"what": 1}'), ":3: 'what'"),
    "no object": (_replaced(PRODUCT, "[1, 2]"), ":3: [1, 2]"),
    "no JSON": (_replaced(PRODUCT, '{"op": "mm", '), ":3"),
    "a key twice": (_replaced(PRODUCT, '{"op": "mm", "op": "mm"}'), ":3: the key 'op'"),
    "a million nested lists": (_replaced(PRODUCT, '{"op": ' + "[" * 500_000 + "]" * 500_000 + "}"), ":3"),
    "a line without end": (_replaced(PRODUCT, '{"op": "' + "m" * (2 << 20) + '"}'), ":3: a line of"),
    "a negative size": (_with(PRODUCT, shape=[1, -4, 4, 4]), ":3: shape"),
    "a size of thousands of digits": (_replaced(PRODUCT, '{"op": "mm", "shape": [' + "9" * 5000 + "]}"), ":3"),
    "a size too few": (_with(PRODUCT, shape=[4, 4, 4]), ":3: shape"),
    "negative bytes": (_with(PRODUCT, n_bytes=-1.0), ":3: n_bytes"),
    "FLOPs that are no number": (_replaced(PRODUCT, NOT_A_NUMBER), ":3: flops"),
    "infinitely many FLOPs": (_with(PRODUCT, flops=1e308), ":3: flops"),
    "a count of 0": (_with(PRODUCT, count=0), ":3: count"),
    "a text for a number": (_with(PRODUCT, count="many"), ":3: count"),
    "an unknown kind": (_with(PRODUCT, kind="magic"), ":3: kind"),
    "an unknown field": (_with(PRODUCT, colour="red"), ":3: 'colour' is no field"),
    "a missing field": (_with(PRODUCT, phase="gone"), ":3: phase is missing"),
    "a group that there is not": (_with(SUM, axis="xp"), ":5: capture toy: classes[0].rows[2].axis"),
    "a group larger than the job": (_with(SUM, ranks=4096), ":5: capture toy: classes[0].rows[2].ranks"),
    "a wait beyond the end": (_with(SUM, asynchronous=True, wait=99), ":5: capture toy: classes[0].rows[2].wait"),
    "a wait that blocks": (_with(SUM, wait=3), ":5: capture toy: classes[0].rows[2].wait"),
    "repeats that overlap": (_with(CLASS, repeats=[[0, 3, 2], [2, 4, 2]]), ":2: capture toy: classes[0].repeats[1]"),
    "a repeat that ends before it begins": (_with(CLASS, repeats=[[3, 1, 2]]), ":2: capture toy: classes[0].repeats"),
    "more runs than are simulated": (_with(CLASS, repeats=[[0, 3, 2**30]]), ":2: capture toy: classes[0].repeats"),
    "a stage that nobody captured": (_with(CLASS, stage=3), ":1: capture toy: classes"),
    "stages without end": (_with(CLASS, stage=2**40), ":2: capture toy: classes[0].stage"),
    "ranks that are missing": (_with(CLASS, n_ranks=4), ":1: capture toy: world"),
    "an axis of no ranks": (_with(HEAD, axes={"tp": 0, "dp": 4}), ":1: capture toy: axes.tp"),
    "two classes of one name": (
        [*lines(program()), '{"class": "all", "n_ranks": 8, "stage": 0}'],
        ":9: capture toy: classes[1].name",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_with_its_place(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    texts, place = HOSTILE[what]
    file = tmp_path / "evil.capture.gz"
    file.write_bytes(gzip.compress("\n".join(texts).encode(), compresslevel=1))
    assert main(["check", str(file), "--set", "cluster=dgx-h100"]) == 2
    told = capsys.readouterr().err
    assert f"evil.capture.gz{place}" in told or (place in told and "evil.capture.gz" in told)
    assert "Traceback" not in told


def test_a_row_that_nothing_can_wait_for_is_refused(tmp_path: Path):
    own = program((reduction(asynchronous=True, wait=0),))
    with pytest.raises(Exception, match=r"rows\[0\].wait"):
        write_capture(tmp_path / "toy.capture.gz", own)


def test_a_file_that_unpacks_to_more_than_is_read_is_refused_in_little_memory(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(import_module("prism_jax.workload.captured.files"), "MOST_BYTES", 8 << 20)
    file = tmp_path / "bomb.capture.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        for _ in range(64):
            stream.write(b" " * (1 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match="unpacks to more than 100 times its size"):
        read_capture(file)
    assert tracemalloc.get_traced_memory()[1] < 24 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("raw", [b"\x1f\x8b\x08\x00broken", b"\x00\x01\x02", "\xff\xfe".encode("latin1")])
def test_what_is_no_text_is_refused(raw: bytes, tmp_path: Path):
    file = tmp_path / "evil.capture.gz"
    file.write_bytes(raw)
    with pytest.raises(DataError, match=r"evil.capture.gz"):
        read_capture(file)
