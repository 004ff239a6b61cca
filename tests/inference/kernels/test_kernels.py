"""Kernel times: simulated tables are found again, and laws of shapes."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

from inference.kernels import laws as shapes, predict as collapsed, residual_field as residual
from inference.kernels.data import AXES, START_LEVEL, KernelsData, from_frame, log_ideal_s, tidy
from inference.kernels.model import CLASS_SCALE, TABLE_SCALE, Kernels
from inference.kernels.predict import efficiency
from prism_jax.core.errors import DataError, FitError
from prism_jax.system import catalog

MODEL = Kernels()
NOISE = 0.03


def surface(m, n, k):
    """Efficiency that rises with every size towards 0.8."""
    return 0.8 / ((1.0 + 600.0 / m) * (1.0 + 300.0 / n) * (1.0 + 500.0 / k))


def simulated(seed: int, n_shape: int = 220, gpus=("h100-sxm", "a100-80gb")) -> pd.DataFrame:
    """Products of random shapes on two GPUs, one of them 10% less efficient, with 3% noise of each shape."""
    rng = np.random.default_rng(seed)
    out = []
    for index, gpu in enumerate(gpus):
        m, n, k = (2.0 ** rng.uniform(9, 14, n_shape).round(2) for _ in range(3))
        value = surface(m, n, k) * 0.9**index * np.exp(NOISE * rng.standard_normal(n_shape))
        out.append(pd.DataFrame({"m": m, "n": n, "k": k, "gpu": gpu, "efficiency": value}))
    return pd.concat(out, ignore_index=True).assign(dtype="bf16", op="gemm", software="lib")


def plausible_draws(data, n_draw: int = 100) -> dict[str, np.ndarray]:
    """The spreads at their starting values, in every draw: coefficients and fields are drawn around them."""
    return {name: np.broadcast_to(value, (n_draw, *np.shape(value))) for name, value in MODEL.start(data).items()}


@pytest.fixture(scope="module")
def fitted():
    data = MODEL.prepare(simulated(0))
    return data, plausible_draws(data)


def ask(fitted, m, n, k, **more):
    data, draws = fitted
    size = np.stack(np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=float)) for x in (m, n, k, 1.0))), axis=1)
    return efficiency(data, draws, size, **{"gpu": "h100-sxm", "dtype": "bf16", "key": jax.random.key(0), **more})


def test_collapsed_likelihood_is_that_of_all_cells_at_once(x64):
    # Cells of two tables of one class, written out as one normal law with all coefficients integrated.
    table = simulated(1, n_shape=8)
    data = from_frame(table)
    noise, table_scale, class_scale = np.array([0.05, 0.2]), np.array(TABLE_SCALE), np.array(CLASS_SCALE)
    rng = np.random.default_rng(0)
    x = [rng.standard_normal((6, len(data.block))) for _ in range(2)]
    y = [rng.standard_normal(6) for _ in range(2)]
    from dataclasses import replace

    sums = {
        "xx": np.stack([a.T @ a for a in x]),
        "xy": np.stack([a.T @ b for a, b in zip(x, y, strict=True)]),
        "yy": np.array([b @ b for b in y]),
        "weight": np.array([6.0, 6.0]),
    }
    found = collapsed.log_likelihood(
        replace(data, **sums), *(jnp.asarray(v) for v in (noise, table_scale, class_scale))
    )
    own, shared = np.diag(table_scale[data.block] ** 2), np.diag(class_scale[data.block] ** 2)
    both = np.concatenate(x)
    of = np.repeat([0, 1], 6)
    covariance = both @ shared @ both.T + (of[:, None] == of) * (both @ own @ both.T) + np.diag(noise[of] ** 2)
    expected = multivariate_normal(np.zeros(12), covariance).logpdf(np.concatenate(y))
    assert float(found) == pytest.approx(float(expected) + 6.0 * np.log(2.0 * np.pi), rel=1e-9)


def test_inverse_and_its_derivative(x64):
    rng = np.random.default_rng(0)
    half = rng.standard_normal((3, 5, 5))
    matrix, step = half @ half.swapaxes(1, 2) + np.eye(5), 1e-6 * (half + half.swapaxes(1, 2))
    found, log_determinant = collapsed.inverse(jnp.asarray(matrix))
    np.testing.assert_allclose(found, np.linalg.inv(matrix), atol=1e-10)
    np.testing.assert_allclose(log_determinant, np.linalg.slogdet(matrix)[1], atol=1e-10)
    _, slope = jax.jvp(collapsed.inverse, (jnp.asarray(matrix),), (jnp.asarray(step),))
    np.testing.assert_allclose(slope[1], np.linalg.slogdet(matrix + step)[1] - np.linalg.slogdet(matrix)[1], rtol=1e-4)
    np.testing.assert_allclose(slope[0], np.linalg.inv(matrix + step) - np.linalg.inv(matrix), rtol=1e-2, atol=1e-9)


def test_a_known_surface_is_found_between_the_measured_shapes(fitted):
    rng = np.random.default_rng(3)
    m, n, k = 2.0 ** rng.uniform(9.5, 13.5, (3, 60))
    found = ask(fitted, m, n, k)
    # The noise belongs to each measured shape; the mean of 220 leaves about a third of its 3%.
    assert np.median(np.abs(np.median(found.draws, axis=0) / surface(m, n, k) - 1.0)) < 0.02
    assert not found.extrapolates.any()
    assert found.table == "gemm | bf16 | h100-sxm | lib"


def test_left_out_shapes_are_covered_and_better_than_the_nearest(fitted):
    # 440 shapes at 90%: outside 86-97% with probability below 0.01 at a true 90%, and wide tails may cover a little more.
    data, draws = fitted
    scores = MODEL.score(data, draws, simulated(4), "op", jax.random.key(1))
    assert [s.group for s in scores] == ["gemm"]
    assert 0.86 < scores[0].coverage_90 < 0.97
    assert scores[0].extra["mape"] < 0.6 * scores[0].extra["mape_nearest"] < scores[0].extra["mape_median"]


def test_extrapolation_warns_marks_and_widens(fitted):
    with pytest.warns(UserWarning, match="extrapolate"):
        beyond = ask(fitted, [2.0**10, 2.0**18], 4096, 4096)
    assert beyond.extrapolates.tolist() == [False, True]
    assert beyond.distance[1] > 4.0
    spread = np.diff(np.quantile(np.log(beyond.draws), [0.05, 0.95], axis=0), axis=0)[0]
    assert spread[1] > 2.0 * spread[0]
    # The nearest measured shapes are the measured ones that are nearest.
    data, _ = fitted
    cells = data.size[data.cell_table == data.tables.index(beyond.table), :4]
    asked = np.array([2.0**10, 4096, 4096, 1])
    place = np.argmin(np.linalg.norm(np.log2(cells) - np.log2(asked), axis=1))
    np.testing.assert_array_equal(beyond.nearest[0, 0], cells[place])


def test_a_gpu_that_was_not_measured_is_an_extrapolation_of_its_class(fitted):
    with pytest.warns(UserWarning, match="a GPU not measured"):
        found = ask(fitted, 4096, 4096, 4096, gpu="b200")
    assert found.table == ""
    assert 0.3 < np.median(found.draws) / surface(4096, 4096, 4096) < 1.5
    with pytest.raises(FitError, match="no gemm in fp8"):
        ask(fitted, 4096, 4096, 4096, dtype="fp8")


def test_another_software_than_the_measured_one_is_less_certain(fitted):
    known, other = (ask(fitted, 4096, 4096, 4096, software=name) for name in ("lib", "another"))
    assert known.table == other.table
    scale = TABLE_SCALE[0]  # the level of tables differs by this much, in log efficiency
    assert np.log(other.draws).std() == pytest.approx(np.hypot(scale, np.log(known.draws).std()), rel=0.25)


def test_efficiency_is_a_share_of_peak_however_odd_the_shape(fitted):
    sizes = np.array([1.0, 7.0, 300.0, 5000.0, 1e6])
    m, n, k = (x.ravel() for x in np.meshgrid(sizes, sizes, sizes))
    with pytest.warns(UserWarning, match="extrapolate"):
        found = ask(fitted, m, n, k)
    assert np.isfinite(found.draws).all()
    assert found.draws.min() > 0.0
    assert found.draws.max() <= 1.1


def test_kriging_returns_what_it_was_given_when_nothing_is_unshared():
    rng = np.random.default_rng(0)
    place, value = rng.uniform(0, 4, (40, 4)), rng.standard_normal(40)
    exact = residual.krige(place, value, place[:5], residual.ResidualField(2.0, 0.0, 4.0, 1.0))
    np.testing.assert_allclose(exact.mean, value[:5], atol=1e-6)
    np.testing.assert_allclose(exact.distance, 0.0, atol=1e-9)
    far = residual.krige(place, value, place[:1] + 100.0, residual.ResidualField(2.0, 0.1, 4.0, 1.0))
    np.testing.assert_allclose([far.mean[0], far.variance[0]], [0.0, 1.0], atol=1e-6)


def test_speeds_become_efficiencies_by_flops_and_peak():
    size = {"m": 1024.0, "n": 2048.0, "k": 4096.0, "dtype": "bf16"}
    rows = [
        {"gpu": "h100-sxm", "duration_s": 1e-4, **size},
        {"gpu": "h100-sxm", "tflops": 500.0, **size},
        {"gpu": "unheard of", "tflops": 40.0, **size},
        {"gpu": "unheard of", "tflops": 80.0, **size},
        {"gpu": "h100-sxm", "dtype": "bf16"},
    ]
    table, n_dropped = tidy(pd.DataFrame(rows))
    work, peak = 2.0 * 1024 * 2048 * 4096, 989.4e12
    expected = [work / 1e-4 / peak, 500e12 / peak, 0.5, 1.0]
    np.testing.assert_allclose(np.exp(table["log_efficiency"] + START_LEVEL), expected, rtol=1e-9)
    assert n_dropped == 1
    with pytest.raises(DataError, match="no row has both"):
        from_frame(pd.DataFrame(rows[-1:]))
    fused = shapes.flops("sdp_fwd", np.array([[4096.0, 32.0, 128.0, 1.0]]))
    assert fused[0] == 4.0 * 32 * 4096.0**2 * 128


def test_a_cost_is_no_variability(fitted):
    with pytest.raises(FitError, match="cost"):
        MODEL.variability(*fitted)
    assert "extrapolat" in MODEL.describe(*fitted)["verdict"]


@pytest.mark.slow
def test_noise_and_differences_of_gpus_are_recovered_by_a_fit():
    from inference.engine.program import Settings
    from inference.fitting.fit import posterior

    data = MODEL.prepare(simulated(5, n_shape=400))
    found = posterior(MODEL, data, "map", jax.random.key(0), settings=Settings(n_approximate_draw=400))
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in found.draws.items()}
    # Robust weights take 0-5% of normal noise away; its standard error over 400 shapes is 3.5%.
    np.testing.assert_allclose(np.exp(np.median(draws["log_noise"], axis=0)), NOISE, rtol=0.18)
    fast, slow = (np.median(ask((data, draws), 3000, 3000, 3000, gpu=gpu).draws) for gpu in ("h100-sxm", "a100-80gb"))
    assert slow / fast == pytest.approx(0.9, abs=0.03)


# --- Kernel laws -----------------------------------------------------------------------------------------------------
# Classes with a law: constants are found again, and a GPU never measured is predicted with an interval that covers.


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


def kernel_laws_simulated(op: str, n: int = 60, gpus=GPUS) -> pd.DataFrame:
    """Seconds by the law with constants of its priors, every GPU up to 10% faster or slower, 3% noise."""
    rng, law = np.random.default_rng(0), shapes.LAWS[OPS[op]]
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
    rows = kernel_laws_simulated(request.param)
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
    assert shapes.law_of("gemm | bf16") is None
    assert shapes.law_of("gemm | fp32") is shapes.LAWS["gemm"]


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
    rows = kernel_laws_simulated("mul", 10, ("t4",)).assign(gpu="a card of nobody")
    assert tidy(rows)[1] == 10
