"""What whole commands cost: user seconds with an empty cache of compiled programs, with a filled one, and at another revision.

    python -m benchmarks.commands [--against REVISION] [--only 'predict*'] [--repeats 3] [--counts]

Every command runs in a process of its own, in turns with the other revision (a folder or a git revision), and the minimum of the
repeats counts; bytecode is compiled before. User seconds of the process and its workers: those of the operating system are not
counted, since they depend on what else the machine does. `--counts`: programs that XLA compiles (those loaded from the cache are
not counted) and modules imported, in a run of their own.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path

from .golden.checkout import checkout_of
from .golden.inputs import write_inputs
from .golden.stored import ROOT, environment

COMMANDS = {
    "predict 405b": "predict llama3_405b_16384",
    "predict llama2": "predict llama2_7b_fsdp_64",
    "predict deepseek": "predict deepseek_v3_2048",
    "predict fast": "predict llama3_405b_16384 --fast",
    "predict 1k": "predict llama3_405b_16384 --set plan.dp=8 --set plan.global_batch=128",
    "scale": "scale llama3_405b_16384 --gpus 4096,8192,16384 --mode weak",
    "search": "search gpt3_175b_1024",
    "trace predict": "trace predict local_cluster --draws 400",
    "fit collectives": "fit collectives all_reduce.log -o net.npz",
    "cloud": "cloud job.yaml --steps 1000 --regions us-east-1 --most-gpus 8 --worlds 300",
    "job": "job job.yaml --steps 1000 --mtbf 3h --worlds 500",
    "compare": "compare job.yaml placed.yaml --samples 64",
    "watch": "watch phases.csv --remaining 100",
    "capture": "capture mlp_fsdp2_tp4.txt -o hlo.capture.gz",
    "check": "check llama3_405b_16384",
    "show": "show devices",
    "help": "--help",
}
COUNTED = """
import sys
from jax import monitoring
seen = []
monitoring.register_event_duration_secs_listener(lambda event, *_, **__: seen.append(event))
monitoring.register_event_listener(lambda event, *_, **__: seen.append(event))
from prism_jax.__main__ import main
code = main(sys.argv[1:])
n_asked = sum("backend_compile" in event for event in seen)
n_loaded = sum(event.endswith("compilation_cache/cache_hits") for event in seen)
print(f"\\n@counts {n_asked - n_loaded} {len(sys.modules)}", file=sys.stderr)
sys.exit(code)
"""


def main() -> None:
    """Prints a line for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--against", metavar="REVISION", help="a folder or a git revision that runs in turns with this one"
    )
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names of commands")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--counts", action="store_true", help="also programs compiled and modules imported")
    given = parser.parse_args()
    with ExitStack() as stack:
        sides = [ROOT] + ([stack.enter_context(checkout_of(given.against))] if given.against else [])
        for side in sides:
            for package in ("prism_jax", "inference"):
                compileall.compile_dir(side / package, quiet=2)
        inputs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="commands-")))
        write_inputs(inputs)
        print(
            f"{'user seconds':18s} {'cold':>6s} {'warm':>6s}"
            + (f" {'before':>6s} {'warm':>6s} {'ratio':>6s} {'warm':>6s}" if given.against else "")
        )
        for name, command in COMMANDS.items():
            if fnmatch(name, given.only):
                print(_line(name, command.split(), sides, inputs, given.repeats, given.counts), flush=True)


def _line(name: str, command: list[str], sides: list[Path], inputs: Path, repeats: int, counts: bool) -> str:
    found = {(side, warm): float("inf") for side in sides for warm in (False, True)}
    counted = ""
    for _ in range(repeats):
        for side in sides:
            with tempfile.TemporaryDirectory() as cache:
                for warm in (False, True):
                    found[side, warm] = min(found[side, warm], _user_s(command, side, inputs, cache))
    if counts:
        with tempfile.TemporaryDirectory() as cache:
            pairs = [_counts(command, ROOT, inputs, cache) for _ in range(2)]
        counted = f"   programs {pairs[0][0]} cold, {pairs[1][0]} warm; {pairs[1][1]} modules"
    times = [found[side, warm] for side in sides for warm in (False, True)]
    ratios = [found[ROOT, warm] / found[sides[-1], warm] for warm in (False, True)] if len(sides) > 1 else []
    return f"{name:18s} " + " ".join(f"{x:6.2f}" for x in times + ratios) + counted


def _user_s(command: list[str], side: Path, inputs: Path, cache: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    _run([sys.executable, "-m", "prism_jax", *command], side, inputs, cache)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def _counts(command: list[str], side: Path, inputs: Path, cache: str) -> tuple[int, int]:
    """Programs compiled and modules imported by a command."""
    said = _run([sys.executable, "-c", COUNTED, *command], side, inputs, cache)
    compiled, modules = said.rpartition("@counts ")[2].split()[:2]
    return int(compiled), int(modules)


def _run(process: list[str], side: Path, inputs: Path, cache: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "PYTHONDONT"))}
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(inputs, folder, dirs_exist_ok=True)
        done = subprocess.run(process, env={**own, **environment(side), "PRISM_JAX_CACHE": cache}, cwd=folder,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)  # fmt: skip
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(process[2:])}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stderr


if __name__ == "__main__":
    main()
