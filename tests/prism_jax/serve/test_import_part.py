"""A file in the words of a trainer on the page: asks for what is missing, then shows what `import_job` reads, and saves it."""

import re
from html import unescape
from pathlib import Path

import pytest

from prism_jax.launch.import_job import import_job
from prism_jax.prediction.check import check_job
from tests.prism_jax.launch.heads import LLAMA, megatron_block, megatron_steps
from tests.prism_jax.serve.client import Client, loads_none_of
from tests.prism_jax.serve.test_job_screen import text_of

SCRIPT = """\
#!/bin/bash
SIZES="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 14336 --vocab-size 128256"
torchrun --nproc_per_node=8 pretrain_gpt.py $SIZES --seq-length 8192 --max-position-embeddings 8192 \\
  --tensor-model-parallel-size $TP --micro-batch-size 1 --global-batch-size 128 --bf16 --log-interval 10
"""


@pytest.fixture
def client(tmp_path: Path) -> Client:
    (tmp_path / "train.log").write_text("\n".join([*megatron_block(LLAMA), *megatron_steps([0.9, 0.91, 0.95])]) + "\n")
    (tmp_path / "run.sh").write_text(SCRIPT)
    return Client(tmp_path)


def page(client: Client, **query: str) -> str:
    answer = client.get("/job", **query)
    assert answer.status == 200
    return unescape(answer.text)


def test_a_log_is_imported_and_predicted_with_the_numbers_of_import(client: Client):
    asked = page(client, file="train.log")
    assert "does not say which GPU it is of" in asked
    assert 'name="device" aria-invalid="true" aria-describedby="asked"' in asked
    assert "/recording?file=train.log" in asked
    found = page(client, file="train.log", device="h100-sxm")
    folder = client.site.folder
    report = import_job(folder / "train.log", device="h100-sxm", output=folder / "twin.yaml")
    for one in report.read:
        assert f"<td>{one.path}</td><td" in found
        assert one.origin in found
    for one in report.no_effect:
        assert one.name in found
    assert all(f"assumed: {one}" in found for one in report.assumed)
    text = text_of(found)
    assert text == (folder / "twin.yaml").read_text()
    assert "read from line 22: num_layers = 32" in found
    done = client.post(
        "/job/save", {"file": "train.yaml", "digest": "", "text": text, "as": "train.yaml", "then": "predict"}
    )
    assert done.headers["location"] == "/run?name=predict-1"
    assert client.runs.submitted == [("predict", "train.yaml")]
    saved, twin = check_job(folder / "train.yaml"), check_job(folder / "twin.yaml")
    assert (saved.memory_bytes_per_gpu, saved.n_params) == (twin.memory_bytes_per_gpu, twin.n_params)
    assert 'value="train-2.yaml"' in page(client, file="train.log", device="h100-sxm")


def test_a_script_asks_for_its_variables_by_name(client: Client):
    asked = page(client, file="run.sh")
    assert "leaves open $TP (line 4" in asked
    assert 'id="env.TP" name="env.TP"' in asked
    assert "/recording" not in asked
    found = page(client, **{"file": "run.sh", "device": "h100-sxm", "gpus": "16", "env.TP": "2"})
    report = import_job(client.site.folder / "run.sh", variables={"TP": "2"}, n_devices=16, device="h100-sxm")
    assert report.card().verdict in found
    assert "tp 2 x pp 1 x dp 8" in found
    assert 'value="2"' in found.partition('id="env.TP"')[2][:60]  # what was said is kept
    lines = page(client, file="run.sh", device="h100-sxm", gpus="16", env="TP=4\n", set="plan.zero_stage=1\nname=mine")
    assert "tp 4 x pp 1 x dp 4" in lines
    assert "zero_stage: 1" in text_of(lines)


def test_what_is_refused_is_named_as_the_form_names_it(client: Client):
    told = page(client, **{"file": "train.log", "device": "h100-sxm", "set.plan.tp": "x"})
    assert "'Field plan.tp': 'x', but it must be an integer" in told
    assert "Give 'Variable TP'. Name the GPU too: 'GPU'." in page(client, file="run.sh")
    assert "plan: write NAME=VALUE" in page(client, file="train.log", device="h100-sxm", set="plan\n")
    assert "'Field a..b': expected FIELD=VALUE" in page(client, file="train.log", device="h100-sxm", set="a..b=1\n")
    for query in ({}, {"device": "h100-sxm", "gpus": "8"}, {"set": "plan.tpp=3"}, {"set": "model={kind: 1}"}):
        asked = page(client, file="train.log", **query).partition('id="asked"')[2].partition("</div>")[0]
        assert asked
        assert not re.search(r"--(set|env|device|gpus)", asked)


def test_a_log_too_large_to_wait_for_is_not_read(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prism_jax.serve.files.LARGE", 1000)
    monkeypatch.setattr("prism_jax.launch.launch_files.read_heads", lambda path: pytest.fail("it was read"))
    found = page(client, file="train.log", device="h100-sxm")
    assert "train.log: " in found
    assert "too large to be read while you wait. Save its beginning" in found
    assert client.get("/open", file="train.log").headers["location"].startswith("/recording")


def test_a_damaged_job_file_is_edited_and_not_imported(client: Client):
    for text in ("", "plan: [", "cluster: dgx-h100\n", "\0"):
        (client.site.folder / "a.yaml").write_text(text)
        answer = client.get("/job", file="a.yaml")
        assert (answer.status, "Job file" in answer.text) == ((400, False) if text == "\0" else (200, True))
    (client.site.folder / "a.yaml").write_text("modle: llama-2-7b\n")
    assert "Edit it as a job file" in page(client, file="a.yaml")
    assert "mistake" in page(client, **{"file": "a.yaml", "as": "job"})


HOSTILE = (
    {"gpus": "x"}, {"gpus": "9" * 50}, {"device": "<script>"}, {"env": "=\n=="}, {"env": "A B=1"}, {"env.x y": "1"}, {"set": "x"},
    {"set": "model.hf_config=/etc/passwd"}, {"set": "model={hf_config: /etc/passwd}"}, {"set": "data.lengths=../x.csv"},
    {"set.": "1"}, {"arguments": "'"}, {"arguments": "--config /etc/passwd"}, {"device": "\0"}, {"set": "a: [=1"},
)  # fmt: skip


@pytest.mark.parametrize("file", ["train.log", "run.sh"])
@pytest.mark.parametrize("query", HOSTILE)
def test_nonsense_is_told_and_no_fault(file: str, query: dict[str, str], client: Client):
    answer = client.get("/job", file=file, **query)
    assert answer.status in (200, 400)
    assert "<script>" not in answer.text.replace('<script src="/static/', "")
    assert str(client.site.folder) not in answer.text
    assert "root:" not in answer.text


def test_files_elsewhere_are_not_read(client: Client, tmp_path_factory: pytest.TempPathFactory):
    other = tmp_path_factory.mktemp("other") / "sizes.sh"
    other.write_text("TP=2\n")
    (client.site.folder / "run.sh").write_text(f"#!/bin/bash\nsource {other}\n" + SCRIPT.removeprefix("#!/bin/bash\n"))
    assert "leaves open $TP" in page(client, file="run.sh")
    (client.site.folder / "link.sh").symlink_to(other)
    assert client.get("/job", file="link.sh").status == 400


def test_jax_is_not_loaded(client: Client):
    code = 'assert "Job file" in client.get("/job", file="train.log", device="h100-sxm").text'
    loads_none_of({"jax", "matplotlib"}, client.site.folder, code)
