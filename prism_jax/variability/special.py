"""Special functions of SciPy, imported when first called: building a tree needs none, and `check` and `show` answer sooner."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike


def ndtr(z: ArrayLike) -> Any:
    """Phi(z), the standard normal distribution function."""
    from scipy.special import ndtr

    return ndtr(z)


def log_ndtr(z: ArrayLike) -> Any:
    """log Phi(z), accurate far out in the lower tail."""
    from scipy.special import log_ndtr

    return log_ndtr(z)


def ndtri(p: ArrayLike) -> Any:
    """Standard normal score of probability `p`."""
    from scipy.special import ndtri

    return ndtri(p)


def stdtrit(df: ArrayLike, p: ArrayLike) -> Any:
    """Quantile of Student's t with `df` degrees of freedom at probability `p`."""
    from scipy.special import stdtrit

    return stdtrit(df, p)


def gammaincinv(shape: ArrayLike, p: ArrayLike) -> Any:
    """Quantile of the gamma distribution with scale 1 at probability `p`."""
    from scipy.special import gammaincinv

    return gammaincinv(shape, p)


def gammainccinv(shape: ArrayLike, p: ArrayLike) -> Any:
    """Quantile of the gamma distribution with scale 1 at probability `1 - p`, accurate in the upper tail."""
    from scipy.special import gammainccinv

    return gammainccinv(shape, p)
