"""What the fields of a model known by its ladder are, for the page of job fields."""

from __future__ import annotations

WORDS = {
    "floor_s": "seconds of a step that no batch is small enough to save (`prism-jax fit ladder`)",
    "s_per_sample": "seconds of a sample more",
    "measured_on": "device on which the ladder was measured; others follow their datasheets",
    "n_parameters": "parameters, which ranks exchange and checkpoints hold",
    "most_samples": "largest batch that was measured: a device takes no more",
    "sample_bytes": "bytes of activations that a sample keeps; 0: not known",
}
