"""Placements by host name: the files for launchers are the placement, rank by rank."""

import re
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax import load_job, step_time
from prism_jax.core.errors import DataError
from prism_jax.placement.place import Effort, place
from prism_jax.placement.place_nodes import LaunchFiles, place_nodes
from prism_jax.placement.report import PlacementReport
from prism_jax.shell.app import main
from prism_jax.slowdowns.find_slow_gpus import find_slow_gpus
from tests.support.detector_reports import REPORTS, SLOW, factors

JOB = """\
model: {n_layers: 8, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 8000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 32, seq_len: 1024, tp: 4, pp: 4, dp: 2, schedule: 1f1b}
variability: none
"""
FACTOR = {"gpu-a-12": 1.3, "node017": 1.0, "n3": 1.1, "x.lan": 1.2, "spare_1": 1.6}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[str, str]:
    """A job on four nodes, and measured slowdowns of five."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "job.yaml").write_text(JOB)
    rows = [f"{host},{gpu},{factor + gpu / 100}" for host, factor in FACTOR.items() for gpu in range(8)]
    (folder / "nodes.csv").write_text("\n".join(["host,gpu,slowdown", *rows, ""]))
    return str(folder / "job.yaml"), str(folder / "nodes.csv")


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Placements that search a little."""
    few = Effort(n_random=8, n_step=16, n_relaxed=0, n_fresh=16, n_kept=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prism_jax.placement.place.place", partial(place, effort=few))
        yield


@pytest.fixture(scope="module")
def report(files) -> PlacementReport:
    return place_nodes(*files, spares=1)


def ranks(text: str) -> dict[int, tuple[str, int]]:
    return {int(r): (host, int(s)) for r, host, s in re.findall(r"^rank (\d+)=(\S+) slot=(\d+)$", text, re.M)}


def test_a_step_on_the_ranks_of_the_rankfile_takes_the_time_that_the_placement_promises(report, files, tmp_path):
    LaunchFiles(rankfile=tmp_path / "ranks").write(report)
    of_rank = ranks((tmp_path / "ranks").read_text())
    slowdown = np.array([FACTOR[of_rank[r][0]] + of_rank[r][1] / 100 for r in range(32)])
    seconds = step_time(load_job(files[0]), jnp.asarray(slowdown)[:, None])
    assert float(seconds[0]) == pytest.approx(report.p50_s["optimised"], rel=1e-5)
    given = step_time(load_job(files[0]), jnp.asarray(np.roll(slowdown, 8))[:, None])
    assert float(given[0]) != pytest.approx(report.p50_s["optimised"], rel=1e-3)  # another order shows


@settings(max_examples=30)
@given(st.permutations(range(5)))
def test_the_host_of_every_rank_is_the_one_that_was_assigned(report, tmp_path_factory, order):
    folder, names = tmp_path_factory.mktemp("files"), tuple(FACTOR)
    result = replace(report.parts, assignment=tuple(order[:4]), left_out=tuple(order[4:]))
    hosts, spare_hosts = (tuple(map(result.host, nodes)) for nodes in (result.assignment, result.left_out))
    other = replace(report, hosts=hosts, spare_hosts=spare_hosts)
    LaunchFiles(folder / "hosts", folder / "ranks").write(other)
    of_rank = ranks((folder / "ranks").read_text())
    assert of_rank == {r: (names[order[r // 8]], r % 8) for r in range(32)}
    expected = [f"{names[node]} slots=8" for node in order[:4]] + [f"# spare: {names[order[4]]}"]
    assert (folder / "hosts").read_text().splitlines() == expected


def test_the_report_has_host_names_and_positions(report):
    names = tuple(FACTOR)
    assert report.hosts == tuple(names[node] for node in report.assignment)
    assert report.spare_hosts == tuple(names[node] for node in report.left_out)
    assert sorted((*report.hosts, *report.spare_hosts)) == sorted(names)
    text = str(report)
    for slot, host in enumerate(report.hosts):  # tp 4 x dp 2: a node is one stage of both replicas
        assert re.search(rf"^ {slot * 8}-{slot * 8 + 7} +{re.escape(host)} +{slot} +0-1 ", text, re.M)
    assert re.search(rf"left out: node {re.escape(report.spare_hosts[0])}", text)


def test_gains_are_in_the_unit_of_the_objective(report):
    """GPU-hours are no microseconds."""
    other = replace(report, objective="gpu_hours_per_mtoken", objective_unit="GPU-hours")
    gains = [text for name, text in other.card().facts.items() if name == "gain" or name.startswith("over ")]
    assert len(gains) == 2
    assert all("GPU-hours" in line and not re.search(r"\d (us|ms|s)\b", line) for line in gains)


def test_the_command_writes_what_the_run_writes(files, tmp_path, capsys):
    job, table = files
    paths = [str(tmp_path / name) for name in ("hosts", "ranks")]
    options = ["--slowdowns", table, "--spares", "1", "--hostfile", paths[0], "--rankfile", paths[1]]
    assert main(["place", job, *options, "--details"]) == 0
    text = capsys.readouterr().out
    for words in ("Assignment", "chosen", "against the nodes as given", "stage"):
        assert words in text
    assert len(ranks((tmp_path / "ranks").read_text())) == 32
    assert (tmp_path / "hosts").read_text().count(" slots=8\n") == 4


def test_nodes_without_names_and_bad_targets_are_refused_before_the_search(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("prism_jax.placement.place.place", lambda *_, **__: pytest.fail("searched"))
    numbered = tmp_path / "numbered.csv"
    numbered.write_text("node,slowdown\n" + "".join(f"{n},1\n" for n in range(4)))
    hosts = str(tmp_path / "hosts")
    with pytest.raises(DataError, match="column host"):
        place_nodes(files[0], str(numbered), hostfile=hosts)
    assert main(["place", files[0], "--slowdowns", str(numbered), "--hostfile", hosts]) == 2
    assert "needs host names" in capsys.readouterr().err
    for path in (str(tmp_path / "absent" / "hosts"), str(tmp_path)):
        assert main(["place", files[0], "--slowdowns", files[1], "--rankfile", path]) == 2
    assert main(["place", files[0], "--slowdowns", files[1], "--rankfile", hosts, "--hostfile", hosts]) == 2


def test_numbered_nodes_are_reported_by_number_and_write_no_files(files, tmp_path):
    slowdowns = {"all": {gpu: 1.0 + (gpu // 8) / 10 for gpu in range(40)}}
    report = place_nodes(files[0], slowdowns, spares=1)
    assert report.hosts == tuple(map(str, report.assignment))
    with pytest.raises(DataError, match="needs host names"):
        place_nodes(files[0], slowdowns, spares=1, hostfile=tmp_path / "hosts")


def test_hosts_that_are_missing_are_named(files, tmp_path):
    table = tmp_path / "nodes.csv"
    table.write_text("host,slowdown\na,1\nb,\nc,1\nd,\n")
    with pytest.raises(DataError, match="of nodes b, d"):
        place_nodes(files[0], str(table))


@pytest.mark.parametrize("case", ["nvrx", "megatron-straggler", "megatron-sniff-test"])
@pytest.mark.parametrize("spares", [0, 1])
def test_a_table_of_extremes_places_like_the_report_it_is_made_of(files, tmp_path, case, spares):
    """Nodes that it does not list are as usual, spare ones too: a GPU of rank 5 is the slowest of its node, the first."""
    _, name, text = REPORTS[case]
    (tmp_path / name).write_text(text(factors(0)[:32], 0))
    find_slow_gpus([tmp_path / name], output=tmp_path / "gpus.csv")
    report, table = (place_nodes(files[0], tmp_path / one, spares=spares) for one in (name, "gpus.csv"))
    assert report.assignment == table.assignment
    assert len(table.left_out) == spares
    assert len(table.node_slowdown) == 4 + spares
    assert table.node_slowdown[0] == pytest.approx(SLOW[5], rel=0.15)  # of the kernels that it measures
