"""What rows say of their kernels, from the words that sources use."""

import pytest

from experiments.step_tables.plan import framework_of_record, plan_of_record, software_of_record
from experiments.step_tables.records import StepRecord


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ("flash-attention-2", "flash2"),
        ("flash1", "flash1"),
        ("flash-attention-1 (attn_impl flash; 53824c16 may be triton flash)", "flash1"),
        ("unfused (Megatron/OneFlow fused softmax)", "fused_softmax"),
        ("fused_softmax", "fused_softmax"),
        ("unfused", "eager"),
        ("SDPA cuDNN (aten::_cudnn_attention_backward in their profile)", "flash3"),
        ("TE auto", "flash3"),
        ("SDPA/flex", None),
        ("", None),
    ],
)
def test_attention_kernels_by_the_words_of_sources(words: str, kernel: str | None) -> None:
    assert software_of_record(StepRecord("1", "somebody", attention_kernel=words)).attention == kernel


def test_a_blank_is_not_a_no() -> None:
    said = software_of_record(StepRecord("1", "somebody", norm_fused="False", compile="none", cuda_graphs="no"))
    blank = software_of_record(StepRecord("1", "somebody"))
    assert (said.norm, said.compile, said.cuda_graphs) == ("eager", False, "none")
    assert (blank.norm, blank.compile, blank.cuda_graphs) == (None, None, None)


def test_dates_are_those_of_the_row_or_of_the_paper() -> None:
    assert software_of_record(StepRecord("1", "A paper (arXiv 2104.04473)")).date == "2021-04"
    assert software_of_record(StepRecord("1", "A paper (arXiv 2104.04473)", date="2024-05-07")).date == "2024-05"
    assert software_of_record(StepRecord("1", "a page")).date == ""


@pytest.mark.parametrize(
    ("stated", "date", "framework"),
    [
        ("Composer FSDP", "2023", "fsdp"),
        ("MindFormers (MindSpore)", "2024", "mindspore"),
        ("Megatron-LM", "2021-03", "megatron-2021"),
        ("Megatron-LM", "2025-03", "megatron-core"),
        ("DeepSpeed Megatron-LM", "2021-08", "megatron-deepspeed"),
        ("other", "2023", "other"),
    ],
)
def test_a_column_of_its_own_names_the_framework(stated: str, date: str, framework: str) -> None:
    assert framework_of_record(StepRecord("1", "some page", framework=stated, date=date)) == framework


@pytest.mark.parametrize(
    ("notes", "dispatcher"),
    [
        ("dispatcher DeepEP; EDP 1, ETP 1", "deepep"),
        ("dispatcher A2A; EDP 1, ETP 1", "alltoall"),
        ("HybridEP over the rack", "hybridep"),
        ("dropless", None),
    ],
)
def test_dispatchers_by_the_words_of_sources(notes: str, dispatcher: str | None) -> None:
    assert software_of_record(StepRecord("1", "somebody", notes=notes)).dispatcher == dispatcher


@pytest.mark.parametrize(
    ("notes", "etp"), [("EDP 1, ETP 4", 4), ("expert TP follows attention TP; dropless", 0), ("dropless", None)]
)
def test_ranks_of_an_expert_by_the_words_of_sources(notes: str, etp: int | None) -> None:
    record = StepRecord(
        "1", "somebody", n_gpus=32, tp=4, pp=1, ep=8, seq_len=4096, micro_batch=1, global_batch=64, notes=notes
    )
    assert plan_of_record(record).etp == etp


@pytest.mark.parametrize(
    ("notes", "attention", "loss"),
    [
        ("ZeRO-3 + Liger; FA3 (H200) / FA4 (B200)", "flash3", "linear"),
        ("step 2: Flash-Attention-2", "flash2", None),
        ("FA300 cabinet, no flash attention", None, None),
    ],
)
def test_kernels_that_only_notes_name_are_read(notes: str, attention: str | None, loss: str | None) -> None:
    said = software_of_record(StepRecord("1", "somebody", notes=notes))
    assert (said.attention, said.cross_entropy) == (attention, loss)
    columns = StepRecord("1", "somebody", notes=notes, attention_kernel="unfused (Megatron)")
    assert software_of_record(columns).attention == "fused_softmax"


def test_a_post_that_compiles_all_of_its_models_says_so_for_every_table() -> None:
    post = StepRecord("1", "PyTorch blog float8 + FSDP2 (IBM/Meta)", notes="rounded values")
    assert software_of_record(post).compile is True
    assert software_of_record(StepRecord("1", "PyTorch blog", notes="rounded values")).compile is None
