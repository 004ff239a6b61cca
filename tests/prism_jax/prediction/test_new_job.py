"""`prism-jax init`: what it writes, `check` accepts; nothing is overwritten unasked."""

import json

import pytest

from prism_jax import load_job, write_new_job
from prism_jax.core.errors import PrismError
from prism_jax.shell.app import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_check_accepts_the_default_file_as_it_stands(folder, capsys):
    assert main(["init"]) == 0
    assert "wrote job.yaml: llama-3-8b on 64 x h100-sxm" in capsys.readouterr().err
    assert main(["check", "job.yaml"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("model", "cluster", "gpus", "framework"),
    [
        ("llama-3-70b", "dgx-h100", 256, "megatron-core"),
        ("llama-3-8b", "dgx-h100", 8, "fsdp"),
        ("deepseek-v3", "dgx-h100", 2048, None),
        ("gpt3-175b", "dgx-a100", 1536, "megatron-2021"),
        ("gpt2", "dgx-v100", 1, None),
        ("gpt-oss-20b", "gb200-nvl72", 72, "nanotron"),
        ("llama-3-8b", "tpu-v4-pod", 24, "jax"),
    ],
)
def test_check_accepts_what_the_options_ask_for(folder, model, cluster, gpus, framework):
    named = [] if framework is None else ["--framework", framework]
    assert main(["init", "my.yaml", "--model", model, "--cluster", cluster, "--gpus", str(gpus), *named]) == 0
    assert main(["check", "my.yaml"]) == 0
    job = load_job("my.yaml")
    assert (job.model.name, job.cluster.name, job.cluster.n_devices) == (model, cluster, gpus)
    assert (job.name, job.framework) == ("my", framework or "")
    assert job.memory.fits


def test_the_python_call_returns_the_job_that_it_writes(folder):
    job = write_new_job("a.yaml", model="llama-3-70b", cluster="h100", n_devices=128)  # an alias
    assert job == load_job("a.yaml")
    assert job.cluster.name == "dgx-h100"


def test_a_hugging_face_config_is_named_from_the_folder_of_the_job(folder):
    (folder / "jobs").mkdir()
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "vocab_size": 1000,
        "intermediate_size": 1024, "num_key_value_heads": 8, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False, "hidden_act": "silu", "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    assert main(["init", "jobs/my.yaml", "--model", "config.json", "--gpus", "8"]) == 0
    assert "hf_config: ../config.json" in (folder / "jobs" / "my.yaml").read_text()
    assert load_job("jobs/my.yaml").plan.seq_len == 1024


ATTENTION = {
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
}
MAMBA = {"mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2}
HYBRIDS = {  # the sizes that their model cards state, billions of parameters
    "qwen3_next": (79.7, {
        **ATTENTION, "hidden_size": 2048, "num_hidden_layers": 48, "head_dim": 256, "intermediate_size": 5120,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "linear_value_head_dim": 128, "full_attention_interval": 4, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "tie_word_embeddings": False,
    }),
    "bamba": (9.8, {
        **ATTENTION, **MAMBA, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336, "attn_layer_indices": [9, 18, 27],
        "mamba_d_state": 256, "tie_word_embeddings": False,
    }),
    "granitemoehybrid": (32.2, {
        **ATTENTION, **MAMBA, "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 100352, "intermediate_size": 768, "shared_intermediate_size": 1536,
        "num_local_experts": 72, "num_experts_per_tok": 10, "mamba_d_state": 128,
        "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
    }),
}  # fmt: skip


@pytest.mark.parametrize("kind", HYBRIDS)
def test_models_of_attention_and_states_get_a_plan_that_fits_and_check_accepts(folder, kind):
    billions, config = HYBRIDS[kind]
    (folder / "config.json").write_text(json.dumps({"model_type": kind, **config}))
    assert main(["init", "my.yaml", "--model", "config.json", "--gpus", "512"]) == 0
    assert main(["check", "my.yaml"]) == 0
    job = load_job("my.yaml")
    assert job.memory.fits
    assert job.model.n_params() / 1e9 == pytest.approx(billions, abs=0.06)


def test_all_that_is_not_modelled_is_named_at_once(folder, capsys):
    config = HYBRIDS["bamba"][1] | {"compress_ratios": [0, 4], "hc_mult": 4}
    (folder / "config.json").write_text(json.dumps({"model_type": "own", **config}))
    assert main(["init", "my.yaml", "--model", "config.json"]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "attention to compressed keys is not modelled, nor are several residual streams" in message
    assert "by hc_mult. Remove these keys" in message


def test_a_file_that_is_there_stays_unless_forced(folder, capsys):
    (folder / "job.yaml").write_text("mine")
    assert main(["init"]) == 2
    assert "job.yaml: is there already" in capsys.readouterr().err
    assert (folder / "job.yaml").read_text() == "mine"
    assert main(["init", "--force"]) == 0
    assert load_job("job.yaml").name == "job"


def test_a_model_that_fits_nowhere_is_written_with_a_note(folder, capsys):
    assert main(["init", "--model", "gpt3-1t", "--gpus", "8"]) == 0
    assert "no plan was found that fits into memory" in capsys.readouterr().err
    assert main(["check", "job.yaml"]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "llama-9"], "unknown model 'llama-9'"),
        (["--model", "absent.json"], "absent.json"),
        (["--cluster", "dgx-h10"], "Did you mean dgx-h100"),
        (["--framework", "megatronic"], "megatron"),
        (["--gpus", "0"], "--gpus"),
        (["job.toml"], "Give it the ending .yaml"),
        (["absent/job.yaml"], "there is no folder absent"),
    ],
)
def test_wrong_input_is_named_and_nothing_is_written(folder, arguments, words, capsys):
    assert main(["init", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert list(folder.iterdir()) == []


def test_python_names_the_keyword_that_overwrites(folder):
    (folder / "job.yaml").write_text("mine")
    with pytest.raises(PrismError, match="overwrite=True"):
        write_new_job("job.yaml")


@pytest.mark.parametrize("model", ["dlrm-dcnv2", "resnet-50", "vit-h-14", "dit-xl-2"])
def test_recommenders_and_images_start_with_as_many_samples_on_a_gpu_as_fit(folder, model):
    job = write_new_job("samples.yaml", model=model, n_devices=16)
    assert job.memory.fits
    assert job.plan.micro_batch >= 64
    assert job.plan.global_batch % (job.plan.dp * job.plan.micro_batch) == 0
    assert load_job("samples.yaml") == job
