"""Expected time of a job interrupted at a constant rate: the exact renewal form, and the checkpoint interval that is best.

Work is done in intervals of D seconds, each followed by a checkpoint that blocks for w seconds. An interruption, at a rate of
λ per second, loses the interval and costs an outage of R seconds, in which the next interruption may strike. Every interval
starts anew:

    E[T] = W / D · e^{λR} (e^{λ(D + w)} - 1) (1 / λ + N)

where N is the time until an interruption is noticed, in which no other can strike. A checkpoint that takes b seconds more behind
the steps until it can be loaded costs what an outage longer by b costs (b at most D + w).

Source: Young (1974) and Daly (2006, "A higher order estimate of the optimum checkpoint interval") expand this form for small
λ(D + w); first-order lines in λ turn negative where it says a few percent. Functions take NumPy or JAX arrays of one shape,
in any one unit of time, and are differentiable in all arguments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._core.arrays import namespace

N_NEWTON = 8  # quadratic from a start that is exact for short and for long intervals: float64 is reached after six


def expected_time(work: Any, interval: Any, blocking: Any, outage: Any, rate: Any, noticed: Any = 0.0) -> Any:
    """Expected wall time of `work`; infinite where an interval is not to be finished in practice.

    Args:
        work: time of all steps without interruptions and checkpoints.
        interval: of work between checkpoints.
        blocking: that training waits for a checkpoint.
        outage: from an interruption to the first new step.
        rate: interruptions per time.
        noticed: from an interruption to the outage.

    Example:
        >>> round(expected_time(100.0, 1.0, 0.05, 0.2, 0.02), 2)
        106.53
    """
    xp = namespace(work, interval, blocking, outage, rate, noticed)
    span = interval + blocking
    with np.errstate(over="ignore"):  # infinite, as said
        return work / interval * span * xp.exp(rate * outage) * growth(rate * span) * (1.0 + rate * noticed)


def growth(exponent: Any) -> Any:
    """(e^x - 1) / x, one at zero."""
    xp = namespace(exponent)
    small = abs(exponent) < 1e-8  # half of it is below float64's last digit
    safe = xp.where(small, 1.0, exponent)
    return xp.where(small, 1.0 + 0.5 * exponent, xp.expm1(safe) / safe)


def best_interval(blocking: Any, rate: Any) -> Any:
    """Interval of work between checkpoints that minimises the expected time; infinite where nothing interrupts.

    Notes:
        With x = λD and a = λw the derivative vanishes where x + expm1(-(x + a)) = 0, whatever the outage costs. Newton's method
        starts at Young's √(2a) for small a and at its limit 1 for large a.
    """
    xp = namespace(blocking, rate)
    a = blocking * rate
    none = a <= 0.0
    positive = xp.where(none, 1.0, a)
    x = xp.sqrt(1.0 - xp.exp(-2.0 * positive))
    for _ in range(N_NEWTON):
        decay = xp.expm1(-(x + positive))
        x = x + (x + decay) / decay
    interrupted = rate > 0.0
    free = xp.where(interrupted, 0.0, xp.inf)  # a checkpoint that costs nothing is taken all the time
    return xp.where(none, free, x / xp.where(interrupted, rate, 1.0))
