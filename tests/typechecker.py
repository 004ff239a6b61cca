"""The run-time type checker of the tests: beartype, told two things that static type checkers take for granted.

An int is a float too. And NumPy returns a scalar where an array without axes comes out.
"""

import numpy as np
from beartype import BeartypeConf, FrozenDict, beartype
from numpy.typing import NDArray

_ARRAYS = FrozenDict({NDArray[np.float64]: NDArray[np.float64] | np.float64})

check = beartype(conf=BeartypeConf(is_pep484_tower=True, hint_overrides=_ARRAYS))
