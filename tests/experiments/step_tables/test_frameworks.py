"""Which framework a published run is recognised to have run on."""

import pytest

from experiments.step_tables.frameworks import PATTERNS, SourcePattern, recognised
from prism_jax.framework.frameworks import FRAMEWORKS

RUN = {"notes": "", "table": "", "source": "", "gpu": ""}


def test_every_framework_has_patterns() -> None:
    assert set(PATTERNS) == set(FRAMEWORKS.names)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ({"notes": "Megatron-DeepSpeed", "source": "nanotron"}, "megatron-deepspeed"),  # notes before names
        ({"table": "runs/colossal-ai/a.csv", "source": "NVIDIA"}, "colossalai"),  # the table before the source
        ({"source": "NVIDIA/Megatron-LM", "gpu": "V100"}, "megatron-2021"),
        ({"source": "NVIDIA/Megatron-LM", "gpu": "tpu-v4"}, "jax"),
        ({"source": "pytorch/torchtitan", "gpu": "TPU-v5e"}, "fsdp"),
        ({"gpu": "TPU-v5e"}, "jax"),
        ({"source": "an unknown place"}, ""),
    ],
)
def test_the_particular_is_asked_before_the_general(run: dict[str, str], name: str) -> None:
    assert recognised(**(RUN | run)) == name


def test_all_expressions_of_a_pattern_must_match_and_the_callers_come_first() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PATTERNS, "mine", (SourcePattern(source="megatron", gpu="abacus"),))
        assert recognised(**(RUN | {"source": "NVIDIA/Megatron-LM", "gpu": "Abacus 2"})) == "mine"
        assert recognised(**(RUN | {"source": "NVIDIA/Megatron-LM", "gpu": "H100"})) == "megatron-core"
