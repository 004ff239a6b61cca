"""How many programs a prediction compiles: the scan over ops alone; everything else is made by the host."""

from collections import Counter

import jax
import pytest

from prism_jax.prediction.predict import explain_step
from prism_jax.simulate import columns

ASKED = "/jax/core/compile/backend_compile_duration"  # of the compiler, or of the cache in front of it
COUNTED: Counter[str] = Counter()
jax.monitoring.register_event_duration_secs_listener(lambda event, duration_secs, **_: COUNTED.update([event]))


@pytest.fixture
def compiled() -> Counter[str]:
    """Programs that are asked for, in a process that has none yet."""
    jax.clear_caches()
    columns._compiled.cache_clear()
    COUNTED.clear()
    return COUNTED


@pytest.mark.parametrize("example", ["llama2_7b_fsdp_64", "t5_11b_256"])
def test_a_prediction_with_its_explanation_compiles_one_program(example: str, compiled: Counter[str]) -> None:
    """Large groups and small ones; the next seed needs no other program."""
    report = explain_step(example)
    assert report.criticality
    assert report.p95_owner_s
    assert compiled[ASKED] == 1
    again = explain_step(example, seed=1)
    assert compiled[ASKED] == 1
    assert again.step_time_s.p50 == pytest.approx(report.step_time_s.p50, rel=2e-3)
    assert again.step_time_s != report.step_time_s


def test_known_gpus_compile_few_programs(compiled: Counter[str]) -> None:
    explain_step("t5_11b_256", slowdowns={"all": {0: 1.1, 9: 1.05}})
    assert 1 <= compiled[ASKED] <= 8
