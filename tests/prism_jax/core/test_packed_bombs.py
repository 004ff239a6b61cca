"""What is packed and unpacks to far more than any text does is refused before it is parsed, whoever reads it; texts are not."""

import gzip
import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from inference.data.read import read_measurements
from prism_jax.cloud.offers import read_catalogue
from prism_jax.core.errors import PrismError
from prism_jax.queue.trace_file import read_queue_trace
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.workload.captured.files import read_captured_program
from tests.inference.data.tables import STEPS

MEGABYTES = 40
LINE = b" iteration        1/  100 | elapsed time per iteration (ms): 2500.1 | lm loss: 1.0 |\n"
READERS: dict[str, tuple[bytes, bytes, Callable[[Path], object]]] = {
    "run.log.gz": (b"", LINE, open_trace),
    "steps.csv.gz": (b"step,step_time_s\n", b"1,2.0\n", open_trace),
    "history.jsonl.gz": (b"", b'{"_step": 1, "step_time_s": 2.0}\n', open_trace),
    "ops.csv.gz": (b"step,dp,op_type,start_s,duration_s\n", b"0,0,fwd,0.0,0.1\n", open_trace),
    "profile.json.gz": (b'{"traceEvents": [', b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1},\n', open_trace),
    "jobs.csv.gz": (b"submit_s,gpus,duration_s\n", b"1,2,3\n", read_queue_trace),
    "offers.csv.gz": (b"gpu,gpus,usd_h\n", b"H100,8,20\n", lambda path: read_catalogue([path])),
    "runs.csv.gz": (b"run,step,duration_s\n", b"a,1,2.0\n", lambda path: read_measurements([path], STEPS)),
    "runs.csv.zst": (b"run,step,duration_s\n", b"a,1,2.0\n", lambda path: read_measurements([path], STEPS)),
    "x.capture.gz": (b'{"a": [', b"[[[1]]],", read_captured_program),
}


@pytest.mark.parametrize("name", READERS)
def test_a_bomb_is_refused_within_seconds(name: str, tmp_path: Path):
    head, piece, read = READERS[name]
    content, path = head + piece * (MEGABYTES * 2**20 // len(piece)), tmp_path / name
    path.write_bytes(bytes(pa.compress(content, codec="zstd")) if name.endswith("zst") else gzip.compress(content, 9))
    began = time.process_time()
    with pytest.raises(PrismError, match="unpacks to more than 100 times"):
        read(path)
    assert time.process_time() - began < 10.0


def test_a_log_of_real_numbers_is_no_bomb(tmp_path: Path):
    draws = random.Random(1)
    text = "".join(
        f"step: {n} loss: {draws.random():.6f} step_time: {1 + draws.random():.4f}s\n" for n in range(1, 20_000)
    )
    path = tmp_path / "run.log.gz"
    path.write_bytes(gzip.compress(text.encode(), 9))
    assert len(open_trace(path).step_s) == 19_999
