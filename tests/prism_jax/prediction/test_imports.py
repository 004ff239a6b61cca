"""What a prediction imports: every module costs a millisecond of every start."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
HEAVY = {
    "jaxtyping",
    "equinox",
    "scipy.stats",
    "scipy.optimize",
    "scipy.sparse",
    "pandas",
    "pyarrow",
    "matplotlib",
    "numpyro",
    "optax",
}


def test_a_prediction_imports_what_it_needs() -> None:
    """In a process of its own, as the command does; half of the modules are those of JAX."""
    code = (
        "import sys; from prism_jax.__main__ import main; code = main(['predict', 't5_11b_256']); "
        "print(code, *sys.modules, file=sys.stderr)"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    code, *modules = done.stderr.splitlines()[-1].split()
    assert code == "0"
    assert "removed" in done.stdout  # with its explanation
    assert HEAVY & {*modules} == set()
    assert len(modules) <= 1300
