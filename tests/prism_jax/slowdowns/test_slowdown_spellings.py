"""One slow GPU, number 4 of host gpu003 (rank 20), as strangers write it down: the same slowdown in every spelling."""

from pathlib import Path

import pytest

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.node_names import read_hosts
from prism_jax.slowdowns.slowdowns_file import SlowdownTable, read_slowdowns

HOSTS = "gpu[001-008]"
SPELLINGS = {
    "rank": "rank,slowdown\n20,1.2\n",
    "rank and host": "rank,host,slowdown\n20,gpu003,1.2\n",
    "case of the header": "Rank,Node,Slowdown\n20,gpu003,1.2\n",
    "factor": "rank,factor\n20,1.2\n",
    "per cent in the column": "rank,slowdown_pct\n20,20\n",
    "per cent in brackets": "rank,Slowdown (%)\n20,20\n",
    "per cent in the value": "rank,slowdown\n20,20%\n",
    "times": "rank,slowdown\n20,1.2x\n",
    "comment": "# measured on Monday\n#\nrank,slowdown\n20,1.2\n",
    "tabs": "Host\tGPU\tSlowdown\ngpu003\t4\t1.2\n",
    "semicolons and a decimal comma": "host;gpu;slowdown\ngpu003;4;1,2\n",
    "spaces": "host gpu slowdown\ngpu003 4 1.2\n",
    "domain": "hostname,local_rank,slowdown\ngpu003.cluster.local,4,1.2\n",
    "case of the host": "host,gpu,slowdown\nGPU003,4,1.2\n",
    "cuda:4": "host,gpu,slowdown\ngpu003,cuda:4,1.2\n",
    "GPU4": "host,gpu,slowdown\ngpu003,GPU4,1.2\n",
    "node and GPU in one": "gpu,slowdown\ngpu003:4,1.2\n",
    "others are left out": "host,gpu,slowdown\nlogin1,0,3\ngpu003,4,1.2\n",
}


def _read(tmp_path: Path, text: str, hosts: str = HOSTS) -> SlowdownTable:
    file = tmp_path / "slow.csv"
    file.write_text(text, encoding="utf-8")
    return read_slowdowns(file, 64, 8, read_hosts(hosts))


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_every_spelling_is_the_same_gpu_and_factor(tmp_path: Path, text: str):
    assert _read(tmp_path, text).factors == {"all": {20: pytest.approx(1.2)}}


def test_a_list_with_domains_finds_hosts_without(tmp_path: Path):
    found = _read(tmp_path, "host,gpu,slowdown\ngpu003,4,1.2\n", "gpu[001-008].cluster.local")
    assert found.factors == {"all": {20: pytest.approx(1.2)}}


def test_addresses_have_no_domain_and_two_hosts_of_one_short_name_are_not_guessed(tmp_path: Path):
    row = "host,gpu,slowdown\n{},4,1.2\n"
    assert _read(tmp_path, row.format("10.0.0.3"), "10.0.0.1,10.0.0.2,10.0.0.3").factors == {"all": {20: 1.2}}
    for name, listed in (("10.1", "10.2,10.3"), ("a", "a.east,a.west")):
        with pytest.raises(DataError, match="1 rows are of hosts that are not in --hosts"):
            _read(tmp_path, row.format(name), listed)


def test_two_columns_of_one_meaning_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="two columns hold the same slowdowns"):
        _read(tmp_path, "rank,slowdown,Slowdown\n20,1.2,1.3\n")
    with pytest.raises(DataError, match="needs one of gpu or node"):
        _read(tmp_path, "rank,slowdown,slowdown_pct\n20,1.2,20\n")
