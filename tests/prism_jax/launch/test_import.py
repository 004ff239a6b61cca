"""Launch scripts become jobs, open values become questions, and programs that train nothing known are named."""

import json
from pathlib import Path

import pytest

from experiments.launch_files.run import FORMS, score
from prism_jax.__main__ import main
from prism_jax.core.errors import ConfigError, DataError, SpecError
from prism_jax.job.load_job import load_job
from prism_jax.launch.import_job import import_job
from prism_jax.launch.import_report import ImportReport
from tests.prism_jax.launch.heads import LLAMA, megatron_block, megatron_steps

SCRIPTS = Path(__file__).parents[2] / "data" / "launch_scripts"
QUOTED, POSITIONAL, SLURM = (SCRIPTS / f"{name}.sh" for name in ("quoted_and_array", "positional", "slurm_function"))
FULL = "dsw /x a b 70B 1 128 1e-5 1e-6 4096 4096 bf16 8 1 full true true true 1000000000".split()  # noqa: SIM905


def value(report: ImportReport, path: str) -> str:
    return next((one.value for one in report.read if one.path == path), "")


def test_flags_in_a_string_and_in_an_array_become_a_job_that_can_be_predicted(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    found = import_job(QUOTED, ["13"], variables={"TP": "8", "SP": "true"}, device="h100-sxm", output=file)
    job = load_job(file)
    assert (job.plan.tp, job.plan.pp, job.plan.dp, job.plan.n_devices) == (8, 2, 2, 32)
    assert (job.plan.micro_batch, job.plan.global_batch, job.plan.seq_len) == (1, 128, 4096)
    sizes = [value(found, f"model.{name}") for name in ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab")]
    assert sizes == ["40", "5120", "40", "13824", "32768"]  # 32,000 padded to 128 x 8
    assert job.plan.sequence_parallel
    assert "# line 19: hidden_size = 5120" in file.read_text()
    assert [one.name for one in found.no_effect] == ["save"]


def test_what_is_open_is_asked_for_once_and_only_where_it_matters() -> None:
    text = r"leaves open \$TP \(line 24, for --tensor-.*\$SP .*--env TP=VALUE.*--device NAME"
    with pytest.raises(DataError, match=text) as told:
        import_job(QUOTED)
    assert "$2" not in str(told.value)  # where checkpoints go
    with pytest.raises(DataError, match=r"\$5 \(line 5, for --num-layers\).*positional arguments behind the file"):
        import_job(POSITIONAL, device="a800")


def test_positional_arguments_decide_ways() -> None:
    found = import_job(POSITIONAL, FULL, device="a800")
    expected = {"model.n_layers": "80", "model.n_kv_heads": "8", "plan.recompute": "full", "plan.zero_stage": "1"}
    assert {path: value(found, path) for path in expected} == expected
    small = import_job(POSITIONAL, [*FULL[:4], "7B", *FULL[5:14], "none", "false", *FULL[16:]], device="a800")
    expected = {"model.n_layers": "32", "model.n_kv_heads": "32", "plan.recompute": "none", "plan.zero_stage": "0"}
    assert {path: value(small, path) for path in expected} == expected


def test_slurm_functions_and_loops_over_arguments() -> None:
    found = import_job(SLURM, ["--tp", "4", "--fp8"], device="h100-sxm")
    expected = {
        "plan.tp": "4",
        "plan.dtype": "fp8",
        "cluster.n_devices": "128",
        "model.vocab": "128512",
        "model.n_kv_heads": "8",
    }
    assert {path: value(found, path) for path in expected} == expected
    # a flag that may be there is no number without a word
    with pytest.raises(DataError, match=r"\$FP8 \(line 18, for more arguments\)"):
        import_job(SLURM, device="h100-sxm")
    assert value(import_job(SLURM, variables={"FP8": ""}, device="h100-sxm"), "plan.dtype") == "bf16"


def run(text: str, folder: Path, **options: object) -> ImportReport:
    file = folder / "run.sh"
    file.write_text(text)
    return import_job(file, **options)  # type: ignore[arg-type]


SIZES = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --micro-batch-size 4 --global-batch-size 64 "
    "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 --vocab-size 30000 --bf16"
)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("pretrain_t5.py", "an encoder and a decoder"),
        ("pretrain_mamba.py", "Mamba"),
        ("pretrain_vlm.py", "images"),
        ("tools/checkpoint/convert.py", "is no training"),
        ("tools/run_text_generation_server.py", "is no training"),
    ],
)
def test_other_programs_are_named(program: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"run.sh: line 2: .*{program.rpartition('/')[2]} .*{why}"):
        run(f"#!/bin/bash\ntorchrun --nproc_per_node 8 {program} {SIZES}\n", tmp_path, device="a100-80gb")


def test_bert_sees_both_ways_and_decoders_do_not(tmp_path: Path) -> None:
    for program, causal in (("pretrain_bert.py", "False"), ("pretrain_gpt.py", "")):
        found = run(f"#!/bin/bash\ntorchrun --nproc_per_node 8 {program} {SIZES}\n", tmp_path, device="a100-80gb")
        assert value(found, "model.causal") == causal


