"""Fine-tuning on packed documents: which rows, and that tokens of other documents cost nothing."""

import pytest

from experiments.step_tables.model import documents_of_record, trained_model
from experiments.step_tables.records import StepRecord

TUNED = StepRecord("x", "NVIDIA/NeMo", model_name="Llama3-8B", seq_len=4096, notes="container NeMo 24.07; task sft; x")


@pytest.mark.parametrize(
    ("source", "notes", "seq_len", "is_packed"),
    [
        ("NVIDIA/NeMo", "task sft; x", 4096, True),
        ("NVIDIA/dgxc-benchmarking", "Llama3 70b Finetuning LORA BF16", 4096, True),
        ("NVIDIA-NeMo/Megatron-Bridge", "task lora", 4096, True),
        ("NVIDIA/NeMo", "task pretrain", 4096, False),
        ("NVIDIA/NeMo", "task sft", 128, False),
        ("mlcommons/training_results_v4.0", "LoRA fine-tuning on packed 8192-token GovReport sequences", 8192, False),
    ],
)
def test_rows_of_recipes_that_pack(source: str, notes: str, seq_len: int, is_packed: bool) -> None:
    found = documents_of_record(StepRecord("x", source, notes=notes, seq_len=seq_len))
    assert (found is not None) == is_packed


def test_tokens_of_a_packed_sequence_attend_to_their_own_document() -> None:
    packed = trained_model(TUNED)
    whole = trained_model(StepRecord("x", "somebody", model_name="Llama3-8B", seq_len=4096, notes=TUNED.notes))
    assert whole.window is None
    assert packed.window is not None
    short = packed.window.size
    saved = packed.train_flops_per_token(4096) - whole.train_flops_per_token(short)
    assert saved == pytest.approx(0.0, abs=1e-6 * whole.train_flops_per_token(4096))
