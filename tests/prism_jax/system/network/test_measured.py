"""Measured collectives on a network: the ratio where it was measured, its neighbours beyond, and nothing elsewhere."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from prism_jax.system import catalog
from prism_jax.system.network import Network
from prism_jax.system.network_kinds import MeasuredCollectives, MeasuredCurve, MeasuredNetwork

CLUSTER = catalog.cluster("dgx-h100", 64)
SIZES = (log(1e4), log(1e6), log(1e8))


def curve(kind: str, crosses: bool, n: int, *ratio: float) -> MeasuredCurve:
    return MeasuredCurve(kind, crosses, n, SIZES, tuple(np.log(ratio).tolist()))


MEASURED = MeasuredCollectives(
    (
        curve("all_reduce", True, 16, 1.0, 2.0, 4.0),
        curve("all_reduce", True, 64, 4.0, 4.0, 4.0),
        curve("p2p", True, 2, 3.0, 3.0, 3.0),
    )
)


def test_the_ratio_is_that_of_the_measured_size_and_group():
    assert MEASURED.factor("all_reduce", 1e6, True, 16) == pytest.approx(2.0)
    assert MEASURED.factor("all_reduce", 1e5, True, 16) == pytest.approx(2.0**0.5), "halfway in log bytes"
    assert MEASURED.factor("all_reduce", 1e4, True, 32) == pytest.approx(2.0), "halfway in log members"


def test_beyond_what_was_measured_the_last_ratio_stays():
    assert MEASURED.factor("all_reduce", 1e12, True, 16) == pytest.approx(4.0)
    assert MEASURED.factor("all_reduce", 1.0, True, 2) == pytest.approx(1.0)
    assert MEASURED.factor("all_reduce", 1e4, True, 4096) == pytest.approx(4.0)


@pytest.mark.parametrize(("kind", "crosses"), [("all_gather", True), ("all_reduce", False)])
def test_what_was_not_measured_keeps_the_figures(kind, crosses):
    assert MEASURED.factor(kind, 1e6, crosses, 8) == 1.0


def test_a_cluster_multiplies_its_own_seconds():
    own, measured = CLUSTER.fabric, replace(CLUSTER, measured=MEASURED).fabric
    assert isinstance(measured, MeasuredNetwork)
    assert isinstance(measured, Network)
    inside, across = ("all_reduce", 1e6, 1, 8), ("all_reduce", 1e6, 1, 16)
    assert measured.collective(*inside) == own.collective(*inside)
    assert measured.collective(*across).seconds == pytest.approx(2.0 * own.collective(*across).seconds)
    assert measured.collective(*across).algorithm == own.collective(*across).algorithm
    far = own.n_distance - 1
    assert measured.send_s(1e6, far, 8) == pytest.approx(3.0 * own.send_s(1e6, far, 8))
    assert measured.send_s(1e6, 0, 8) == own.send_s(1e6, 0, 8)


def test_measurements_stay_where_a_cluster_grows():
    grown = replace(CLUSTER, measured=MEASURED).of_size(4096)
    assert grown.fabric.collective("all_reduce", 1e6, 1, 4096).seconds == pytest.approx(
        4.0 * CLUSTER.of_size(4096).fabric.collective("all_reduce", 1e6, 1, 4096).seconds
    )


def test_of_two_tables_the_later_wins_where_both_measured():
    later = MeasuredCollectives((curve("all_reduce", True, 32, 5.0, 5.0, 5.0),))
    both = later.over(MEASURED)
    assert both.factor("all_reduce", 1e4, True, 16) == pytest.approx(5.0)
    assert both.factor("p2p", 1e4, True, 2) == pytest.approx(3.0)
