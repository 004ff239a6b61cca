"""Tables of measured slowdowns: what is read, and every mistake with its row and remedy."""

import pytest

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.node_names import read_hosts
from prism_jax.slowdowns.slowdowns_file import SlowdownTable, read_slowdowns


def hosts(tmp_path, text: str, n_devices: int = 16, listed: str = "") -> SlowdownTable:
    file = tmp_path / "gpus.csv"
    file.write_text(text, encoding="utf-8")
    return read_slowdowns(file, n_devices, node_size=8, hosts=read_hosts(listed) if listed else ())


def read(tmp_path, text: str):
    return hosts(tmp_path, text).factors


def test_gpus_nodes_and_classes_are_read(tmp_path):
    assert read(tmp_path, "gpu,slowdown\n3,1.5\n") == {"all": {3: 1.5}}
    assert read(tmp_path, "node,slowdown\n1,1.5\n") == {"all": dict.fromkeys(range(8, 16), 1.5)}
    assert read(tmp_path, "gpu,gemm,memory\n3,1.5,1\n") == {"gemm": {3: 1.5}, "memory": {3: 1.0}}


def test_links_are_of_nodes_and_a_rail_is_of_its_gpu(tmp_path):
    first, second = range(8), range(8, 16)
    assert read(tmp_path, "host,nic\na,1\nb,2x\n") == {"nic": dict.fromkeys(first, 1.0) | dict.fromkeys(second, 2.0)}
    assert read(tmp_path, "gpu,slowdown,link\n3,1.1,1.5\n4,1,\n5,,1.2\n") == {
        "all": {3: 1.1, 4: 1.0},
        "link": dict.fromkeys(first, 1.5),  # the slowest row of the node
    }
    assert read(tmp_path, "node,gpu,rail\n1,2,2\n") == {"nic": {10: 2.0}}
    table = "node,gpu,NIC,rail\n0,0,1.2,2\n0,1,,1\n"
    assert read(tmp_path, table) == {"nic": {0: 2.0} | dict.fromkeys(range(1, 8), 1.2)}


