"""One call in Python answers what a command prints; reports survive JSON, pickle and a file, and are as published.

Their first screens have at most ten lines of 80 columns, with every part that a first screen must have.
"""

import json
import pickle
import re
import shlex
from dataclasses import replace
from pathlib import Path

import jax
import pytest

import prism_jax as pj
from benchmarks.first_screens import COLUMNS, GPUS, VARIANTS, Screen, kinds_with_a_card, missing_parts, screen_of
from benchmarks.golden.inputs import ROOT
from prism_jax.core.errors import DataError
from prism_jax.core.page import Card
from prism_jax.core.page_text import page_lines
from prism_jax.core.report import Report
from prism_jax.prediction.check_report import CheckReport
from prism_jax.shell.app import main
from prism_jax.show.reports import REPORTS, published_schema
from tests.support.intervals import estimates
from tests.support.report_cases import CASES


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """In place of the one of all these tests: NumPyro relies on promotion."""


every = pytest.mark.parametrize("report", list(CASES), indirect=True)


def test_there_is_a_case_for_every_report():
    assert set(CASES) == set(REPORTS.names)


@every
def test_json_of_the_command_is_the_report(report: Report, capsys):
    assert main([*shlex.split(CASES[report.kind][0]), "--json"]) == 0
    printed, plain = json.loads(capsys.readouterr().out), report.to_dict()
    if report.kind in ("catalogue", "entry"):  # lists and entries are printed as they are
        assert printed == plain["entries" if report.kind == "catalogue" else "entry"]
        return
    for found in (printed, plain):
        for part in (found, found.get("record", {})):  # a checkout may be edited meanwhile
            part.pop("inputs", None)
            part.pop("git_revision", None)
            part.pop("command", None)
    assert printed == plain


@every
def test_reports_survive_json_pickle_and_a_file(report: Report, tmp_path: Path):
    plain = json.loads(report.to_json())
    again = type(report).from_dict(plain)
    assert again.to_dict() == plain
    assert again.lines() == report.lines()
    assert pickle.loads(pickle.dumps(report)) == report
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == plain


