"""Fits whose results no command of the product takes; importing this adds them to the models, and to `prism-jax fit`.

python -m experiments.power_fit.fit TABLE... [options and output as those of `prism-jax fit MODEL`]
"""

from __future__ import annotations

import sys

from prism_jax import fit_variability
from prism_jax.fits.models import MODELS, FitModel
from prism_jax.shell.app import main as run
from prism_jax.shell.catalogue import COMMANDS, Command

FITS = {
    "checkpoints": "Fit the seconds that checkpoints take to save and load.",
    "power": "Fit watts and seconds against clocks and power limits.",
    "servers": "Fit the speed of workers with parameter servers, and where servers saturate.",
    "totals": "Fit step times of networks by operations, parameters and tensors, over GPUs and families.",
}
for name, text in FITS.items():
    MODELS[name] = FitModel(f"experiments.{name}_fit.model.{name.title()}")
    COMMANDS.add(Command(f"fit {name}", fit_variability, text, {"model": name, "collective": None}))


def main(model: str) -> None:
    """Fits `model` to the tables on the command line; exit code 1 where the fit failed its checks, 2 of wrong input."""
    raise SystemExit(run(["fit", model, *sys.argv[1:]]))