def test_spaces_blank_lines_and_windows_line_ends_do_not_matter(tmp_path):
    assert read(tmp_path, "gpu, slowdown\r\n\r\n3, 1.5\r\n") == {"all": {3: 1.5}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: needs one of gpu or node"),
        ("gpu,slowdown\n", "no rows"),
        ("gpus,slowdown\n1,1\n", "did you mean gpu"),
        ("gpu,slowdown,slowdown\n1,1.1,1.2\n", ":1: the column 'slowdown' is there twice. Keep one"),
        ("host,node,slowdown\n1,1,1\n", "needs one of gpu or node"),
        ("gpu,host,slowdown\n8,a,1\n", "next to a host it counts the GPUs of that node, from 0 to 7"),
        ("gpu,node,slowdown\n0,2,1\n", ":2 gpu: 0 of 2, but the job has 16 GPUs"),
        ("gpu,host,slowdown\n1,a,1\n1,a,1\n", ":3 gpu: 1 of a is listed twice"),
        ("host,slowdown\na,1\na,1\n", ":3 host: a is listed twice"),
        ("host,slowdown\na,1\n1,1\n", ":3 host: '1' is a number, but the rows above have names"),
        ("node,slowdown\n0,1\na,1\n", ":3 node: 'a' is a name, but the rows above have numbers"),
        ("host,slowdown\na,1\nb,1\nc,1\n", ":4 host: c is host number 3, but the job has 2 nodes"),
        ("node,slowdown\n-1,1\n", ":2 node: '-1' is not a whole number from 0, nor a host name"),
        ("node,slowdown\n1.0,1\n", ":2 node: '1.0' is not a whole number from 0, nor a host name"),
        ("node,slowdown\nnan,1\n", ":2 node: 'nan' is not"),
        ("host,slowdown\na b,1\n", "nor a host name .letters"),
        ("host,slowdown\na=b,1\n", "nor a host name .letters"),
        ("host,slowdown\n#a,1\n", "nor a host name .letters"),
        ("host,slowdown\n,1\n", ":2 host: '' is not"),
        (f"host,slowdown\n{'a' * 300},1\n", "nor a host name .letters"),
        ("host,slowdown\na,\n", "no rows"),
        ("gpu,slowdown\n-1,1\n", ":2 gpu: '-1' is not a whole number"),
        (f"gpu,slowdown\n{'9' * 5000},1\n", ":2 gpu: .* is not a whole number"),
        ("gpu,slowdown\n16,1\n", "the job has 16 GPUs"),
        ("node,slowdown\n2,1\n", "the job has 16 GPUs"),
        ("gpu,slowdown\n1,1\n1,1\n", ":3 gpu: 1 is listed twice"),
        ("gpu,slowdown\n1,nan\n", "'nan' is not a number"),
        ("gpu,slowdown\n1,fast\n", "'fast' is not a number"),
        ("gpu,slowdown\n1,1_0\n", "'1_0' is not a number"),
        ("gpu,slowdown\n1,١\n", "'١' is not a number"),
        ("gpu,slowdown\n" + "\n" * 1_000_001, "1,000,002 lines, more than 1,000,000"),
        ("gpu,slowdown\n1\n", ":2: the number of fields differs"),
    ],
)
def test_mistake_names_row_field_and_remedy(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_a_message_is_short_however_long_the_value(tmp_path):
    with pytest.raises(DataError) as error:
        read(tmp_path, f"gpu,slowdown\n{'9' * 5000},1\n")
    assert len(str(error.value)) < 300


def test_a_folder_and_a_missing_file_are_said(tmp_path):
    for path, message in ((tmp_path, "a folder, not a file"), (tmp_path / "absent.csv", "cannot be read: No such")):
        with pytest.raises(DataError, match=message):
            read_slowdowns(path, 16, 8)


@pytest.mark.parametrize("column", ["node", "host", "hostname"])
def test_hosts_are_nodes_in_the_order_of_their_first_rows(tmp_path, column):
    table = hosts(tmp_path, f"{column},slowdown\nnode017,1.5\ngpu-a-12, 1.25\n")
    assert table.hosts == ("node017", "gpu-a-12")
    assert table.factors == {"all": dict.fromkeys(range(8), 1.5) | dict.fromkeys(range(8, 16), 1.25)}


def test_a_gpu_beside_a_host_counts_inside_it(tmp_path):
    table = hosts(tmp_path, "host,gpu,gemm,memory\nb,3,1.5,1\na.lan,0,1.1,1.2\nb,0,1.3,1\n")
    assert table.hosts == ("b", "a.lan")
    assert table.factors == {"gemm": {3: 1.5, 8: 1.1, 0: 1.3}, "memory": {3: 1.0, 8: 1.2, 0: 1.0}}
    assert read(tmp_path, "node,gpu,slowdown\n1,2,1.5\n") == {"all": {10: 1.5}}


def test_an_empty_factor_keeps_the_place_of_a_host_whose_slowdown_is_unknown(tmp_path):
    table = hosts(tmp_path, "host,slowdown\na,\nb,1.5\n")
    assert table.hosts == ("a", "b")
    assert table.factors == {"all": dict.fromkeys(range(8, 16), 1.5)}


def test_a_host_may_be_the_last_node_of_a_job_that_does_not_fill_it(tmp_path):
    table = hosts(tmp_path, "host,slowdown\na,1\nb,1.5\n", n_devices=12)
    assert sorted(table.factors["all"]) == list(range(12))


def test_names_and_numbers_are_the_same_table(tmp_path):
    order = [1, 0]
    named = "".join(f"h{node},{1 + node / 8}\n" for node in order)
    numbered = "".join(f"{order.index(node)},{1 + node / 8}\n" for node in order)
    assert read(tmp_path, "host,slowdown\n" + named) == read(tmp_path, "node,slowdown\n" + numbered)


# --- Which node a host is: by the list of the job's hosts, or by ranks ------------------------------------------------


def test_a_list_of_hosts_says_which_node_a_host_is_and_leaves_others_out(tmp_path):
    (tmp_path / "gpus.csv").write_text("host,slowdown\nb,1.5\nz,1.9\n")
    table = read_slowdowns(tmp_path / "gpus.csv", 32, 8, ("c", "a", "b"))
    assert table.factors == {"all": dict.fromkeys(range(16, 24), 1.5)}
    assert (table.hosts, table.is_order) == (("c", "a", "b"), False)
    assert table.notes[-1].endswith("1 rows are of hosts that are not in --hosts and were left out")


def test_a_rank_says_where_and_a_host_beside_it_is_a_name(tmp_path):
    table = hosts(tmp_path, "host,rank,gpu,slowdown\nb,9,1,1.5\nb,8,0,1.25\n")
    assert table.factors == {"all": {9: 1.5, 8: 1.25}}
    assert (table.hosts, table.is_order) == (("", "b"), False)
    assert read(tmp_path, "rank,slowdown\n9,1.5\n") == {"all": {9: 1.5}}
    with pytest.raises(DataError, match=r":3 host: b is node 1, but its row has a rank of node 0 \(8 ranks per node\)"):
        hosts(tmp_path, "host,rank,slowdown\nb,9,1.5\nb,0,1.25\n")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a\nb.lan\n", ("a", "b.lan")),
        ("# job 7\nb slots=8\n\na slots=8  # spare\n", ("b", "a")),
        ("gpu[008-010,2]-ib\nx\n", ("gpu008-ib", "gpu009-ib", "gpu010-ib", "gpu2-ib", "x")),
    ],
)
def test_lists_of_hosts_are_read_as_launchers_write_them(tmp_path, text, names):
    (tmp_path / "hosts").write_text(text)
    assert read_hosts(tmp_path / "hosts") == names
    assert read_hosts([*names]) == names


