"""The screen of a job: text that is checked as it is written, saved without loss, and run."""

import re
from html import unescape
from pathlib import Path

import pytest

from prism_jax.job.load_job import MAX_BYTES
from prism_jax.prediction.check import check_job
from prism_jax.prediction.new_job import write_new_job
from prism_jax.serve.job_screen import digest_of
from prism_jax.tables.streams import example_files
from tests.prism_jax.serve.client import Client, loads_none_of
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
    assert f'data-line="{line}">line {line}</button> <strong>software.nrom</strong>: unknown field' in found
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
    again = client.post("/job/save", {"file": "a.yaml", "digest": digest, "text": f"{mine}# too\n", "as": "b.yaml"})
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
    code = """
assert client.get("/job", file="a.yaml").status == 200
text = (client.site.folder / "a.yaml").read_text()
assert "Nothing was simulated" in client.post("/job/check", {"file": "a.yaml", "text": text}).text
"""
    loads_none_of({"jax", "matplotlib"}, client.site.folder, code)


def set_field(client: Client, text: str, path: str, value: str) -> str:
    answer = client.post("/job/set", {"file": "a.yaml", "digest": "", "text": text, f"set:{path}": value})
    assert answer.status == 200
    return unescape(answer.text)


def text_of(page: str) -> str:
    return page.partition("<textarea")[2].partition(">\n")[2].partition("</textarea>")[0]


def control(page: str, path: str) -> str:
    """Markup of the field at `path`, with its origin."""
    return page.partition(f'id="f-{path}"')[2].partition('class="field"')[0]


def test_a_field_of_the_form_is_set_in_the_text_and_the_two_agree(client: Client):
    text = "# why\n" + JOB.replace("  tp: 2\n", "  tp: 2 # narrow\n")
    page = set_field(client, text, "plan.tp", "4")
    assert text_of(page) == text.replace("tp: 2", "tp: 4")
    assert 'value="4"' in control(page, "plan.tp")
    assert "stated in line 11" in control(page, "plan.tp")
    page = set_field(client, text_of(page), "software.norm", "fused")
    assert text_of(page) == text.replace("tp: 2", "tp: 4") + "software:\n  norm: fused\n"
    assert '<option value="fused" selected>' in control(page, "software.norm")
    page = set_field(client, text_of(page), "plan.tp", "")
    assert text_of(page) == text.replace("  tp: 2 # narrow\n", "") + "software:\n  norm: fused\n"
    assert "1, the default" in control(page, "plan.tp")


def test_the_text_that_is_typed_renews_the_form(client: Client):
    found = check(client, JOB.replace("tp: 2", "tp: 8"))
    assert 'hx-swap-oob="true"' in found
    assert 'value="8"' in control(found, "plan.tp")


def test_every_field_says_where_its_value_is_from(client: Client):
    found = check(client, JOB)
    assert "stated in line 5" in control(found, "cluster.n_devices")
    assert "32, from the preset llama-2-7b" in control(found, "model.n_layers")
    assert "50 GB/s, from the preset dgx-h100" in control(found, "cluster.tiers.infiniband.bandwidth")
    assert "1f1b, the default" in control(found, "plan.schedule")
    for one in check_job(client.site.folder / "a.yaml").open_fields:
        assert f"assumed: {one.words}" in control(found, one.name)
    imported = JOB.replace("  tp: 2\n", "  tp: 2   # line 41: tensor_model_parallel_size = 2\n")
    assert "read from line 41: tensor_model_parallel_size = 2" in control(check(client, imported), "plan.tp")


def test_a_preset_in_short_form_is_stated_and_an_empty_section_is_offered(client: Client):
    found = check(client, JOB)
    assert 'id="f-model.preset"' not in found
    assert 'id="f-cluster"' not in found
    assert 'id="f-cluster"' in check(client, JOB.replace("cluster:\n  preset: dgx-h100\n  n_devices: 64\n", ""))


def test_a_wrong_field_says_so_in_the_form(client: Client):
    found = check(client, JOB.replace("tp: 2", "tp: x"))
    assert 'aria-invalid="true"' in control(found, "plan.tp")
    assert "must be an integer" in control(found, "plan.tp")


def test_a_change_that_cannot_be_made_leaves_the_text(client: Client):
    page = set_field(client, JOB, "plan.tp", "[1")
    assert "plan.tp was not changed" in page
    assert text_of(page) == JOB
    assert client.post("/job/set", {"file": "a.yaml", "text": JOB}).status == 400
    for path in ("", "." * 60, "a.b", "plan.tp.x", "name.0", "\u202e", "plan..tp"):
        set_field(client, JOB, path, "{a: 1}")


def test_a_new_job_is_that_of_init(client: Client):
    assert "Write the job file" in client.get("/job").text
    fields = {"model": "llama-3-8b", "cluster": "dgx-h100", "gpus": "16", "framework": "", "as": "n.yaml"}
    answer = client.post("/job/new", fields)
    assert answer.headers["location"] == "/job?file=n.yaml&saved=yes"
    text = (client.site.folder / "n.yaml").read_text()
    assert str(client.site.folder) not in text
    twin = client.site.folder / "twin"
    twin.mkdir()
    write_new_job(twin / "n.yaml", model="llama-3-8b", cluster="dgx-h100", n_devices=16)
    assert text == (twin / "n.yaml").read_text().replace(f"{twin}/", "")
    for wrong in (
        {"as": "n.yaml"},
        {"as": "../n.yaml"},
        {"gpus": "x"},
        {"model": "../../etc/config.json"},
        {"model": "no"},
    ):
        assert client.post("/job/new", {**fields, "as": "m.yaml", **wrong}).status == 400


def test_a_job_that_ships_is_copied(client: Client):
    answer = client.post("/job/copy", {"example": "llama2_7b_fsdp_64", "as": ""})
    assert answer.headers["location"] == "/job?file=llama2_7b_fsdp_64.yaml&saved=yes"
    assert client.get("/job", file="llama2_7b_fsdp_64.yaml", saved="yes").status == 200
    assert client.post("/job/copy", {"example": "llama2_7b_fsdp_64", "as": ""}).status == 400
    assert client.post("/job/copy", {"example": "../x", "as": ""}).status == 400


@pytest.mark.parametrize("name", sorted(example_files()))
def test_every_job_that_ships_has_a_form(name: str, client: Client):
    text = example_files()[name].read_text()
    found = check(client, text, example_files()[name].name)
    assert "Nothing was simulated" in found
    assert "No field of a job file" not in found
    ids = re.findall(r' id="([^"]*)"', found)
    assert len(ids) == len(set(ids))


def test_the_second_click_of_two_finds_its_own_text(client: Client):
    mine = JOB + "# mine\n"
    digest = digest_of(JOB)
    for _ in range(2):
        answer = client.post("/job/save", {"file": "a.yaml", "digest": digest, "text": mine, "as": "a.yaml"})
        assert (answer.status, answer.headers["location"]) == (303, "/job?file=a.yaml&saved=yes")