def test_the_last_training_counts_and_others_are_counted(tmp_path: Path) -> None:
    line = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SIZES}\n"
    found = run(
        "#!/bin/bash\n" + line + line.replace("hidden-size 1024", "hidden-size 2048"), tmp_path, device="a100-80gb"
    )
    assert value(found, "model.hidden") == "2048"
    assert "1 more command line" in found.notes[0]


def test_parameters_that_are_gathered_apart_are_said_not_to_be_modelled(tmp_path: Path) -> None:
    line = f"torchrun --nproc_per_node 8 a.py {SIZES} --use-distributed-optimizer --overlap-grad-reduce"
    both = run(f"{line} --overlap-param-gather\n", tmp_path, device="a100-80gb")
    assert (both.not_modelled, [one.name for one in both.no_effect]) == ((), [])
    alone = run(f"{line}\n", tmp_path, device="a100-80gb")
    assert [(one.name, one.value) for one in alone.not_modelled] == [("overlap_param_gather", "False")]


def test_distributed_optimizers_of_nemo_are_adam_on_shards(tmp_path: Path) -> None:
    file = tmp_path / "nemo.yaml"
    sizes = "num_layers: 24, hidden_size: 1024, num_attention_heads: 16, encoder_seq_length: 512, micro_batch_size: 4"
    optimizer = "global_batch_size: 64, optim: {name: mcore_distributed_optim}"
    file.write_text(f"trainer: {{devices: 8, num_nodes: 1}}\nmodel: {{mcore_gpt: true, {sizes}, {optimizer}}}\n")
    found = import_job(file, device="a100-80gb", overrides=["model.vocab=30000"])
    assert (value(found, "plan.zero_stage"), value(found, "plan.optimizer"), found.not_modelled) == ("1", "adam", ())


def test_words_of_hydra_behind_a_program_of_nemo_replace_values_of_its_configuration(tmp_path: Path) -> None:
    sizes = "num_layers: 24, hidden_size: 1024, num_attention_heads: 16, encoder_seq_length: 512, micro_batch_size: 4"
    batch = "global_batch_size: '${multiply:${trainer.num_nodes},64}', virtual_pipeline_model_parallel_size: 2"
    (tmp_path / "gpt.yaml").write_text(
        f"trainer: {{devices: 8, num_nodes: 1}}\nmodel: {{mcore_gpt: true, {sizes}, {batch}, pipeline_model_parallel_size: 2}}\n"
    )
    words = (
        "trainer.num_nodes=$1 'model.tensor_model_parallel_size=4' ++model.virtual_pipeline_model_parallel_size=null"
    )
    text = f"NODES=2\nsrun python3 /opt/megatron_gpt_pretraining.py --config-path=. --config-name=gpt {words}\n"
    found = run(text, tmp_path, arguments=["2"], device="a100-80gb", overrides=["model.vocab=30000"])
    assert found.line == 2
    expected = {"plan.tp": "4", "cluster.n_devices": "16", "plan.global_batch": "128", "plan.virtual_stages": ""}
    assert {path: value(found, path) for path in expected} == expected
    with pytest.raises(DataError, match=r"leaves open \$1 \("):
        run(text, tmp_path, device="a100-80gb", overrides=["model.vocab=30000"])
    with pytest.raises(DataError, match=r"line 2: the configuration \./none.yaml is not in its folder"):
        run(text.replace("=gpt", "=none"), tmp_path, device="a100-80gb")


def test_what_is_asked_for_names_no_gpu_of_many_and_models_have_names(tmp_path: Path) -> None:
    text = f"torchrun --nproc_per_node 8 a.py {SIZES}\n"
    with pytest.raises(DataError, match=r"does not say which GPU.* Name it once: --device NAME$"):
        run(text, tmp_path)
    assert run(text, tmp_path, device="a100-80gb", model="llama-3-8b").model == "32 layers, hidden 4,096"
    with pytest.raises(SpecError, match="--model llama-9: neither a file nor a model that ships"):
        run(text, tmp_path, device="a100-80gb", model="llama-9")


def test_a_script_that_is_started_is_named(tmp_path: Path) -> None:
    (tmp_path / "inner.sh").write_text(f'torchrun a.py {SIZES} "$@"\n')
    found = run("srun -N 2 --gpus-per-node 8 bash inner.sh --seq-length 512\n", tmp_path, device="a100-80gb")
    assert (value(found, "plan.seq_len"), value(found, "cluster.n_devices")) == ("512", "16")
    assert "line 1 starts inner.sh, which was followed" in found.notes[0]


def test_the_last_of_a_flag_counts_and_open_ones_that_do_not_matter_are_shown(tmp_path: Path) -> None:
    text = f"#!/bin/bash\ntorchrun --nproc_per_node 8 a.py {SIZES} --save $DIR --hidden-size=512\n"
    found = run(text, tmp_path, device="a100-80gb")
    assert value(found, "model.hidden") == "512"
    assert [(one.name, one.value) for one in found.no_effect] == [("save", "${DIR}")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo no training", "no command line with arguments of Megatron-LM"),
        ("source ../vars.sh\n$CMD", r"files that it sources are not in its folder: ../vars.sh \(line 1\)"),
        (
            f"torchrun --nproc_per_node 8 a.py {SIZES} --hidden-size many",
            "line 1: hidden_size = 'many' is no whole number",
        ),
    ],
)
def test_scripts_without_a_training_are_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=why):
        run(text, tmp_path, device="a100-80gb")


