"""The screen of a job: text that is checked as it is written, saved without loss, and run."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from prism_jax.job.load_job import MAX_BYTES
from prism_jax.prediction.check import check_job
from prism_jax.serve.job_screen import digest_of
from tests.prism_jax.serve.client import Client
from tests.support.job_texts import JOB

WRONG = JOB + "software: {nrom: fused}\n"


@pytest.fixture
def client(tmp_path: Path) -> Client:
    (tmp_path / "a.yaml").write_text(JOB)
    return Client(tmp_path)


def check(client: Client, text: str, file: str = "a.yaml") -> str:
    answer = client.post("/job/check", {"file": file, "text": text})
    assert answer.status == 200
    return unescape(answer.text)


def saved(client: Client, text: str, **fields: str):
    digest = digest_of((client.site.folder / "a.yaml").read_text())
    return client.post("/job/save", {"file": "a.yaml", "digest": digest, "text": text, **fields})


def test_the_card_is_that_of_check(client: Client):
    found = check(client, JOB)
    card = check_job(client.site.folder / "a.yaml").card()
    assert card.title in found
    assert card.verdict in found
    assert card.facts["memory"] in found
    assert card.evidence in found


def test_a_wrong_field_is_marked_at_its_line_mended_and_predicted(client: Client):
    line = WRONG.count("\n")
    found = check(client, WRONG)
    assert f"line {line}, software.nrom" in found
    assert "did you mean norm?" in found
    assert re.search(
        rf'<li class="wrong" value="{line}" aria-describedby="mistake-0"><code>software: {{nrom: fused}}', found
    )
    refused = saved(client, WRONG, then="predict")
    assert refused.status == 400
    assert "nothing was started" in refused.text
    assert not client.runs.submitted
    started = saved(client, JOB + "software: {norm: fused}\n", then="predict")
    assert started.status == 303
    assert started.headers["location"] == "/run?name=predict-1"
    assert client.runs.submitted == [("predict", "a.yaml")]
    assert check_job(client.site.folder / "a.yaml").fits


def test_a_file_that_was_changed_by_others_is_not_lost(client: Client):
    path = client.site.folder / "a.yaml"
    digest, theirs = digest_of(path.read_text()), JOB + "# theirs\n"
    path.write_text(theirs)
    mine = JOB + "# mine\n"
    answer = client.post("/job/save", {"file": "a.yaml", "digest": digest, "text": mine})
    assert answer.status == 409
    assert "changed by someone else" in answer.text
    assert "# mine" in answer.text
    assert path.read_text() == theirs
    aside = client.post("/job/save", {"file": "a.yaml", "digest": digest, "text": mine, "as": "b.yaml"})
    assert aside.headers["location"] == "/job?file=b.yaml&saved=yes"
    assert (client.site.folder / "b.yaml").read_text() == mine
    assert path.read_text() == theirs
    again = client.post("/job/save", {"file": "a.yaml", "digest": digest, "text": mine, "as": "b.yaml"})
    assert again.status == 409
    assert "is there already" in again.text


def test_line_ends_of_forms_are_those_of_files(client: Client):
    assert saved(client, JOB.replace("\n", "\r\n")).status == 303
    assert (client.site.folder / "a.yaml").read_bytes() == JOB.encode()


def test_search_and_sweep_begin_with_their_options(client: Client):
    assert saved(client, JOB, then="search").headers["location"] == "/start?command=search&job=a.yaml"


@pytest.mark.parametrize(
    "name", ["../a.yaml", "/etc/a.yaml", ".a.yaml", "a.sh", "", "no/a.yaml", "a" * 300 + ".yaml", "\0.yaml"]
)
def test_hostile_names_are_refused(name: str, client: Client):
    assert saved(client, JOB, **{"as": name}).status == 400
    assert sorted(path.name for path in client.site.folder.iterdir()) == ["a.yaml"]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    "text",
    ["", "\0", "[" * 100_000, "{" * 60, BOMB, "a: &a [*a]", "!!python/object/apply:os.system [ls]", "- 1", "x: " + "9" * 5000,
     "model:\n" * 20_000, "plan: {tp: .nan, pp: -1, dp: 1e400}", "\u202e: \u202e", "<script>alert(1)</script>", "- " * 100_000,
     "? [a]\n: b", "a: !!binary x", "model: {hf_config: ../../etc/passwd}", "data: {lengths: /etc/passwd}\n" + JOB,
     "\n".join(f"k{n}: {n}" for n in range(40_000))],
)  # fmt: skip
def test_nonsense_is_marked(text: str, client: Client):
    for file in ("a.yaml", "a.toml"):
        found = check(client, text, file)
        assert "mistake" in found
        assert str(client.site.folder) not in found
        assert "<script>" not in client.post("/job/check", {"file": file, "text": text}).text


def test_a_text_beyond_the_bound_is_refused(client: Client):
    assert client.post("/job/check", {"file": "a.yaml", "text": "x" * MAX_BYTES}).status == 413
    (client.site.folder / "b.yaml").write_text("x" * (MAX_BYTES + 1))
    assert client.get("/job", file="b.yaml").status == 400


def test_jax_is_not_loaded(client: Client):
    code = f"""
import sys
from pathlib import Path
from tests.prism_jax.serve.client import Client
client = Client(Path({str(client.site.folder)!r}))
assert client.get("/job", file="a.yaml").status == 200
text = (client.site.folder / "a.yaml").read_text()
assert "Nothing was simulated" in client.post("/job/check", {{"file": "a.yaml", "text": text}}).text
assert "jax" not in sys.modules and "matplotlib" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
