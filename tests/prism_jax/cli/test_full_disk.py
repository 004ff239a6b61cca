"""A full disk, at any size and in any command that writes: exit 1, one message with the file, targets as they were, no crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.prism_jax.cli.test_fit import fleet_table
from tests.prism_jax.cli.test_search import SMALL, SPACE

ROOT = Path(__file__).resolve().parents[3]
JOB = """\
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
framework: megatron-core
"""


@dataclass(frozen=True)
class Writes:
    """A command that writes.

    Attributes:
        words: "{in}" is the folder of its inputs, "{out}" that of its outputs.
        targets: what it writes there.
        code: exit code where there is space.
    """

    words: tuple[str, ...]
    targets: tuple[str, ...]
    code: int = 0


def writes(words: str, *targets: str) -> Writes:
    return Writes(tuple(words.split()), targets)


PREDICT = "predict {in}/job.yaml --samples 64 -q"
STUDY = "--samples 64 -q"
SEARCH = " ".join(["search llama2_7b_fsdp_64", *SMALL, "--space {in}/space.yaml --top 2 -q"])
FAST = {
    "init": writes("init {out}/new.yaml --force -q", "new.yaml"),
    "fit -o": writes("fit fleet {in}/fleet.csv --method map -q -o {out}/fleet.npz", "fleet.npz"),
    "trace export": writes("trace export local_cluster --step 5 --perfetto {out}/steps.json -q", "steps.json"),
}  # fmt: skip
SLOW = {
    "predict --plot": writes(f"{PREDICT} --plot {{out}}/p.png", "p.png"),
    "predict --trace": writes(f"{PREDICT} --trace {{out}}/t.json.gz", "t.json.gz"),
    "place": writes(
        "place {in}/job.yaml --slowdowns {in}/nodes.csv -q --hostfile {out}/hosts --rankfile {out}/ranks", "hosts", "ranks"
    ),
    "fit nuts": Writes(
        writes("fit fleet {in}/fleet.csv --method nuts --chains 2 --draws 50 -q -o {out}/fleet.npz").words,
        ("fleet.failed.npz",),
        code=1,  # too few draws for its checks
    ),
    "fit report": writes("fit report {in}/kept.npz -q --plot {out}/fit.svg", "fit.svg"),
    "calibrate -o": writes("calibrate {in}/runs.csv -q -o {out}/site.npz", "site.npz"),
    "search --resume": writes(f"{SEARCH} --resume {{out}}/found.npz.partial", "found.npz.partial"),
    "search -o": writes(f"{SEARCH} -o {{out}}/best.yaml", "best.yaml"),
    "job": writes("job {in}/job.yaml --steps 100 --mtbf 3h --worlds 200 -q --plot {out}/run.png", "run.png"),
    "cloud": writes(
        "cloud {in}/job.yaml --steps 90000 --regions us-central1 --most-gpus 8 --worlds 200 -q --plot {out}/money.png",
        "money.png",
    ),
    "sweep": writes(
        f"sweep {{in}}/job.yaml {STUDY} --set plan.micro_batch=1,2 --resume {{out}}/s.npz.partial --csv {{out}}/table.csv",
        "s.npz.partial", "table.csv"
    ),
    "scale": writes(f"scale {{in}}/job.yaml {STUDY} --gpus 8,16 --plot {{out}}/scale.png", "scale.png"),
    "compare": writes(f"compare {{in}}/job.yaml {{in}}/other.yaml {STUDY} --plot {{out}}/both.svg", "both.svg"),
    "validate steps": writes("validate steps {in}/runs.csv -q --plot {out}/accuracy.png", "accuracy.png"),
    "watch": writes("watch {in}/log.csv -q --plot {out}/phases.png", "phases.png"),
    "trace predict": writes("trace predict local_cluster -q --plot {out}/t.pdf", "t.pdf"),
}  # fmt: skip


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("in")
    (folder / "job.yaml").write_text(JOB)
    (folder / "other.yaml").write_text(JOB.replace("megatron-core", "fsdp"))
    (folder / "log.csv").write_text("step,step_time_s\n" + "".join(f"{n},{0.4 + 0.002 * (n % 5)}\n" for n in range(60)))
    (folder / "space.yaml").write_text(SPACE)
    (folder / "nodes.csv").write_text("host,slowdown\nnode-a,1.02\n")
    (folder / "runs.csv").write_text(
        "job,set,measured_step_time_s\n"
        + "".join(f"job.yaml,plan.global_batch={8 * k},{0.01 * k}\n" for k in (2, 4, 8))
    )
    fleet_table().to_csv(folder / "fleet.csv", index=False)
    return folder


def filled(disk: Path, inputs: Path, commands: dict[str, Writes], shares: list[float]) -> dict[str, Any]:
    """What became of each command."""
    cases = []
    for index, command in enumerate(commands.values()):
        out = disk / str(index)
        out.mkdir()
        words = [word.replace("{in}", str(inputs)).replace("{out}", str(out)) for word in command.words]
        cases.append([words, [str(out / target) for target in command.targets], shares])
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.files.full_disk"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(commands, map(json.loads, done.stdout.splitlines()), strict=True))


def check(name: str, found: dict[str, Any], command: Writes) -> None:
    targets = command.targets
    assert found["code"] == command.code, name
    for one in found["limited"]:
        assert one["code"] == 1, (name, one)
        assert one["said"].count("\n") == 1, (name, one)
        assert one["said"].endswith(": File too large\n"), (name, one)
        assert any(target.split(".")[0] in one["said"] for target in targets), (name, one)
        goes_on = [file for file in one["more"] if file.endswith(".partial")]  # whole, and resumed from
        assert one["more"] == goes_on, (name, one)
        assert len(one["changed"]) < len(targets) or goes_on, (name, one)  # a small one may have had space


def test_a_full_disk_ends_in_one_message(inputs: Path, tmp_path: Path):
    found = filled(tmp_path, inputs, FAST, [0.0, 0.7])
    for name, command in FAST.items():
        check(name, found[name], command)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FAST, *SLOW])
def test_a_full_disk_of_any_size_ends_in_one_message(name: str, inputs: Path, tmp_path: Path):
    command = (FAST | SLOW)[name]
    if name == "fit report":
        words = ["fit", "fleet", f"{inputs}/fleet.csv", "--method", "map", "-q", "-o", f"{inputs}/kept.npz"]
        subprocess.run([sys.executable, "-m", "prism_jax", *words], cwd=ROOT, check=True)
    shares = np.random.default_rng(list(name.encode())).uniform(0.0, 0.99, 30).tolist()
    check(name, filled(tmp_path, inputs, {name: command}, shares)[name], command)