@every
def test_reports_are_what_their_published_schema_says(report: Report):
    jsonschema = pytest.importorskip("jsonschema")
    schema = published_schema(report.kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(json.loads(report.to_json()))
    described = set(schema["properties"])
    assert set(report.to_dict()) <= described, "every key is described"


@every
def test_every_report_is_one_html_file_that_loads_nothing(report: Report):
    html = report.to_html()
    assert html.startswith("<!doctype html><html")
    assert "<script" not in html
    assert len(html) < 500_000
    outside = [
        one for one in re.findall(r"""(?:src|href|url\()=?["']?([^"'\s)]+)""", html) if not one.startswith("data:")
    ]
    assert outside == []
    assert "default-src &#39;none&#39;" in html


@every
def test_a_notebook_shows_a_card_and_one_line_names_the_report(report: Report):
    assert report._repr_html_().startswith("<div>")
    assert "\n" not in repr(report)
    assert len(report.to_frame()) == 1


WITH_INTERVALS = {
    "cloud", "prediction", "study", "placement", "sharding", "queue", "run", "site-calibration", "fit", "kept-fit",
    "steps-validation", "trace-prediction", "tune",
}  # fmt: skip


@every
def test_every_estimate_lies_in_the_interval_beside_it(report: Report):
    found = list(estimates(json.loads(report.to_json())))
    assert [one for one in found if not one.is_inside] == []
    assert bool(found) == (report.kind in WITH_INTERVALS)


def test_predictions_take_fits(case_folder: Path, monkeypatch):
    monkeypatch.chdir(case_folder)
    two = "".join(
        Path("runs.csv").read_text().splitlines(keepends=True)[:3]
    )  # of more, it may be said that what ships is better
    Path("two.csv").write_text(two)
    assert main(["calibrate", "two.csv", "-q", "-o", "site.npz"]) == 0
    key = jax.random.key(0)
    plain = pj.predict("job.yaml", key=key, n_samples=64)
    fitted = pj.predict("job.yaml", key=key, n_samples=64, fits=["site.npz"])
    told = pj.explain_step("job.yaml", n_samples=64, fits=["site.npz"])
    assert fitted.quantile(0.5) != plain.quantile(0.5)
    assert told.step_time_s.p50 == fitted.quantile(0.5)


def test_a_job_object_is_as_good_as_its_file(case_folder: Path):
    file = case_folder / "job.yaml"
    by_object, by_file = pj.check_job(pj.load_job(file)), pj.check_job(file)
    assert replace(by_object, record=by_file.record) == by_file
    assert pj.peak_memory(file).fits


def test_overrides_of_a_job_object_are_refused(case_folder: Path):
    with pytest.raises(DataError, match="fields of a file"):
        pj.check_job(pj.load_job(case_folder / "job.yaml"), overrides=["plan.tp=2"])


def test_a_damaged_report_names_the_key_and_what_to_do(case_folder: Path):
    whole = pj.check_job(f"{case_folder}/job.yaml").to_dict()
    damaged = {name: value for name, value in whole.items() if name != "memory_bytes_per_gpu"}
    with pytest.raises(
        DataError, match="the key 'memory_bytes_per_gpu' is missing. Make it again, or restore the file"
    ):
        CheckReport.from_dict(damaged)
    with pytest.raises(DataError, match="Make it again by `prism-jax check job.yaml`"):
        CheckReport.from_dict(damaged | {"command": "prism-jax check job.yaml"})
    with pytest.raises(DataError, match="a value is not of the kind that it must be"):
        CheckReport.from_dict(whole | {"memory_bytes_per_gpu": 3})


WITH_A_CARD = kinds_with_a_card()
with_a_card = pytest.mark.parametrize("report", WITH_A_CARD, indirect=True)


@with_a_card
def test_the_first_screen_answers_in_ten_lines(report: Report):
    card = report.card()
    assert card is not None
    lines = page_lines(replace(report.page(), is_short=True), COLUMNS)
    screen = Screen(report.kind, tuple(lines), missing_parts(report, card))
    assert screen.is_good, "\n".join((*screen.lines, *screen.missing))
    assert max(map(len, page_lines(report.page(), COLUMNS))) <= COLUMNS
    assert len(card.assumptions) <= 2


@pytest.mark.parametrize("report", ["check", "watch"], indirect=True)
def test_a_command_prints_the_first_screen_of_its_report(report: Report):
    screen = screen_of(CASES[report.kind][0])
    assert screen is not None
    assert screen.lines == tuple(page_lines(replace(report.page(), is_short=True), COLUMNS))


CARD = Card(
    "a job",
    "It fits.",
    "good",
    facts={"p50": "2 s (90%: 1.8 to 2.4 s)"},
    evidence="9 runs",
    assumptions=("all alike",),
)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"verdict": "It fits"}, "verdict"),
        ({"facts": {}}, "central figure"),
        ({"facts": {"p50": "2 s"}}, "interval"),
        ({"evidence": ""}, "evidence"),
        ({"assumptions": ()}, "assumptions"),
    ],
)
def test_a_part_that_is_not_there_is_named(change: dict, part: str):
    assert CARD.missing(is_estimate=True) == ()
    assert part in replace(CARD, **change).missing(is_estimate=True)
    counted = replace(CARD, facts={"rows": "9"}, assumptions=())
    assert counted.missing(is_estimate=False) == ()


def test_screens_that_are_long_or_wide_are_not_good():
    assert Screen("x", ("a",) * 10, ()).is_good
    assert not Screen("x", ("a",) * 11, ()).is_good
    assert not Screen("x", ("a" * 81,), ()).is_good


def test_commands_that_take_a_job_are_measured_on_all_shipped_ones():
    assert set(GPUS) == {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    assert set(VARIANTS) <= set(WITH_A_CARD)


@with_a_card
def test_a_stored_report_is_drawn(report: Report):
    """Pictures are made of the report alone, and so they stand in the page of a stored one."""
    assert not report.picture or type(report).from_dict(report.to_dict())._svg() is not None
