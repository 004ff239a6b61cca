"""Which rows keep their optimizer, and nothing else, on the host."""

import pytest

from experiments.step_tables.records import StepRecord, UnsupportedRowError, offloads_optimizer, refuse_other_kinds


@pytest.mark.parametrize(
    ("notes", "offloads"),
    [
        ("plan zero-offload; global batch 16", True),
        ("CPU offload: Yes; samples/s 3", True),
        ("DeepSpeed ZeRO-3 + activation checkpointing + CPU-offloaded AdamW", True),
        ("CPU offload: No", False),
        ("no offload", False),
        ("", False),
    ],
)
def test_what_is_simulated(notes: str, offloads: bool) -> None:
    record = StepRecord("a", "src", notes=notes)
    refuse_other_kinds(record)
    assert offloads_optimizer(record) is offloads


@pytest.mark.parametrize(
    "notes",
    ["optimizer offload full, param offload full", "activation offload on", "recipe enables activation/optimizer offload",
     "activations and optimizer state may be offloaded to host", "parameter CPU offload"],
)  # fmt: skip
def test_what_is_refused(notes: str) -> None:
    with pytest.raises(UnsupportedRowError, match="offload to the host"):
        refuse_other_kinds(StepRecord("a", "src", notes=notes))
