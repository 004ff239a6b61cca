"""Frameworks as values: what the shipped ones say, how they are named and copied."""

import pickle
from dataclasses import replace

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.framework.base import AS_MEGATRON, MEGATRON, Framework, PlanDefaults
from prism_jax.framework.frameworks import FRAMEWORKS, UNKNOWN, framework_of, style_of
from prism_jax.plan.plan import ParallelPlan


def test_frameworks_are_values() -> None:
    for framework in FRAMEWORKS:
        assert pickle.loads(pickle.dumps(framework)) == framework
        assert hash(framework) == hash(replace(framework))
        assert framework_of(framework.name) is framework
        assert framework_of(framework) is framework
    assert len(set(FRAMEWORKS)) == len(FRAMEWORKS) == 13


def test_what_is_not_known_is_as_megatron() -> None:
    """Where memory rules differ, the object says what they rest on."""
    assert framework_of("") is UNKNOWN
    for framework in (*FRAMEWORKS, UNKNOWN):
        is_own = framework.memory != MEGATRON
        assert not (is_own and framework.memory_source == AS_MEGATRON)
        assert is_own == (framework.name in ("fsdp", "nanotron"))


def test_plan_defaults_are_fields_of_a_plan_that_may_be_open() -> None:
    plan = ParallelPlan(1, 8, 1024)
    assert all(getattr(plan, name) is None for name in PlanDefaults.__dataclass_fields__)


def test_unknown_names_and_styles_are_refused() -> None:
    with pytest.raises(SpecError, match=r"framework 'fspd' is unknown; known are megatron-core, .*did you mean fsdp\?"):
        framework_of("fspd")
    with pytest.raises(SpecError, match="style = 'lazy' of framework 'mine'"):
        Framework("mine", style="lazy")
    assert style_of("fspd") == ""
