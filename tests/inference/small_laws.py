"""Tables made by the laws that the small models fit."""

import numpy as np
import pandas as pd

from experiments.totals_fit.model import Totals


def ladder(rng: np.random.Generator, noise: float = 0.005, setup: str = "one gpu") -> pd.DataFrame:
    """Five batch sizes, three steps each: 20 ms and 1 ms per sample."""
    batch = np.repeat([8.0, 16.0, 32.0, 64.0, 128.0], 3)
    step_s = (0.020 + 1e-3 * batch) * np.exp(noise * rng.standard_normal(len(batch)))
    return pd.DataFrame({"batch": batch, "step_s": step_s, "setup": setup})


def totals(
    rng: np.random.Generator, n_model: int = 16, gpus: tuple[str, ...] = ("k80",), noise: float = 0.01
) -> pd.DataFrame:
    """Networks of two families on some GPUs, three repeats: products at half of the peak, the rest as expected."""
    network = pd.DataFrame(
        {
            "model": [f"m{n}" for n in range(n_model)],
            "family": [f"f{n % 2}" for n in range(n_model)],
            "batch": 128.0,
            "flops": np.exp(rng.uniform(20.0, 24.0, n_model)),
            "n_tensors": rng.integers(40, 300, n_model).astype(float),
        }
    )
    network["n_params"] = network["flops"] / 1000.0 * np.exp(0.3 * rng.standard_normal(n_model))
    rows = pd.concat([network.assign(gpu=gpu) for gpu in gpus for _ in range(3)], ignore_index=True)
    seconds = Totals().sizes(rows) @ np.array([2.0, 1.0, 1.0, 1.0])
    return rows.assign(step_s=seconds * np.exp(noise * rng.standard_normal(len(rows))))


def saves(rng: np.random.Generator, noise: float = 0.02) -> pd.DataFrame:
    """Twelve networks, four saves each: 3 s, 50 MB/s, an index that takes as long as expected."""
    weights = np.repeat(np.geomspace(4e6, 300e6, 12), 4)
    index = np.repeat(rng.uniform(5e3, 40e3, 12), 4)
    seconds = 3.0 + weights / 50e6 + index / 50e3
    return pd.DataFrame(
        {
            "model": [f"m{n // 4}" for n in range(48)],
            "weights_bytes": weights,
            "index_bytes": index,
            "save_s": seconds * np.exp(noise * rng.standard_normal(48)),
        }
    )


def servers(rng: np.random.Generator, noise: float = 0.01) -> pd.DataFrame:
    """1 to 8 workers of 10 steps/s each, and a server that takes 40."""
    workers = np.repeat(np.arange(1.0, 9.0), 3)
    rate = ((10.0 * workers) ** -4 + 40.0**-4) ** -0.25
    return pd.DataFrame(
        {
            "model": "net",
            "gpu": "k80",
            "workers": workers,
            "servers": 1.0,
            "steps_per_s": rate * np.exp(noise * rng.standard_normal(24)),
        }
    )


def starts(rng: np.random.Generator, regions: tuple[str, ...] = ("a", "b", "c")) -> pd.DataFrame:
    """Twelve starts of each tier and region: staging takes longer where machines can be taken away."""
    rows = []
    for region in regions:
        for tier, staging in (("on-demand", 30.0), ("preemptible", 42.0)):
            for _ in range(12):
                parts = np.array([1.8, staging, 40.0]) * np.exp(0.05 * rng.standard_normal(3))
                rows.append((*parts, tier, region))
    return pd.DataFrame(rows, columns=["provisioning_s", "staging_s", "booting_s", "tier", "region"])


def links(rng: np.random.Generator, slow: str = "n3", factor: float = 1.5) -> pd.DataFrame:
    """Twelve nodes tested for eight days by themselves and against another, three times a day; one has a slow NIC."""
    rows = [
        {"node": f"n{node}", "day": f"2025-03-{1 + day:02}", "n_nodes": n, "op": "all_reduce", "message_bytes": size}
        for node in range(12) for day in range(8) for n in (1.0, 2.0) for size in (1e8, 1e9) for _ in range(3)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    persistent = {(name, n): 0.01 * rng.standard_normal() for name in sorted(set(frame["node"])) for n in (1.0, 2.0)}
    persistent[slow, 2.0] = np.log(factor)
    passing = 0.02 * rng.standard_normal((12, 8, 2))
    day = (frame["day"].str[-2:].astype(int) - 1).to_numpy()
    own = frame["node"].str[1:].astype(int).to_numpy(), day, (frame["n_nodes"] - 1.0).astype(int).to_numpy()
    log_s = (
        np.log(frame["message_bytes"] / 2e11 * frame["n_nodes"])
        + passing[own]
        + 0.005 * rng.standard_normal(len(frame))
    )
    log_s += [persistent[key] for key in zip(frame["node"], frame["n_nodes"], strict=True)]
    return frame.assign(duration_s=np.exp(log_s))
