"""The data of every model say the axes of all their arrays, and come back from a file."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from inference.engine.program import values
from inference.fitting.store import axes_of, built, check_axes
from prism_jax.core.errors import DataError
from prism_jax.fits.models import model_named
from tests.inference import test_overlap
from tests.inference.collectives import test_collectives
from tests.inference.fleet.fleets import fleet_table
from tests.inference.kernels import test_kernels
from tests.inference.steps import test_steps

TABLES: dict[str, Any] = {
    "fleet": lambda: fleet_table(np.random.default_rng(3), n_node=5, gpus_per_node=4),
    "steps": lambda: test_steps.simulated(12, seed=1),
    "collectives": lambda: test_collectives.table(scales=(8, 16, 64)),
    "kernels": lambda: test_kernels.simulated(0),
    "overlap": lambda: test_overlap.simulated(0, prob=0.5, by_feature=4.0),
}


@pytest.fixture(scope="module", params=TABLES)
def data(request: pytest.FixtureRequest) -> Any:
    return model_named(request.param).prepare(TABLES[request.param]())


def test_every_array_has_axes(data: Any):
    assert {name for name, value in values(data).items() if isinstance(value, np.ndarray)} <= axes_of(type(data)).keys()


def test_data_of_a_model_are_as_they_say(data: Any):
    given = {
        name: value.astype(str) if isinstance(value, np.ndarray) and value.dtype.kind == "O" else value
        for name, value in values(data).items()
    }
    assert type(built(type(data), given)) is type(data)


def test_a_longer_array_is_noticed_wherever_another_has_its_axis(data: Any):
    stated = axes_of(type(data))
    for name, axes in stated.items():
        if list(stated.values()).count(axes) > 1:
            value = getattr(data, name)
            more = np.zeros((1, *np.shape(value)[1:]), getattr(value, "dtype", str))
            longer = (*value, "") if isinstance(value, tuple) else np.concatenate([value, more])
            with pytest.raises(DataError, match="values, but there are"):
                check_axes(replace(data, **{name: longer}))
            if isinstance(value, np.ndarray):
                with pytest.raises(DataError, match="axes, but it must have"):
                    check_axes(replace(data, **{name: value[..., None]}))
        if "->" in axes:
            for place in (-2, 1 << 40):
                wrong = getattr(data, name).copy()
                if wrong.size:
                    wrong.flat[0] = place
                    with pytest.raises(DataError, match=f"{name} points at what is not there"):
                        check_axes(replace(data, **{name: wrong}))
