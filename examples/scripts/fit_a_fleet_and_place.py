"""Fits how the GPUs of a fleet differ from their repeated kernel times, then puts slow nodes where they cost least."""

from dataclasses import replace

import jax
import numpy as np
import pandas as pd

from prism_jax import fit, load_job, place_nodes, predict

# In practice: pandas.read_csv of your measurements. Here 34 nodes of 8 GPUs, four of them 6 % slow, each GPU measured five times.
rng = np.random.default_rng(0)
gpu = np.repeat(np.arange(34 * 8), 5)
slow_node = 0.06 * np.isin(np.arange(34), rng.choice(34, 4, replace=False))
log_s = slow_node[gpu // 8] + 0.01 * rng.standard_normal(34 * 8)[gpu] + 0.002 * rng.standard_normal(len(gpu))
runs = pd.DataFrame({"node": gpu // 8, "gpu": gpu, "run": np.arange(len(gpu)) % 5, "duration_s": 0.01 * np.exp(log_s)})
named = runs.assign(node="node" + runs.node.astype(str), gpu="gpu" + runs.gpu.astype(str))

key = jax.random.key(0)
fleet = fit(named, model="fleet", key=key)
print(fleet.verdict.sentence)
print({part: f"{share:.0%}" for part, share in fleet.describe()["variance_shares"].items()})
plan = {"tp": 8, "pp": 4, "dp": 8, "micro_batch": 1, "global_batch": 128, "seq_len": 8192, "sequence_parallel": True}
job = load_job({"model": "llama-3-70b", "cluster": "dgx-h100", "plan": plan, "variability": "h100-default"})
fitted = replace(job, variability=fleet.to_variability())
print(f"p95 on 32 nodes of such a fleet, whichever they are: {predict(fitted, key=key).quantile(0.95):.2f} s")

slowdown = {"all": (runs.groupby("gpu").duration_s.median() / runs.duration_s.median()).to_dict()}
report = place_nodes(fitted, slowdown, spares=2)
print(f"on these 34, two left out ({report.left_out}) and placed: {report.p95_s[report.chosen_from]:.2f} s")
print(
    f"which saves {report.gain:.2f} s a step over the nodes as given; 90 % interval on fresh draws {report.gain_interval}"
)
