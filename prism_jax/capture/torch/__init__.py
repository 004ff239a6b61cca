"""PyTorch front end of `prism-jax capture`: training code run with fake tensors, one rank of every kind; see docs/capture.md.

Nothing here imports torch before a capture is asked for.
"""

from .front_end import FRONT_END as FRONT_END
