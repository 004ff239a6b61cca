"""Reports of detectors as slowdowns: slow GPUs are found, with their factors, in all formats."""

import json
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.slowdowns.detectors import detectors_of, read_detectors
from prism_jax.slowdowns.find_slow_gpus import find_slow_gpus
from prism_jax.slowdowns.slowdowns_file import read_slowdowns
from tests.support.detector_reports import (
    N_GPU,
    OF_NODES,
    PER_NODE,
    REPORTS,
    SLOW,
    factors,
    host,
    megatron_straggler,
    prometheus,
    traceml,
)


def _written(folder: Path, case: str, seed: int) -> Path:
    _, name, text = REPORTS[case]
    path = folder / name
    path.write_text(text(factors(seed), seed))
    return path


def _true(case: str) -> dict[str, float]:
    """Places that are slow, and by how much."""
    if case in OF_NODES:
        return {host(rank): factor for rank, factor in SLOW.items()}
    return {f"{host(rank)}:{rank % PER_NODE}": factor for rank, factor in SLOW.items()}


def _name(gpu) -> str:
    """A GPU by host and index, whatever the report names it by."""
    if gpu.rank is not None:
        return f"{host(gpu.rank)}:{gpu.rank % PER_NODE}"
    return gpu.host if gpu.index is None else f"{gpu.host}:{gpu.index}"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", REPORTS)
def test_all_slow_gpus_of_64_are_found_with_their_factors(tmp_path, case, seed):
    report = find_slow_gpus([_written(tmp_path, case, seed)])
    assert report.detectors == (REPORTS[case][0],)
    found = {_name(gpu): gpu.factor for gpu in report.slow}
    assert found == pytest.approx(_true(case), rel=0.02)
    for gpu in report.slow:
        assert gpu.low <= gpu.factor <= gpu.high


@pytest.mark.parametrize("case", REPORTS)
def test_predict_and_place_read_the_report_itself_like_the_table_made_of_it(tmp_path, case):
    path = _written(tmp_path, case, 7)
    find_slow_gpus([path], output=tmp_path / "gpus.csv")
    own, table = (read_slowdowns(one, N_GPU, PER_NODE) for one in (path, tmp_path / "gpus.csv"))
    assert own.factors == table.factors
    assert own.hosts == table.hosts
    assert own.is_partial == table.is_partial
    told = next(iter(own.factors.values()))
    for rank, factor in SLOW.items():
        assert told[rank] == pytest.approx(factor, rel=0.02)


def test_a_detector_is_known_by_content_whatever_the_file_is_called(tmp_path):
    for case, (name, _, text) in REPORTS.items():
        path = tmp_path / "x"
        path.write_text(text(factors()))
        known = detectors_of(path)
        assert [one.name for one in known] == [name], case


def test_all_detectors_of_one_log_are_read_and_named(tmp_path):
    logs = [REPORTS[case][2](factors(), 3) for case in ("megatron-straggler", "megatron-sniff-test")]
    (tmp_path / "train.log").write_text("".join(logs))
    (tmp_path / "labelled.log").write_text("".join(f"0: {line}" for line in logs[1].splitlines(keepends=True)))
    report = find_slow_gpus([tmp_path / "train.log"])
    assert report.detectors == ("megatron-straggler", "megatron-sniff-test")
    apart = []
    for number, text in enumerate(logs):
        (tmp_path / f"{number}.log").write_text(text)
        apart.append(find_slow_gpus([tmp_path / f"{number}.log"]))
    assert report.n_reports == sum(one.n_reports for one in apart)
    assert sum(gpu.n_readings for gpu in report.gpus) == sum(gpu.n_readings for one in apart for gpu in one.gpus)
    assert {gpu.rank for gpu in report.slow} == set(SLOW)
    assert find_slow_gpus([tmp_path / "labelled.log"]).detectors == ("megatron-sniff-test",)
    (tmp_path / "train.log").write_text("GPU sniff test\n" + logs[0])
    assert any(
        "from megatron-sniff-test, but it measures no GPU" in note
        for note in find_slow_gpus([tmp_path / "train.log"]).notes
    )


