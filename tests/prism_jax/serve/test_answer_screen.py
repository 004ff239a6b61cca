"""Every kind of report has its screen, with the numbers of its JSON; what became of its job is told; downloads are the report."""

import io
import json
import os
import random
import re
import shlex
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from benchmarks.golden.inputs import write_inputs
from prism_jax import __version__
from prism_jax.core.page import Bars, Block, Facts, Group, Note, Table
from prism_jax.core.report import Report
from prism_jax.job.load_job import load_job
from prism_jax.serve.results import MOST_KEPT, MOST_KEPT_BYTES, Results
from prism_jax.shell.app import main
from prism_jax.show.reports import report_of
from tests.prism_jax.serve.client import Client, loads_none_of
from tests.prism_jax.shell.test_reports import every, strict_promotion  # noqa: F401

COMMANDS = {
    "p.json": "predict job.yaml --samples 64",
    "set.json": "predict job.yaml --samples 64 --set plan.micro_batch=1",
    "s.json": "search job.yaml --space space.yaml --top 2",
}


def written(found: Path, commands: Mapping[str, str]) -> Path:
    """A folder with two jobs, and with reports as commands write them."""
    write_inputs(found)
    job = (found / "job.yaml").read_text()
    (found / "other.yaml").write_text(job.replace("micro_batch: 1", "micro_batch: 2"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        for name, command in commands.items():
            printed = io.StringIO()
            with redirect_stdout(printed):
                assert main([*shlex.split(command), "--json", "-q"]) == 0
            Path(name).write_text(printed.getvalue())
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("made"), COMMANDS)


@pytest.fixture
def client(made: Path, tmp_path: Path) -> Client:
    """A browser of a copy of that folder."""
    return Client(Path(shutil.copytree(made, tmp_path / "dir")))


def texts(blocks: Sequence[Block]) -> Iterator[str]:
    """All texts of blocks."""
    for one in blocks:
        match one:
            case Note():
                yield one.text
            case Facts():
                yield from one.facts.values()
            case Table():
                yield from (cell for row in one.rows for cell in row)
            case Bars():
                yield from (bar.text for bar in one.bars)
            case Group():
                yield from texts(one.blocks)
            case _:
                yield one.text


def shown(text: str) -> str:
    """Words of a page, without its elements."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@every
def test_every_report_has_a_screen_with_the_numbers_of_its_json(report: Report, tmp_path: Path):
    report.save(tmp_path / "one report.json")
    answer = Client(tmp_path).get("/answer", file="one report.json")
    assert answer.status == 200
    page, plain = report_of(json.loads((tmp_path / "one report.json").read_text())).page(), shown(answer.text)
    card = [] if page.card is None else [page.card.title, page.card.verdict, *page.card.facts.values()]
    for text in (*card, *texts(page.blocks)):
        assert " ".join(text.split()) in plain
    if page.card is not None:
        assert not re.search("<dt>next</dt><dd>[^<]*(--|prism-jax )", answer.text), "options are of a command line"
    assert not re.search("<dt>next</dt><dd>[^<]*--details", report.to_html()), "a page shows the details"
    assert answer.text.count("<h1") == 1
    assert not re.search(r"<[^>]+\s(style|on\w+)=", answer.text)
    shutil.copy(tmp_path / "one report.json", tmp_path / "copy.json")
    beside = Client(tmp_path).ask("GET", "/compare?file=one+report.json&file=copy.json")
    assert beside.status == 200
    assert "All figures that differ" not in beside.text
    assert answer.text.count("<script") == 2
    assert "<style" not in answer.text


def test_the_numbers_of_a_curve_stand_beside_its_picture(client: Client):
    curve = json.loads((client.site.folder / "p.json").read_text())["curve"]
    text = shown(client.get("/answer", file="p.json").text)
    assert client.get("/picture", file="p.json").headers["content-type"].startswith("image/svg")
    for at in (0, -1):
        row = " ".join(f"{curve[name][at]:.6g}" for name in ("level", "time_s", "error_s"))
        assert row in text


def test_downloads_are_the_report(client: Client):
    def got(form: str, name: str = "p.json", **query: str):
        answer = client.get("/download", **{"file": name, "as": form}, **query)
        assert answer.status == 200
        assert answer.headers["content-disposition"].startswith("attachment; filename=")
        return answer

    file = client.site.folder / "p.json"
    assert got("json").body == file.read_bytes()
    assert got("html").text == report_of(json.loads(file.read_text())).to_html()
    assert got("yaml").text == json.loads(file.read_text())["record"]["job_file"]
    assert "--micro-batch-size" in zipped(got("arguments").body)
    best = json.loads((client.site.folder / "s.json").read_text())["unlike"][0]["plan"]
    assert f"--tensor-model-parallel-size {best['tp']}" in zipped(got("arguments", "s.json", plan="1").body)


def zipped(body: bytes) -> str:
    """Texts of the files of an archive, or the text itself."""
    if not zipfile.is_zipfile(io.BytesIO(body)):
        return body.decode()
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return "\n".join(archive.read(name).decode() for name in archive.namelist())


def test_plans_of_a_search_become_jobs_with_these_plans(client: Client):
    plans = json.loads((client.site.folder / "s.json").read_text())["unlike"]
    for number, one in enumerate(plans, 1):
        answer = client.post("/use", {"file": "s.json", "plan": str(number)})
        assert answer.status == 303
        written = load_job(client.site.folder / answer.headers["location"].partition("file=")[2])
        assert {name: getattr(written.plan, name) for name in ("tp", "pp", "dp", "micro_batch", "recompute")} == {
            name: one["plan"][name] for name in ("tp", "pp", "dp", "micro_batch", "recompute")
        }
    assert client.post("/use", {"file": "s.json", "plan": str(len(plans) + 1)}).status == 400
    assert client.post("/use", {"file": "p.json", "plan": "1"}).status == 400


def test_arguments_of_the_best_plan_are_there_to_be_copied(client: Client):
    text = client.get("/answer", file="s.json").text
    copied = [unescape(one) for one in re.findall(r'data-copy="([^"]*)"', text)]
    best = json.loads((client.site.folder / "s.json").read_text())["unlike"][0]["plan"]
    assert any(f"--tensor-model-parallel-size {best['tp']}" in one for one in copied)
    other = client.get("/arguments", file="s.json", plan="2")
    assert other.status == 200
    assert "data-copy" in other.text


CHANGED = "has changed since this report was made"


def test_a_report_of_a_job_that_has_changed_says_so_and_runs_again(client: Client):
    job = client.site.folder / "job.yaml"
    before = job.read_text()
    for name in ("p.json", "set.json"):
        assert CHANGED not in client.get("/answer", file=name).text
    job.write_text(f"# a remark\n{before}")
    assert CHANGED not in client.get("/answer", file="p.json").text, "it states the same job"
    job.write_text(before.replace("micro_batch:", "micro_batch: 1 #"))
    assert CHANGED in client.get("/answer", file="p.json").text
    job.write_text("plan: [")
    assert CHANGED in client.get("/answer", file="p.json").text
    job.unlink()
    assert CHANGED not in client.get("/answer", file="p.json").text, "nobody can tell"
    assert client.post("/again", {"file": "p.json"}).status == 303
    assert client.runs.submitted == [("predict", "job.yaml", "--samples", "64", "-q")]


def test_a_search_of_a_job_that_was_written_later_says_so(client: Client):
    job = client.site.folder / "job.yaml"
    made_s = (client.site.folder / "s.json").stat().st_mtime
    for later_s, is_told in ((-10.0, False), (10.0, True)):
        os.utime(job, (made_s + later_s, made_s + later_s))
        assert ("job.yaml was written after this report" in client.get("/answer", file="s.json").text) == is_told


def test_what_is_kept_of_files_is_bounded_and_made_again_when_they_change(tmp_path: Path):
    results = Results(tmp_path)
    names = [f"{n}.json" for n in range(MOST_KEPT + 10)]
    for name in names:
        (tmp_path / name).write_text("x" * 100)
    made: list[str] = []
    for name in (*names, names[-1], names[0], names[0]):
        assert results.kept("length", [name], lambda name=name: made.append(name) or len(made)) is not None
    assert made == [*names, names[0]], "the latest are kept, the first was not any more"
    (tmp_path / names[0]).write_text("y")
    assert results.kept("length", [names[0]], lambda: "again") == "again"
    (tmp_path / "large.json").write_text("x" * MOST_KEPT_BYTES)
    for _ in range(2):
        results.kept("length", ["large.json"], lambda: made.append("large"))
    assert made[-2:] == ["large", "large"], "what is too large is made each time"


def test_a_report_of_another_version_says_so(client: Client):
    file = client.site.folder / "p.json"
    file.write_text(file.read_text().replace(f'"prism-jax": "{__version__}"', '"prism-jax": "0.0.1"'))
    assert "Made by prism-jax 0.0.1" in client.get("/answer", file="p.json").text


def test_other_commands_take_the_job_with_its_options(client: Client):
    for name, value in (("p.json", ""), ("set.json", "plan.micro_batch=1")):
        text = client.get("/answer", file=name).text
        links = [unescape(one) for one in re.findall(r'href="(/start[?][^"]*job=[^"]*)"', text)]
        assert [parse_qs(urlsplit(one).query)["command"] for one in links] == [["sweep"], ["search"], ["run"]]
        for one in links:
            assert parse_qs(urlsplit(one).query).get("set", [""]) == [value]
            answer = client.ask("GET", one)
            assert answer.status == 200
            assert value in answer.text


def test_a_job_that_is_not_here_is_written_as_a_file_first(client: Client):
    (client.site.folder / "job.yaml").unlink()
    text = client.get("/answer", file="set.json").text
    assert "Write its job as a file" in text
    assert "/start?command=sweep" not in text
    answer = client.post("/use", {"file": "set.json"})
    name = answer.headers["location"].partition("file=")[2]
    assert load_job(client.site.folder / name).plan.micro_batch == 1
    assert client.post("/use", {"file": "set.json"}).headers["location"] != answer.headers["location"], (
        "none is replaced"
    )
    assert client.post("/use", {"file": "s.json", "plan": "1"}).status == 400, "a search keeps no job"


def test_a_pin_is_set_and_taken_away_on_the_screen(client: Client):
    for pinned, word in (("yes", "Unpin"), ("no", "Pin")):
        answer = client.post("/pin", {"file": "p.json", "pinned": pinned})
        assert answer.headers["location"] == "/answer?file=p.json"
        assert f">{word}<" in client.get("/answer", file="p.json").text


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "JSON"),
        ('{"schema": "prism-jax/prediction/1"}', "missing"),
        ('{"schema": "prism-jax/nothing/1"}', "no such report"),
        ('{"schema": "prism-jax/prediction/9"}', "later version"),
        ("[]", "no report"),
    ],
)
def test_what_is_no_report_is_told_in_the_words_of_the_error(client: Client, text: str, word: str):
    (client.site.folder / "bad.json").write_text(text)
    for path, query in (("/answer", {}), ("/download", {"as": "json"}), ("/arguments", {}), ("/picture", {})):
        answer = client.get(path, file="bad.json", **query)
        assert answer.status == 400
        assert "bad.json" in answer.text
        assert word in unescape(answer.text)
    assert client.post("/again", {"file": "bad.json"}).status == client.post("/use", {"file": "bad.json"}).status == 400


@pytest.mark.parametrize(
    "query", [{}, {"file": ""}, {"file": "../p.json"}, {"file": "none.json"}, {"file": "job.yaml"}]
)
def test_other_addresses_are_refused(client: Client, query: dict[str, str]):
    for path in ("/answer", "/download", "/arguments"):
        assert client.get(path, **query).status == 400
    assert client.get("/download", **{"file": "p.json", "as": "exe"}).status == 400


COLD = """
from importlib import import_module
from prism_jax.show.reports import REPORTS
for name in ("p.json", "s.json"):
    for form in ("json", "html", "yaml", "arguments"):
        assert client.get("/download", **{"file": name, "as": form}).status == 200
    assert client.get("/answer", file=name).status == client.get("/picture", file=name).status == 200
for kind in map(REPORTS.named, REPORTS.names):
    if kind.picture:
        import_module(kind.picture.partition(":")[0])
"""


def test_no_answer_and_no_picture_loads_jax(client: Client):
    loads_none_of({"jax"}, client.site.folder, COLD)


JUNK = (None, "x", -1, 1e30, [], {}, True, "<script>", ["a"], {"a": 1})


def test_reports_with_other_values_are_refused_and_never_a_fault(client: Client):
    rng = random.Random(0)
    for name in ("p.json", "s.json"):
        whole = (client.site.folder / name).read_text()
        for _ in range(40):
            data = json.loads(whole)
            for _ in range(rng.choice((1, 3))):
                _spoil(data, rng)
            (client.site.folder / "bad.json").write_text(json.dumps(data))
            drawn = rng.choice(("/picture?file=bad.json", "/download?file=bad.json&as=html", None, None))
            others = (f"/download?file=bad.json&as={form}" for form in ("yaml", "arguments"))
            compared = f"/compare?file=bad.json&file={name}"
            for target in filter(None, ("/answer?file=bad.json", compared, drawn, *others)):
                answer = client.ask("GET", target)
                assert answer.status in (200, 400), (target, data)
                assert b"<script>" not in answer.body
            assert client.post("/use", {"file": "bad.json"}).status in (303, 400)


def _spoil(data: Any, rng: random.Random) -> None:
    """Puts another value somewhere into a document."""
    place = data
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        inner = place[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.15:
            place[key] = rng.choice(JUNK)
            return
        place = inner
