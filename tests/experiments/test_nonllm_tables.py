"""Tables of CNNs and encoders: cells of batches, and rows as jobs."""

from types import SimpleNamespace

import pytest

from experiments.nonllm_tables.jobs import step_row
from experiments.nonllm_tables.readers.dle import _batches
from experiments.nonllm_tables.row import TableRow
from prism_jax.workload.transformer.encoder import EncoderSpec

NAN = float("nan")
TF, TORCH = "TensorFlow/LanguageModeling/BERT", "PyTorch/LanguageModeling/BERT"


def _line(model: str, cell: object, dtype: str = "fp16/amp", per_gpu: float = NAN, n: int = 8) -> SimpleNamespace:
    return SimpleNamespace(model=model, batch_cell=cell, batch_per_gpu=per_gpu, dtype=dtype, gpus_total=n)


@pytest.mark.parametrize(
    ("line", "batches"),
    [
        (_line("PyTorch/Classification/X", "128", per_gpu=128.0), (128, 1)),
        (_line("PyTorch/Classification/X", "128 (TF) / 256 (AMP)"), (256, 1)),
        (_line("PyTorch/Classification/X", "128 (TF) / 256 (AMP)", "tf32"), (128, 1)),
        (_line("PyTorch/Recommendation/X", "64k"), None),
        (_line("PyTorch/Recommendation/X", "1048576", per_gpu=1048576.0), None),
        (_line(TORCH, "128 and 256 / 8192 and 8192"), (256, 32)),
        (_line(TORCH, "128 and 256 / 8192 and 8192", "tf32"), (128, 64)),
        (_line(TORCH, "4096 and 4096"), None),
        (_line(TF, "64 , 32 / 65536"), (64, 128)),
        (_line(TF, "64 , 32 / 65536", "fp32"), (32, 256)),
    ],
)
def test_cells_of_batches(line: SimpleNamespace, batches: tuple[int, int] | None) -> None:
    assert _batches(line) == batches


def _row(name: str, **changes: object) -> TableRow:
    known = {"gpu": "v100-16gb", "n_gpus": 16, "gpus_per_node": 8, "batch_per_gpu": 32, "n_accumulated": 2}
    own = {"step_s": 0.5, "source": "DLPerf X", "precision": "fp16", "table": "dlperf"} | known | changes
    return TableRow(id="x", name=name, **own)  # pyright: ignore[reportArgumentType]


def test_a_row_becomes_a_job() -> None:
    model, cluster, plan = step_row(_row("BERT-base")).job
    assert isinstance(model, EncoderSpec)
    assert model.predicted_tokens(plan.seq_len) == 20
    assert (cluster.device.name, cluster.n_devices, plan.dp, plan.global_batch) == ("v100-16gb", 16, 16, 1024)


def test_tf32_is_the_rate_of_fp32_products() -> None:
    row = _row("BERT-base", gpu="a100-40gb", precision="tf32")
    _, cluster, plan = step_row(row).job
    assert plan.dtype == "fp32"
    assert cluster.device.peak("fp32") == 156e12


def test_a_model_that_nobody_knows_is_no_job() -> None:
    assert step_row(_row("GNMT")).unsupported == "no such model"


def test_smaller_nodes_keep_their_port() -> None:
    _, cluster, _ = step_row(_row("BERT-base", gpu="t4", gpus_per_node=4, precision="fp32")).job
    whole = step_row(_row("BERT-base", gpu="t4", gpus_per_node=8, precision="fp32")).job[1]
    assert cluster.node_size * cluster.tiers[1].bytes_per_s == pytest.approx(8 * whole.tiers[1].bytes_per_s)
