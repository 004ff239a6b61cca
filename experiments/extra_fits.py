"""Fits whose results no command of the product takes, by name as the product's own: import this before `inference.fitting.fit`.

python -m experiments.power_fit.fit TABLE... [--method map] [--holdout COLUMN] [-o FILE.npz] [--json]
"""

from __future__ import annotations

import argparse
import sys

from prism_jax import fit_variability
from prism_jax.core.errors import PrismError
from prism_jax.fits.fit_variability import Columns, HoldoutChoice
from prism_jax.fits.models import MODELS, FitModel

FITS = {
    "checkpoints": "experiments.checkpoints_fit.model.Checkpoints",
    "power": "experiments.power_fit.model.Power",
    "servers": "experiments.servers_fit.model.Servers",
    "totals": "experiments.totals_fit.model.Totals",
}
MODELS.update({name: FitModel(place) for name, place in FITS.items()})


def main(model: str) -> None:
    """Fits `model` to the tables on the command line; exit code 1 where the fit failed its checks, 2 of wrong input."""
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{model}_fit.fit")
    parser.add_argument("files", nargs="+", metavar="TABLE")
    parser.add_argument("-o", "--out", help="save the fit (.npz); a later run goes on from an interrupted one")
    parser.add_argument("--method", choices=("nuts", "svi", "map"))
    parser.add_argument("--holdout", metavar="COLUMN", help="leave whole groups of a column out and score them")
    parser.add_argument("--splits", type=int)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    for option, what in (("map", "COLUMN=NAME"), ("unit", "COLUMN=UNIT"), ("where", "COLUMN=VALUE")):
        parser.add_argument(f"--{option}", action="append", default=[], metavar=what)
    given = parser.parse_args()
    pairs = [dict(text.split("=", 1) for text in texts) for texts in (given.map, given.unit, given.where)]
    try:
        report = fit_variability(
            model,
            given.files,
            columns=Columns(*pairs),
            method=given.method,
            holdout=HoldoutChoice(given.holdout, given.splits),
            n_chain=given.chains,
            n_draw=given.draws,
            out=given.out,
            seed=given.seed,
        )
    except PrismError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if given.json:
        print(report.to_json())
    else:
        for line in report.lines():
            print(line)
    raise SystemExit(int(not report.fit.verdict.ok))
