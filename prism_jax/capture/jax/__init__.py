"""Front end of JAX: a jitted training step, compiled in a process of its own for as many virtual CPU devices as the job has.

The user's file defines either a jitted function and `example_args` beside it, or a function without arguments that returns the
jitted step and its arguments. Arguments are `jax.ShapeDtypeStruct` with shardings: nothing is allocated and nothing is run.
See docs/capture.md.
"""

from .front_end import FRONT_END as FRONT_END
