"""`prism-jax place`: what it prints, and the files of launchers that it writes."""

import json
import re

import pytest
from hypothesis import given, strategies as st

from prism_jax.placement.place_nodes import hostfile, rankfile
from prism_jax.shell.app import main

JOB = """\
model: {n_layers: 8, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 8000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 32, seq_len: 1024, tp: 8, pp: 4, dp: 2, schedule: 1f1b}
variability: a100-default
"""


@pytest.fixture
def job(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return str(file)


def table(tmp_path, n_node: int, name: str = "nodes.csv") -> str:
    file = tmp_path / name
    rows = [f"{node},{1.0 + 0.02 * (node * 5 % 7)}" for node in range(n_node)]
    file.write_text("\n".join(["node,slowdown", *rows, ""]))
    return str(file)


def test_the_numbers_hang_together(job, tmp_path, capsys):
    picture = tmp_path / "places.png"
    options = ["--slowdowns", table(tmp_path, 9), "--spares", "1", "--seed", "3"]
    assert main(["place", job, *options, "--json", "--plot", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    methods = {"as_given", "random_median", "random_best_of_1000", "sorted", "annealed", "optimised"}
    assert methods <= set(found["p95_s"])
    assert set(found["p95_error_s"]) == set(found["p95_s"])
    assert found["gain"] == pytest.approx(found["p95_s"]["as_given"] - found["p95_s"]["optimised"])
    assert found["gain_interval"][0] <= found["gain"] <= found["gain_interval"][1]
    assert sorted(found["assignment"] + found["left_out"]) == list(range(9))
    assert found["seed"] == 3
    assert "prism-jax" in found["versions"]
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("n_node", "options", "words"),
    [
        (7, (), "7 nodes, but the job runs on 8"),
        (10, (), "--spares 2"),
        (9, ("--spares", "3"), "--spares 1"),
        (8, ("--objective", "p59"), "objective 'p59' is unknown"),
        (8, ("--set", "plan.dp=1", "--set", "plan.tp=1"), "do not fill whole nodes"),
    ],
)
def test_what_does_not_fit_is_named_without_a_traceback(n_node, options, words, job, tmp_path, capsys):
    assert main(["place", job, "--slowdowns", table(tmp_path, n_node), *options]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_a_table_with_holes_is_refused(job, tmp_path, capsys):
    file = tmp_path / "holes.csv"
    file.write_text("node,slowdown\n0,1.0\n7,1.1\n")
    assert main(["place", job, "--slowdowns", str(file)]) == 2
    assert "of nodes 1, 2, 3, 4, 5, ..." in capsys.readouterr().err


# --- Hostfiles and rankfiles: what a launcher reads from them is the assignment --------------------------------------


NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9.-]{0,9}", fullmatch=True), unique=True, min_size=1, max_size=20)
DEEPSPEED = re.compile(r"^(\S+)\s+slots=(\d+)")  # as its runner reads a line


@given(NAMES, st.integers(1, 16), st.integers(0, 3))
def test_filling_the_slots_of_a_hostfile_in_order_gives_the_ranks_of_the_rankfile(names, node_size, n_spare):
    hosts, spares = names[: max(1, len(names) - n_spare)], names[max(1, len(names) - n_spare) :]
    lines = [line for line in hostfile(hosts, node_size, spares).splitlines() if not line.startswith("#")]
    found = [match for line in lines if (match := DEEPSPEED.match(line))]
    filled = [(match[1], slot) for match in found for slot in range(int(match[2]))]
    lines = rankfile(hosts, node_size, spares).splitlines()
    pinned = [re.fullmatch(r"rank (\d+)=(\S+) slot=(\d+)", line) for line in lines if not line.startswith("#")]
    assert {int(m[1]): (m[2], int(m[3])) for m in pinned if m} == dict(enumerate(filled))
    assert len(pinned) == len(filled) == len(hosts) * node_size


def test_spares_are_comments_at_the_end():
    assert hostfile(["b", "a"], 8, ["c"]) == "b slots=8\na slots=8\n# spare: c\n"
    assert rankfile(["b"], 2, ["c"]) == "rank 0=b slot=0\nrank 1=b slot=1\n# spare: c\n"