def test_lists_of_hosts_may_be_typed():
    assert read_hosts("gpu[01-02],c,d[3]") == ("gpu01", "gpu02", "c", "d3")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,a", "a stands there twice"),
        ("a,b=c", "'b=c' is no host name"),
        ("gpu[-1]", "'-1' is no range of numbers such as 001-004"),
        ("gpu[x]", r"'gpu\[x\]' is no host name"),
        ("gpu[1-9999999]", "more than 1,000,000 hosts"),
        ("", "no hosts"),
    ],
)
def test_wrong_lists_of_hosts_are_refused(text, message):
    with pytest.raises(DataError, match=message):
        read_hosts(text)


def test_more_listed_hosts_than_nodes_are_refused(tmp_path):
    (tmp_path / "gpus.csv").write_text("host,slowdown\nb,1.5\n")
    with pytest.raises(DataError, match="--hosts: 3 hosts, but the job has 2 nodes of 8 GPUs"):
        read_slowdowns(tmp_path / "gpus.csv", 16, 8, ("a", "b", "c"))


# --- One slow GPU, number 4 of host gpu003 (rank 20), as strangers write it down --------------------------------------


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


def of_64(tmp_path, text: str, listed: str = HOSTS):
    return hosts(tmp_path, text, 64, listed).factors


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_every_spelling_is_the_same_gpu_and_factor(tmp_path, text: str):
    assert of_64(tmp_path, text) == {"all": {20: pytest.approx(1.2)}}


def test_a_list_with_domains_finds_hosts_without(tmp_path):
    found = of_64(tmp_path, "host,gpu,slowdown\ngpu003,4,1.2\n", "gpu[001-008].cluster.local")
    assert found == {"all": {20: pytest.approx(1.2)}}


def test_addresses_have_no_domain_and_two_hosts_of_one_short_name_are_not_guessed(tmp_path):
    row = "host,gpu,slowdown\n{},4,1.2\n"
    assert of_64(tmp_path, row.format("10.0.0.3"), "10.0.0.1,10.0.0.2,10.0.0.3") == {"all": {20: 1.2}}
    for name, listed in (("10.1", "10.2,10.3"), ("a", "a.east,a.west")):
        with pytest.raises(DataError, match="1 rows are of hosts that are not in --hosts"):
            of_64(tmp_path, row.format(name), listed)


def test_two_columns_of_one_meaning_are_refused(tmp_path):
    with pytest.raises(DataError, match="two columns hold the same slowdowns"):
        of_64(tmp_path, "rank,slowdown,Slowdown\n20,1.2,1.3\n")
    with pytest.raises(DataError, match="needs one of gpu or node"):
        of_64(tmp_path, "rank,slowdown,slowdown_pct\n20,1.2,20\n")
