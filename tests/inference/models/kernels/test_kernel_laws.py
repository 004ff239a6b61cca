"""Classes with a law: constants are found again, and a GPU never measured is predicted with an interval that covers."""

import jax
import numpy as np
import pandas as pd
import pytest

from inference.kernels import laws, laws as shapes
from inference.kernels.data import AXES, KernelsData, log_ideal_s, tidy
from inference.kernels.model import Kernels
from inference.kernels.predict import efficiency
from prism_jax.system import catalog

MODEL = Kernels()
GPUS = ("p4", "t4", "v100-pcie", "a100-pcie-40gb")
OPS = {"conv2d": "convolution", "linear": "gemm", "mul": "vector"}


def sizes(op: str, n: int, rng: np.random.Generator) -> pd.DataFrame:
    def whole(low: float, high: float) -> np.ndarray:
        return np.round(2.0 ** rng.uniform(low, high, n))

    match OPS[op]:
        case "convolution":
            side = whole(3, 6)
            given = {"batch": whole(0, 6), "c_in": whole(4, 10), "c_out": whole(4, 10), "height": side, "width": side}
            return pd.DataFrame({**given, "filter_height": 3.0, "filter_width": 3.0, "stride": 1.0, "padding": 1.0})
        case "gemm":
            return pd.DataFrame({"m": whole(7, 12), "n": whole(7, 12), "k": whole(7, 12)})
        case _:
            return pd.DataFrame({"rows": whole(6, 16), "columns": whole(6, 12)})


def simulated(op: str, n: int = 60, gpus=GPUS) -> pd.DataFrame:
    """Seconds by the law with constants of its priors, every GPU up to 10 % faster or slower, 3 % noise."""
    rng, law = np.random.default_rng(0), laws.LAWS[OPS[op]]
    centre = np.log([value for _, value, _ in law.constants])
    out = []
    for index, gpu in enumerate(gpus):
        rows = sizes(op, n, rng).assign(op=op, dtype="fp32", gpu=gpu, duration_s=1.0)
        size = tidy(rows)[0][AXES].to_numpy(dtype=np.float64)
        seconds = law.at(op, size, catalog.device(gpu), centre)
        rows["duration_s"] = np.exp(seconds + 0.03 * rng.standard_normal(n) + 0.1 * np.sin(index))
        out.append(rows)
    return pd.concat(out, ignore_index=True)


@pytest.fixture(scope="module", params=sorted(OPS))
def measured(request) -> tuple[str, pd.DataFrame, KernelsData]:
    rows = simulated(request.param)
    return request.param, rows, MODEL.prepare(rows.loc[rows.gpu != "v100-pcie"])


def draws_of(data: KernelsData, n: int = 100) -> dict[str, np.ndarray]:
    return {name: np.broadcast_to(value, (n, *np.shape(value))) for name, value in MODEL.start(data).items()}


def test_a_gpu_never_measured_is_predicted_from_its_datasheet(measured) -> None:
    op, rows, data = measured
    own = tidy(rows[rows.gpu == "v100-pcie"])[0]
    size = own[AXES].to_numpy(dtype=np.float64)
    with pytest.warns(UserWarning, match="extrapolate"):
        found = efficiency(data, draws_of(data), gpu="v100-pcie", dtype="fp32", op=op, size=size, key=jax.random.key(0))
    name = f"{op} | fp32"
    seconds = np.exp(log_ideal_s(name, "v100-pcie", size)) / found.draws
    truth = rows.duration_s[rows.gpu == "v100-pcie"].to_numpy()
    assert np.median(np.abs(np.median(seconds, axis=0) / truth - 1.0)) < 0.15
    low, high = np.quantile(seconds, [0.05, 0.95], axis=0)
    assert np.mean((truth >= low) & (truth <= high)) > 0.8
    assert found.extrapolates.all()


def test_a_measured_gpu_is_predicted_within_its_noise(measured) -> None:
    op, rows, data = measured
    size = tidy(rows[rows.gpu == "t4"])[0][AXES].to_numpy(dtype=np.float64)
    found = efficiency(data, draws_of(data), gpu="t4", dtype="fp32", op=op, size=size, key=jax.random.key(0))
    seconds = np.exp(log_ideal_s(f"{op} | fp32", "t4", size)) / np.median(found.draws, axis=0)
    assert np.median(np.abs(seconds / rows.duration_s[rows.gpu == "t4"].to_numpy() - 1.0)) < 0.05


def test_products_in_16_bits_have_no_law() -> None:
    assert laws.law_of("gemm | bf16") is None
    assert laws.law_of("gemm | fp32") is laws.LAWS["gemm"]


def test_sizes_of_convolutions_come_from_the_input() -> None:
    rows = pd.DataFrame(
        {
            "op": ["conv2d"],
            "dtype": "fp32",
            "gpu": "t4",
            "batch": 2,
            "c_in": 3,
            "c_out": 64,
            "height": 224,
            "width": 224,
        }
    ).assign(filter_height=7, filter_width=7, stride=2, padding=3, duration_s=1e-3)
    size = tidy(rows)[0][AXES].to_numpy(dtype=np.float64)
    assert size.tolist() == [[2, 3, 64, 112, 112, 7, 7, 2, 1]]
    assert shapes.flops("conv2d", size)[0] == 2.0 * 2 * 112 * 112 * 64 * 3 * 49


def test_rows_of_unknown_devices_are_left_aside_where_a_law_reads_the_datasheet() -> None:
    rows = simulated("mul", 10, ("t4",)).assign(gpu="a card of nobody")
    assert tidy(rows)[1] == 10