def test_fields_that_contradict_each_other_name_the_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"run.sh:2:1 plan.global_batch"):
        run(
            f"#!/bin/bash\ntorchrun --nproc_per_node 8 a.py {SIZES} --global-batch-size 7\n",
            tmp_path,
            device="a100-80gb",
        )


def test_a_log_becomes_the_job_that_validate_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.log").write_text("\n".join([*megatron_block(LLAMA), *megatron_steps([0.5] * 20)]))
    options = ["--device", "h100-sxm"]
    main(["validate", "train.log", *options, "-o", "a.yaml"])
    assert main(["import", "train.log", *options, "-o", "b.yaml"]) == 0
    assert Path("a.yaml").read_text() == Path("b.yaml").read_text()
    with pytest.raises(DataError, match="--env is for scripts"):
        import_job("train.log", variables={"TP": "8"})


def test_the_first_run_of_a_log_that_states_a_job_is_imported(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    hybrid = {**LLAMA, "hybrid_override_pattern": "M-M*"}
    blocks = [*megatron_block(hybrid), *megatron_steps([0.5] * 4), *megatron_block(LLAMA), *megatron_steps([0.5] * 4)]
    file.write_text("\n".join(blocks))
    found = import_job(file, device="h100-sxm")
    assert found.line == len(megatron_block(hybrid)) + 4 + 1
    file.write_text("\n".join(blocks[: found.line - 1]))
    with pytest.raises(DataError, match="hybrid_override_pattern"):
        import_job(file, device="h100-sxm")


def test_ten_thousand_lines_are_followed(tmp_path: Path) -> None:
    lines = [f"A{number}=$((A{number - 1} + 1))" for number in range(10_000)]
    text = "\n".join(lines) + f"\ntorchrun --nproc_per_node 8 a.py {SIZES} --hidden-size $(( A9999 - 10000 + 1024 ))\n"
    assert value(run("A=0\n" + text.replace("A-1", "A"), tmp_path, device="a100-80gb"), "model.hidden") == "1024"


def test_json_holds_the_three_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(QUOTED), "13", "--env", "TP=8", "--env", "SP=", "--device", "h100-sxm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"read", "no_effect", "not_modelled"} <= found.keys()


@pytest.mark.parametrize("form", FORMS)
def test_argument_sets_of_megatron_lm_are_read_right(form: str, shared_data: Path) -> None:
    found = score(shared_data / "megatron_ci", 100, form)
    assert found["read right"] + found["named as not modelled"] == found["sets"] == 100


def test_scripts_and_configurations_stand_wherever_a_job_file_does(tmp_path: Path) -> None:
    script, config = tmp_path / "run.sh", tmp_path / "model_config.yaml"
    script.write_text(f"#!/bin/bash\ntorchrun --nproc_per_node $GPUS a.py {SIZES}\n")
    words = SIZES.split()
    rows = [f"  {name}: {value}" for name, value in zip(words[:-1:2], words[1::2], strict=False)]
    config.write_text("MODEL_ARGS:\n" + "\n".join([*rows, "  --bf16: true"]) + "\n")
    overrides = ["cluster.device=a100-80gb", "cluster.n_devices=16"]
    first, second = (load_job(file, overrides) for file in (script, config))
    assert first.plan == second.plan
    assert first.model == second.model
    assert (first.plan.dp, first.plan.n_devices) == (8, 16)
    with pytest.raises(DataError, match=r"leaves open \$GPUS .*--gpus N"):
        load_job(script, overrides[:1])


def test_a_program_that_builds_on_verl_is_read_by_the_keys_of_its_actor(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "python3 -m own.trainer.main data.max_prompt_length=1024 data.max_response_length=1024 \\\n"
        "  actor_rollout_ref.model.path=Qwen/Qwen3-4B actor_rollout_ref.actor.ppo_mini_batch_size=${MINI:-32} \\\n"
        "  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 actor_rollout_ref.actor.use_kl_loss=True \\\n"
        "  actor_rollout_ref.rollout.n=2 trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    plan = import_job(script, device="h100-sxm").plan
    assert plan == "tp 1 x pp 1 x dp 8, micro-batch 4, global batch 64, 2,048 tokens"


def test_a_file_that_is_missing_asks_for_what_it_would_say_alone(tmp_path: Path) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text(
        "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\nfinetuning_type: full\ndeepspeed: ds.json\n"
        "per_device_train_batch_size: 1\ncutoff_len: 2048\n"
    )
    with pytest.raises(DataError, match=r"names ds\.json, which is not there\. Give --set plan\.zero_stage=N$"):
        import_job(file, device="h100-sxm", n_devices=8)
    assert (
        value(import_job(file, device="h100-sxm", n_devices=8, overrides=["plan.zero_stage=3"]), "model.n_layers")
        == "32"
    )
