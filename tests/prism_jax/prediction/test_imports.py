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


def imported(*arguments: str) -> tuple[str, set[str]]:
    """What a command says, and the modules that it imports, in a process of its own."""
    code = (
        "import sys; from prism_jax.__main__ import main; code = main(sys.argv[1:]); "
        "print(code, *sys.modules, file=sys.stderr)"
    )
    command, environment = [sys.executable, "-c", code, *arguments], os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    returned, *modules = done.stderr.splitlines()[-1].split()
    assert returned == "0"
    return done.stdout, set(modules)


def test_a_prediction_imports_what_it_needs() -> None:
    """Half of the modules are those of JAX."""
    said, modules = imported("predict", "t5_11b_256", "--details")
    assert "removed" in said  # with its explanation
    assert HEAVY & modules == set()
    assert len(modules) <= 1300


def test_text_of_hlo_is_captured_without_what_jobs_need() -> None:
    _, modules = imported("capture", str(ROOT / "tests" / "data" / "hlo" / "mlp_fsdp2_tp4.txt"))
    assert {"yaml", "pydantic", "prism_jax.job.job"} & modules == set()
