"""Hostfiles and rankfiles: what a launcher reads from them is the assignment."""

import re

from hypothesis import given, strategies as st

from prism_jax.placement.place_nodes import hostfile, rankfile

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
