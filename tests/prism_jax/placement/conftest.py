"""Small pipelines and fleets."""

from collections.abc import Callable

import numpy as np
import pytest

from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job

JOB = """\
model: {{n_layers: {layers}, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 8000}}
cluster: dgx-a100
plan: {{micro_batch: 1, global_batch: {batch}, seq_len: 1024, tp: {tp}, pp: {pp}, dp: {dp}, {more}}}
variability: {variability}
"""


@pytest.fixture
def job_of(tmp_path) -> Callable[..., Job]:
    """Makes jobs; by default 4 stages x 2 replicas of one node each, nothing varies."""

    def make(*, layers=8, batch=32, tp=8, pp=4, dp=2, more="schedule: 1f1b", variability="none") -> Job:
        file = tmp_path / "job.yaml"
        file.write_text(JOB.format(layers=layers, batch=batch, tp=tp, pp=pp, dp=dp, more=more, variability=variability))
        return load_job(str(file))

    return make


@pytest.fixture
def factors() -> Callable[..., np.ndarray]:
    """Makes slowdowns [node, gpu] with a few slow GPUs."""

    def make(n_node: int, seed: int = 0, gpus: int = 8) -> np.ndarray:
        return 1.0 + 0.03 * np.random.default_rng(seed).gamma(1.0, 1.0, (n_node, gpus))

    return make
