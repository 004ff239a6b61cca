"""Front ends of `prism-jax capture`: what turns a user's own code, or what was recorded of it, into a captured program."""

from .front_end import CaptureRequest as CaptureRequest, FrontEnd as FrontEnd
from .front_ends import FRONT_ENDS as FRONT_ENDS, front_end_for as front_end_for
