"""A configuration with Megatron's names is read by a row alone: no other file changes."""

from pathlib import Path

from prism_jax.launch import launch_files
from prism_jax.launch.config_files import Carrier
from prism_jax.launch.import_job import import_job
from prism_jax.launch.megatron_files import NamesFile, family_head, is_of

ROW = NamesFile("Acme", ("acme.sizes",), ("acme.sizes.*", "acme.run.*"), nodes="acme.nodes", per_node="acme.gpus")
TEXT = """acme:
  nodes: 2
  gpus: 8
  sizes: {num_layers: 24, hidden_size: 1024, num_attention_heads: 16, vocab_size: 32000, num_moe_experts: 8}
  run: {seq_length: 2048, micro_batch_size: 2, global_batch_size: 64, tensor_model_parallel_size: 2, bf16: true}
"""


def test_a_row_reads_a_configuration(tmp_path: Path, monkeypatch) -> None:
    carrier = Carrier(ROW.name, lambda document: is_of(ROW, document), lambda files: family_head(ROW, files))
    monkeypatch.setattr(launch_files, "CARRIERS", (carrier,))
    file = tmp_path / "acme.yaml"
    file.write_text(TEXT)
    read = {one.path: one.value for one in import_job(file, device="h100-sxm").read}
    assert (read["model.n_layers"], read["model.moe.n_experts"], read["plan.tp"], read["plan.dp"]) == (
        "24",
        "8",
        "2",
        "8",
    )
    assert (read["plan.global_batch"], read["cluster.n_devices"], read["plan.dtype"]) == ("64", "16", "bf16")
