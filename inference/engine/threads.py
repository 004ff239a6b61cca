"""BLAS without threads of its own.

The matrices of a fit are small and many, and chains and blocks of draws already share the cores. OpenBLAS's threads, which JAX's
factorisations use too, then wait for one another: on two busy cores a density with four factors of 252 rows took 0.8 s, not 5 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import scipy.linalg as _scipy_linalg  # noqa: F401  (loads the library whose threads are limited; JAX takes its LAPACK)
from threadpoolctl import threadpool_limits

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def one_blas_thread(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, in which BLAS has one thread."""

    @wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
