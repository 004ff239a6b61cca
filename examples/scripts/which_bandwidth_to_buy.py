"""Which bandwidth should the next cluster have more of? The gradient of the p95 step time says it of every link and memory."""

from dataclasses import replace

import jax

from prism_jax import hardware_sensitivity, load_job, step_quantile

job = load_job("llama2_7b_fsdp_64")
print(f"{job.name}: change of the p95 step time for 1 % more of")
for field, own in hardware_sensitivity(job, 0.95, key=jax.random.key(0)).items():
    print(f"  {field:24} {own.change:+.3f} % ± {own.error:.3f}")

# The same function, for a question of one's own: the whole curve over the bandwidth between nodes, not its slope alone.
p95 = step_quantile(job, 0.95, key=jax.random.key(0))
*inner, network = job.cluster.tiers


def seconds(bytes_per_s):
    """The p95 step time with another bandwidth between nodes."""
    return p95(replace(job.cluster, tiers=(*inner, replace(network, bytes_per_s=bytes_per_s))))


value_and_slope = jax.value_and_grad(seconds)
for factor in (0.5, 1.0, 2.0, 4.0):
    bytes_per_s = factor * network.bytes_per_s
    p95_s, slope = value_and_slope(bytes_per_s)
    gain_ms = -1e3 * slope * 1e9
    print(f"{bytes_per_s / 1e9:5.0f} GB/s per GPU: p95 {p95_s:.3f} s; one GB/s more saves {gain_ms:.2f} ms a step")
