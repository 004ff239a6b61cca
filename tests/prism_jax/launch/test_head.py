"""Heads of logs: blocks of arguments behind prefixes, colours and wraps; runs; what stands in sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from prism_jax.core.errors import PrismError
from prism_jax.job.load_job import load_job
from prism_jax.launch.head import Head, runs_of
from prism_jax.launch.head_job import SIZES
from prism_jax.launch.read_heads import read_heads
from prism_jax.workload.base.workload import n_body

from .heads import LLAMA, SWIFT, bars, megatron_block, megatron_steps


def heads_of(tmp_path: Path, lines: list[str]) -> list[Head]:
    path = tmp_path / "train.log"
    path.write_text("\n".join(lines) + "\n")
    return list(runs_of(read_heads(path)))


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "0: ",
        " 12: ",
        "[default0]:",
        "0: [default3]:",
        "node-07: ",
        "10.1.2.3: ",
        "[rank0]:",
        "\x1b[36m(main pid=12)\x1b[0m ",
    ],
)
def test_arguments_are_the_same_behind_any_prefix(prefix, tmp_path):
    [head] = heads_of(tmp_path, megatron_block(LLAMA, prefix) + megatron_steps([1.0] * 4, prefix))
    assert {name: one.text for name, one in head.arguments.items()} == {
        name: str(value) for name, value in LLAMA.items()
    }


def test_arguments_know_their_lines(tmp_path):
    [head] = heads_of(tmp_path, ["first", *megatron_block({"num_layers": 32, "hidden_size": 64})])
    assert head.arguments["num_layers"].line == 3
    assert head.arguments["hidden_size"].line == 4


@pytest.mark.parametrize("rest", ["0: .... 8", "0: 8", "[default0]:.... 8", "8"])
def test_a_value_on_the_next_line_is_joined(rest, tmp_path):
    lines = megatron_block({"num_layers": 32}, "0: ")
    lines[1:1] = ["0:   transformer_pipeline_model_parallel_size ....", rest]
    [head] = heads_of(tmp_path, lines)
    assert head.arguments["transformer_pipeline_model_parallel_size"].text == "8"
    assert head.arguments["num_layers"].text == "32"


def test_an_empty_value_takes_nothing_from_the_next_argument(tmp_path):
    lines = megatron_block({"config_logger_dir": "", "num_layers": 32})
    [head] = heads_of(tmp_path, [line.rstrip() for line in lines])
    assert head.arguments["config_logger_dir"].text == ""
    assert head.arguments["num_layers"].text == "32"


def test_a_block_after_steps_is_another_run(tmp_path):
    first = megatron_block(LLAMA) + megatron_steps([1.0] * 4)
    second = megatron_block({**LLAMA, "micro_batch_size": 2}) + megatron_steps([2.0] * 4)
    heads = heads_of(tmp_path, first + second)
    assert [head.arguments["micro_batch_size"].text for head in heads] == ["1", "2"]
    assert heads[0].last_line == len(first)
    assert heads[1].first_line == len(first) + 1


def test_a_block_without_a_step_is_replaced_by_the_next(tmp_path):
    lines = megatron_block({**LLAMA, "seq_length": 1}) + megatron_block(LLAMA) + megatron_steps([1.0] * 4)
    [head] = heads_of(tmp_path, lines)
    assert head.arguments["seq_length"].text == "8192"


def test_a_text_without_a_head_has_no_runs(tmp_path):
    assert heads_of(tmp_path, ["step 1 loss 2.0 time 0.5 s"] * 10) == []


def test_numbers_of_parameters_are_read_where_lines_run_together(tmp_path):
    line = " > number of parameters on (tensor, pipeline) model parallel rank (3, 1): 77"
    [head] = heads_of(tmp_path, [*megatron_block(LLAMA), line + line.replace("3, 1", "0, 1")])
    assert {key: one.text for key, one in head.params.items()} == {(3, 1): "77", (0, 1): "77"}


def test_many_names_do_not_grow_without_bound(tmp_path):
    lines = megatron_block({f"name_{n}": n for n in range(20_000)})
    [head] = heads_of(tmp_path, lines)
    assert len(head.arguments) <= 5000


def test_a_log_is_a_job_wherever_a_job_file_is(tmp_path):
    path = tmp_path / "train.log"
    path.write_text("\n".join([*megatron_block(LLAMA), *megatron_steps([1.0] * 5)]))
    job = load_job(path, ["cluster.device=h100-sxm", "plan.tp=4", "plan.dp=4"])
    assert (job.model.n_params(), job.plan.tp, job.cluster.device.name) == (8_030_261_248, 4, "h100-sxm")
    with pytest.raises(PrismError, match=r"train\.log: the log does not say which GPU .*--device"):
        load_job(path)
    path.write_text("neither: a job\n")
    with pytest.raises(PrismError, match="neither"):
        load_job(path)


def test_digits_that_are_no_number_say_nothing(tmp_path):
    """Python calls a raised two a digit, and no integer."""
    path = tmp_path / "train.log"
    jobs = []
    for size in ("\N{SUPERSCRIPT TWO}", "--5", ""):
        path.write_text("\n".join(megatron_block({**LLAMA, "local_world_size": size})), encoding="utf-8")
        jobs.append(load_job(path, ["cluster.device=h100-sxm"]))
    assert jobs[0].cluster == jobs[1].cluster == jobs[2].cluster


def test_what_a_head_leaves_open_is_asked_for_once(tmp_path):
    path = tmp_path / "train.log"
    path.write_text(SWIFT.replace("Qwen2.5-7B", "house-model") + bars(5.0, title="Train: "))
    with pytest.raises(PrismError) as raised:
        load_job(path)
    asked = re.findall(r"--set (model\.\w+)=N|(--device)", str(raised.value))
    assert [one or other for one, other in asked] == [
        "--device",
        *SIZES,
    ]
    given = [f"{name}={n}" for name, n in zip(SIZES, (2, 1024, 8, 4096, 1000), strict=True)]
    assert n_body(load_job(path, ["cluster.device=h100-sxm", *given]).model) == 2
