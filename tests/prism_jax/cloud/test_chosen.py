"""A fit of revocations reaches a choice of cloud: zones that it has seen have their own law, the others that of an unseen one."""

import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest

import inference
from prism_jax.cloud.chosen import law_of_offers
from prism_jax.cloud.offers import Offer
from prism_jax.shell.app import main

HOUR_S = 3600.0
ROWS = """\
cloud,date,instance,gpu,gpus,network_gbps,region,zone,usd_h,spot_usd_h
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,400,us-east-1,use1-az1,32.77,9.5
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,400,us-east-1,use1-az2,32.77,9.6
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,400,us-east-1,use1-az9,32.77,9.7
"""


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """Overrides that of the package: `inference` computes under promotion."""


def trace(zone: str, spell_s: float, seed: int) -> pd.DataFrame:
    """Log-normal spells of about that length and gaps of an hour, seen every minute."""
    rng, n = np.random.default_rng(seed), 60
    available = np.arange(n) % 2
    length_s = 60.0 * np.ceil(np.where(available == 1, spell_s, HOUR_S) / 60.0 * rng.lognormal(0.0, 0.8, n))
    edges = {"censored_left": 1.0 * (np.arange(n) == 0), "censored_right": 1.0 * (np.arange(n) == n - 1)}
    return pd.DataFrame(
        {"zone": zone, "trace": zone, "gpu": "V100", "nodes": 1, "gap_s": 60.0, "available": available,
         "start_s": np.cumsum(length_s) - length_s, "duration_s": length_s, **edges}
    )  # fmt: skip


@pytest.fixture(scope="module")
def spot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spot")
    tables = [trace(f"use1-az{1 + k}", HOUR_S * (1 + 3 * k), k) for k in range(8)]
    fit = inference.fit(pd.concat(tables, ignore_index=True), model="revocation", method="map", key=jax.random.key(0))
    fit.save(folder / "spot.npz")
    (folder / "prices.csv").write_text(ROWS)
    return folder


def answer(spot: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    job = ["cloud", "bert_large_1024", "--worlds", "300", "--most-gpus", "8", "--steps", "20000", "--policy", "spot"]
    files = ["--catalog", str(spot / "prices.csv"), "--availability", str(spot / "spot.npz")]
    assert main([*job, *files, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_zone_of_a_fit_has_its_own_law_and_others_that_of_an_unseen_one(spot: Path, capsys) -> None:
    laws = {
        zone: answer(spot, capsys, "--regions", zone)["best"]["law"] for zone in ("use1-az1", "use1-az2", "use1-az9")
    }
    assert laws["use1-az1"].startswith("use1-az1 V100")
    assert laws["use1-az2"].startswith("use1-az2 V100")
    assert laws["use1-az9"] == "a zone that was not seen"


def test_a_job_that_moves_between_zones_of_a_fit_has_the_laws_of_all(spot: Path, capsys) -> None:
    found = answer(spot, capsys, "--budget", "100000")
    assert len(found["best"]["zones"]) > 1
    assert found["best"]["law"].startswith(f"any of {len(found['best']['zones'])} zones, ")
    assert all(zone in found["best"]["law"] for zone in found["best"]["zones"] if zone != "use1-az9")
    (told,) = (note for note in found["notes"] if note.startswith("spot capacity"))
    assert "2 of 3 zones of the catalogue are among them: use1-az1, use1-az2" in told


def test_spells_of_a_zone_of_a_fit_are_those_of_its_trace(spot: Path) -> None:
    offers = [Offer("aws", "x", "V100", 1, "us-east-1", zone) for zone in ("use1-az1", "use1-az8", "")]
    law_of, _ = law_of_offers(str(spot / "spot.npz"), offers)
    short_s, long_s = (_up_share(law_of(offer)) for offer in offers[:2])
    assert short_s < 0.65 < 0.9 < long_s
    assert law_of(offers[2]).name == "a zone that was not seen"


def test_names_of_zones_that_no_catalogue_has_are_told(spot: Path) -> None:
    _, told = law_of_offers(str(spot / "spot.npz"), [Offer("aws", "x", "V100", 1, "us-east-1", "us-east-1a")])
    assert "none of them is a zone of the catalogue" in told
    assert "use1-az1" in told


def _up_share(law) -> float:
    horizon_s = 10 * 86_400.0
    paths = law.draw(1, 400, horizon_s, np.random.default_rng(0))
    length_s = np.diff(np.minimum(paths.until_s, horizon_s), axis=0, prepend=0.0)
    return float((length_s * paths.usable).sum(axis=0).mean() / horizon_s)
