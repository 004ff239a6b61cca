"""What rows keep on the host, by the words of their notes."""

import pytest

from experiments.step_tables.records import StepRecord, offloads_of_record, refuse_other_kinds

OPTIMIZER, PARAMETERS, ACTIVATIONS = "offload_optimizer", "offload_parameters", "offload_activations"


@pytest.mark.parametrize(
    ("notes", "offloads"),
    [
        ("plan zero-offload; global batch 16", (OPTIMIZER,)),
        ("CPU offload: Yes; samples/s 3", (OPTIMIZER,)),
        ("DeepSpeed ZeRO-3 + activation checkpointing + CPU-offloaded AdamW", (OPTIMIZER,)),
        ("optimizer offload full, param offload full", (OPTIMIZER, PARAMETERS)),
        ("optimizer offload Y, param offload N", (OPTIMIZER,)),
        ("optimizer offload N, param offload N", ()),
        ("activation offload on", (ACTIVATIONS,)),
        ("recipe enables activation/optimizer offload", (OPTIMIZER, ACTIVATIONS)),
        ("parameter CPU offload and activation offload", (PARAMETERS, ACTIVATIONS)),
        ("activations and optimizer state may be offloaded to host", ()),
        ("CPU offload: No", ()),
        ("no offload", ()),
        ("", ()),
    ],
)
def test_what_is_on_the_host(notes: str, offloads: tuple[str, ...]) -> None:
    record = StepRecord("a", "src", notes=notes)
    refuse_other_kinds(record)
    assert offloads_of_record(record) == offloads