def test_ranks_that_are_slow_in_turn_are_told_from_those_that_are_slow_for_good(tmp_path):
    text = "".join(megatron_straggler(factors(n, slow={9: 1.3, 10 + n: 1.4}), n, n_report=1) for n in range(12))
    (tmp_path / "train.log").write_text(text)
    report = find_slow_gpus([tmp_path / "train.log"])
    assert [gpu.rank for gpu in report.slow] == [9]
    assert {gpu.rank for gpu in report.rotating} == set(range(10, 22))
    assert all(gpu.slow_share == pytest.approx(1 / 12) for gpu in report.rotating)
    assert all(gpu.slow_factor == pytest.approx(1.4, rel=0.02) for gpu in report.rotating)
    assert all(gpu.factor == pytest.approx(1.0, abs=0.02) for gpu in report.rotating)


def test_the_interval_holds_the_true_factor_about_as_often_as_it_says(tmp_path):
    held = []
    for seed in range(20):
        x = np.exp(0.004 * np.random.default_rng([seed, 5]).standard_normal(N_GPU))
        x[3] = 1.2
        (tmp_path / "range.json").write_text(prometheus(x, seed))
        report = find_slow_gpus([tmp_path / "range.json"])
        usual = float(np.median(x))
        held += [g.low <= x[PER_NODE * int(g.host[3:]) + (g.index or 0)] / usual <= g.high for g in report.gpus]
    assert 0.9 < np.mean(held) <= 1.0


