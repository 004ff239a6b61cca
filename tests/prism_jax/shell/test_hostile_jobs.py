"""Jobs that are made to keep a reader busy, to reach code that expects something else, or to exceed every machine."""

import pytest

from tests.prism_jax.shell.calls import Said, said

JOB = """\
model: {preset: llama-3-8b}
cluster: {preset: dgx-h100}
plan: {tp: 2, pp: 2, dp: 2, micro_batch: 1, global_batch: 8, seq_len: 2048}
"""
TOML = """\
model = "llama-3-8b"
cluster = "dgx-h100"
[plan]
tp = 2
pp = 2
dp = 2
micro_batch = 1
global_batch = 8
seq_len = 2048
"""
FILES = {
    "spaces.toml": TOML + " " * 100_000 + "\n",
    "header.toml": "[" + " " * 100_000 + "\n",
    "dots.toml": "a." * 50_000 + "a = 1\n",
    "dots_inside.toml": "a = {" + "b." * 3_000 + "b = 1}\n",
    "dots_in_text.toml": 'name = "' + "." * 1_000 + '"  # ' + "." * 1_000 + "\n" + TOML,
    "deep.toml": "a = " + "{a = " * 60 + "1" + "}" * 60 + "\n",
    "long.toml": "name = " + "9" * 5_000 + "\n",
    "hex.toml": "name = 0x" + "f" * 5_000 + "\n",
    "hex.yaml": "name: 0x" + "f" * 5_000 + "\n",
    "paren.yaml": JOB.replace("dgx-h100", "'" + "(" * 100_000 + "'"),
    "device.yaml": JOB.replace("{preset: dgx-h100}", "{device: '" + "( x" * 30_000 + "'}"),
    "bandwidth.yaml": JOB.replace(
        "{preset: dgx-h100}", "{preset: dgx-h100, tiers: {infiniband: {bandwidth: '5 a" + " " * 100_000 + "b'}}}"
    ),
    "job.yaml": JOB,
}
TAGS = ('!!int ""', '!!int "-"', '!!float ""', "!!bool foo", '!!timestamp "abc"', "!!str 5", "!!binary 1", "! x")
HUGE = (
    "model.n_layers", "model.hidden", "model.vocab", "model.max_seq_len", "model.n_mtp", "model.window.size",
    "model.adapters.rank", "plan.tp", "plan.pp", "plan.dp", "plan.cp", "plan.ep", "plan.virtual_stages", "plan.seq_len",
    "plan.micro_batch", "plan.global_batch", "plan.dp_shard", "plan.bf16_layers", "plan.grad_bucket",
    "plan.recompute_num_layers", "cluster.n_devices", "cluster.node_size", "cluster.device.n_sm",
    "cluster.device.likeness_sd", "cluster.tiers.infiniband.n_devices",
)  # fmt: skip
WIDE = (
    "all_gather.regime=1.0e300", "gemm.gpu=1.0e6", "step={kind: log_normal, cv: 1.0e9}", "stalls=[{gpu_exponent: 1.0e9}]",
    "stalls=[{mean_fraction: 1.0e300}]",
    "gemm.gpu={kind: mixture, bulk_cv: 1.0e300, slow_prob: 0.1, slow_factor: 2, slow_cv: 0.1}",
    "gemm.gpu={kind: mixture, bulk_cv: 0.1, slow_prob: 0.1, slow_factor: 1.0e300, slow_cv: 0.1}",
)  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Said]:
    folder = tmp_path_factory.mktemp("jobs")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    sets = [f"name={tag}" for tag in TAGS]
    sets += [f"{field}={value}" for field in HUGE for value in (10**15, 2**63 - 1, 10**30)]
    sets += [f"variability.{text}" for text in WIDE] + [
        "a." * 50_000 + "a=1",
        "cluster.tiers=[{name: a}]",
        "cluster.tiers.²=1",
    ]
    calls = {name: ["check", name] for name in FILES}
    return said(calls | {text[:60]: ["check", "job.yaml", "--set", text] for text in sets}, folder)


def refusal(answers: dict[str, Said], name: str) -> str:
    """What was said, in a few lines, of wrong input; nothing of a bug."""
    assert name in answers, "not answered in time"
    assert answers[name].code == 2, answers[name]
    assert "bug" not in answers[name].err
    return answers[name].err


@pytest.mark.parametrize("name", ["spaces.toml", "dots_in_text.toml", "job.yaml"])
def test_odd_but_valid_jobs_are_read(answers: dict[str, Said], name: str) -> None:
    assert answers[name].code == 0, answers[name].err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("header.toml", "not valid TOML"),
        ("dots.toml", "dots.toml:1:1: not valid TOML: a key of more than 50 parts"),
        ("dots_inside.toml", "a key of more than 50 parts"),
        ("deep.toml", "nested more than 50 levels deep"),
        ("long.toml", "a number of thousands of digits"),
        ("hex.toml", "more than 64 bits"),
        ("hex.yaml", "hex.yaml:1:7 name: "),
        ("paren.yaml", "unknown cluster"),
        ("device.yaml", "unknown device"),
        ("bandwidth.yaml", "unknown unit"),
    ],
)
def test_jobs_that_keep_a_reader_busy_are_refused(answers: dict[str, Said], name: str, message: str) -> None:
    assert message in refusal(answers, name)


@pytest.mark.parametrize("tag", TAGS)
def test_types_that_a_text_states_reach_no_constructor(answers: dict[str, Said], tag: str) -> None:
    assert "is not supported. Remove it." in refusal(answers, f"name={tag}")


@pytest.mark.parametrize("value", [10**15, 2**63 - 1, 10**30])
@pytest.mark.parametrize("field", HUGE)
def test_sizes_beyond_every_machine_are_refused_by_field(answers: dict[str, Said], field: str, value: int) -> None:
    text = refusal(answers, f"{field}={value}"[:60])
    assert field.rpartition(".")[2] in text
    assert value > 2**63 or any(
        words in text for words in ("at most", "between", "not a multiple", "does not divide", "model chunks")
    )


@pytest.mark.parametrize("text", WIDE)
def test_spreads_beyond_every_machine_are_refused(answers: dict[str, Said], text: str) -> None:
    said_of_it = refusal(answers, f"variability.{text}"[:60])
    assert f"variability.{text.partition('=')[0]}" in said_of_it
    assert "<= " in said_of_it


def test_fields_of_thousands_of_parts_are_refused(answers: dict[str, Said]) -> None:
    assert "a field of more than 50 parts" in refusal(answers, "a." * 30)
