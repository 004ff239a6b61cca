"""Every size that a launch file states is read as it is stated, or asked for: nothing is wrong without a word."""

from pathlib import Path

import pytest

from tests.prism_jax.launch.cases import carriers, cases_of
from tests.prism_jax.launch.cases.case import Case, wrong


@pytest.mark.parametrize(
    "case", [pytest.param(one, id=f"{name}-{one.name}") for name in carriers() for one in cases_of(name)]
)
def test_stated_sizes_are_read(case: Case, tmp_path: Path) -> None:
    assert wrong(case, tmp_path) == []