def test_files_of_one_node_each_are_compared_with_each_other(tmp_path):
    lines = REPORTS["dcgm-exporter"][2](factors()).splitlines(keepends=True)
    files = []
    for node in range(N_GPU // PER_NODE):
        files.append(tmp_path / f"{host(node * PER_NODE)}.prom")
        files[-1].write_text(
            "".join(line for line in lines if line[0] == "#" or f'Hostname="{files[-1].stem}"' in line)
        )
    assert {_name(gpu) for gpu in find_slow_gpus(files).slow} == set(_true("dcgm-exporter"))


def test_reports_that_name_ranks_and_hosts_are_joined_where_one_ties_them(tmp_path):
    for name, text in (("final_summary.json", traceml(factors())), ("range.json", prometheus(factors()))):
        (tmp_path / name).write_text(text)
    report = find_slow_gpus([tmp_path / "final_summary.json", tmp_path / "range.json"])
    assert len(report.gpus) == N_GPU
    assert {gpu.rank for gpu in report.slow} == set(SLOW)
    (tmp_path / "train.log").write_text(megatron_straggler(factors()))
    with pytest.raises(DataError, match="train.log names ranks, .*range.json hosts"):
        find_slow_gpus([tmp_path / "train.log", tmp_path / "range.json"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.log", "nothing here\n", "no report of a detector"),
        ("a.csv", "gpu,slowdown\n0,1.2\n", "no report of a detector. A table of slowdowns needs no reading"),
        ("a.json", '{"a": 1}', "no report of a detector"),
        ("a.json", '{"data": {"result": [{"metric": {"gpu": "0"}, "values": [[1, "2"]]}]}}', "no name"),
        (
            "a.json",
            '{"status": "error", "errorType": "timeout", "error": "too long"}',
            "Prometheus answered 'too long'",
        ),
        ("a.prom", '# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n', "SM clock"),
        (
            "a.prom",
            'DCGM_FI_DEV_SM_CLOCK{gpu="0"} NaN\nDCGM_FI_DEV_SM_CLOCK{gpu="1"} 0\n',
            "numbers: DCGM_FI_DEV_SM_CLOCK: 2",
        ),
        ("a.log", "GPUs relative perf: {0: 0.0, 1: nan}\n", "measures no GPU"),
        ("a.prom", 'DCGM_FI_DEV_SM_CLOCK{gpu="0",Hostname="../x"} 40\n', "no host name"),
        ("a.log", "GPU sniff test\n", "measures no GPU"),
        ("a.json", '{"step_time": {"groups": {"rows": {"0": {}}}}}', "no phase of the step"),
    ],
)
def test_what_is_wrong_with_a_report_is_said_with_its_place(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message) as told:
        read_detectors(tmp_path / name)
    assert name in str(told.value)


@pytest.mark.parametrize(
    "lines",
    [
        ["| Node | GEMM min | GEMM max | GEMM avg |", "|---|---|---|---|", "| {} | {:.1f} | 702.0 | 699.0 |"],
        ["| Hostname | Min TFLOPS | Max TFLOPS | Avg TFLOPS |", "|---|---|---|---|", "| {} | {:.1f} | 702.0 | 699.0 |"],
        ["{} GEMM TFLOPS: min={:.1f} max=702.0 avg=699.0"],
        ["[INFO] {}: GEMM bf16 min 1 {:.1f} max 702.0 avg 699.0".replace("min 1 ", "min: ")],
    ],
)
def test_nodes_with_minimum_maximum_and_average_count_by_the_minimum(tmp_path, lines):
    *head, row = lines
    x = factors()
    rates = [(host(at), 700.0 / float(x[at : at + PER_NODE].max())) for at in range(0, N_GPU, PER_NODE)]
    (tmp_path / "preflight.md").write_text("\n".join([*head, *(row.format(*one) for one in rates)]) + "\n")
    report = find_slow_gpus([tmp_path / "preflight.md"])
    assert report.detectors == ("primus-preflight",)
    assert {gpu.host: gpu.factor for gpu in report.slow} == pytest.approx(_true("nvcre"), rel=0.02)


def test_a_job_on_several_nodes_counts_for_all_of_its_nodes(tmp_path):
    domains = [{"name": f"rack{n}", "nodeCount": 2, "tflops": f"{540.0 / (1.2 if n == 3 else 1.0)}"} for n in range(6)]
    results = [{"name": f"gpu{n}", "group": f"rack{n // 2}", "status": "Passed"} for n in range(12)]
    category = {"domain": "training", "variant": "nemotron5-8b", "domains": domains}
    report = {
        "platform": "aws",
        "totalNodes": 12,
        "failedNodes": ["gpu9"],
        "categories": [category],
        "nodeResults": results,
    }
    (tmp_path / "report.json").write_text(json.dumps(report))
    found = find_slow_gpus([tmp_path / "report.json"])
    assert {gpu.host: gpu.factor for gpu in found.slow} == pytest.approx({"gpu6": 1.2, "gpu7": 1.2})
    assert any("failed nodes, which have no factor" in note and "gpu9" in note for note in found.notes)
    assert any("several nodes" in note for note in found.notes)


def test_scores_of_sections_are_read_from_the_dict_of_a_report(tmp_path):
    x = factors()
    scores = {rank: round(float(x.min() / own), 3) for rank, own in enumerate(x)}
    text = f"Rank 0 sections relative perf: { {'forward': scores, 'backward': scores} }\n" * 3
    (tmp_path / "train.log").write_text(text)
    report = find_slow_gpus([tmp_path / "train.log"])
    assert {gpu.rank: gpu.factor for gpu in report.slow} == pytest.approx(SLOW, rel=0.02)
    assert report.n_reports == 3


@pytest.mark.parametrize("case", ["nvrx", "megatron-straggler", "megatron-sniff-test"])
def test_gpus_that_a_detector_of_extremes_leaves_out_are_as_usual_where_all_are_needed(tmp_path, case):
    table = read_slowdowns(_written(tmp_path, case, 0), N_GPU, PER_NODE)
    assert table.is_partial
    for kind, factors_of_kind in table.with_usual(N_GPU).factors.items():
        assert set(factors_of_kind) == set(range(N_GPU))
        assert {gpu: factors_of_kind[gpu] for gpu in table.factors[kind]} == dict(table.factors[kind])
        assert all(factors_of_kind[gpu] == 1.0 for gpu in set(range(N_GPU)) - set(table.factors[kind]))


def test_a_table_that_is_incomplete_stays_so(tmp_path):
    (tmp_path / "gpus.csv").write_text("gpu,slowdown\n3,1.2\n")
    table = read_slowdowns(tmp_path / "gpus.csv", N_GPU, PER_NODE)
    assert table.with_usual(N_GPU) == table
