"""Plays cases with the program of a checkout: `python -m benchmarks.golden.worker CHECKOUT INPUTS`, names and commands on stdin.

Writes one JSON object per case: its name, its transcript, and the processor seconds of this process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .transcript import Main, play

EXTRA_FITS = "experiments/extra_fits.py"  # adds the fits that left the product to `prism-jax fit`


def main_of(checkout: Path) -> Main:
    """Loads the function that the entry point `prism-jax` of a checkout names, with the fits of its experiments.

    `score KIND TABLE` scores a research table: `validate KIND TABLE` where the product still reads these, else the command of
    the experiments.
    """
    if (checkout / EXTRA_FITS).exists():
        import_module(EXTRA_FITS.removesuffix(".py").replace("/", "."))
    project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["scripts"]["prism-jax"].partition(":")
    program: Main = getattr(import_module(module), function)

    def run(arguments: Sequence[str]) -> int:
        if arguments[:1] != ["score"]:
            return program(arguments)
        if not (checkout / f"experiments/score_{arguments[1]}.py").exists():
            return program(["validate", *arguments[1:]])
        return import_module(f"experiments.score_{arguments[1]}").main(arguments[2:])

    return run


def _work(checkout: Path, inputs: Path) -> None:
    sys.path.insert(0, str(checkout))
    main = main_of(checkout)
    found = Path(import_module("prism_jax").__file__ or "").resolve()
    if not found.is_relative_to(checkout):
        raise SystemExit(f"{found}: this is not the prism_jax of {checkout}. Start Python from another folder.")
    for name, commands in json.load(sys.stdin).items():
        started = time.process_time()
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            text = play(commands, inputs, Path(folder), main, checkout)
        print(json.dumps({"name": name, "text": text, "cpu_s": time.process_time() - started}), flush=True)


if __name__ == "__main__":
    _work(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))
