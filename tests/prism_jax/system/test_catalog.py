"""Shipped devices and clusters, utilisation figures from their peaks, and devices like a known one."""

from math import exp, hypot, log
from typing import Any

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system.catalog import cluster, cluster_names, default_cluster, device, device_names
from prism_jax.system.hardware import Cluster, Device, hfu, mfu, tflops_per_gpu, tokens_per_s_per_gpu
from prism_jax.system.likeness import POWER_SD, SAME_KIND, SHARE_SD, device_like, device_notes
from prism_jax.system.network import Tier
from prism_jax.system.power import population_law, power_law

NVIDIA = {
    "kepler",
    "maxwell",
    "pascal",
    "volta",
    "turing",
    "ampere",
    "ga10x",
    "ada",
    "hopper",
    "blackwell",
    "blackwell-rtx",
}
GENERATIONS = NVIDIA | {
    "gcn5",
    "cdna1",
    "cdna2",
    "cdna3",
    "cdna4",
    "tpu",
    "xe-hpc",
    "ascend",
    "neuron",
    "gaudi",
    "a64fx",
}


@pytest.mark.parametrize("name", device_names())
def test_every_device_is_complete_and_cites_its_source(name: str) -> None:
    found = device(name)
    assert found.source
    assert found.generation in GENERATIONS
    assert 7e9 < found.hbm_bytes < 400e9
    if found.generation in ("kepler", "maxwell", "pascal"):  # no matrix units
        assert found.peak_flops_per_s.get("fp16", 0.0) <= 2.02 * found.peak("fp32")
    elif found.generation == "tpu":  # its matrix units take bf16 only
        assert set(found.peak_flops_per_s) <= {"bf16", "fp8"}
    else:
        assert max(found.peak_flops_per_s.get(dtype, 0.0) for dtype in ("fp16", "bf16")) > found.peak("fp32")


@pytest.mark.parametrize("name", device_names())
def test_peaks_are_dense_so_that_halving_the_width_at_most_doubles_them(name: str) -> None:
    peaks = device(name).peak_flops_per_s
    for wide, narrow, most in (("tf32", "bf16", 2.02), ("bf16", "fp8", 2.03), ("fp8", "fp4", 3.01)):
        if wide in peaks and narrow in peaks and (name, narrow) != ("gaudi3", "fp8"):  # one rate for both
            assert 1.9 < peaks[narrow] / peaks[wide] < most
    if "bf16" in peaks and "fp16" in peaks and name != "mi100":  # half the rate there
        assert peaks["bf16"] == peaks["fp16"]


@pytest.mark.parametrize(
    ("name", "tflops", "gb_per_s", "watts"),
    [  # dense bf16 (fp16 on V100), HBM, power: the datasheets named in devices.toml
        ("v100-32gb", 125, 900, 300),
        ("a100-40gb", 312, 1555, 400),
        ("a100-80gb", 312, 2039, 400),
        ("h100-sxm", 989.4, 3350, 700),
        ("h100-pcie", 756, 2000, 350),
        ("h200", 989.4, 4800, 700),
        ("b200", 2250, 7700, 1000),
        ("gb200", 2500, 8000, 1200),
        ("gb300", 2500, 8000, 1400),
        ("mi300x", 1307.4, 5300, 750),
        ("mi355x", 2516.6, 8000, 1400),
        ("mi350x", 2306.9, 8000, 1000),
        ("mi250x", 383 / 2, 3277 / 2, 560 / 2),
        ("h20", 148, 4000, 400),
        ("rtx-4090", 165.2, 1008, 450),
        ("rtx-a6000", 154.8, 768, 300),
        ("t4", 65, 300, 70),
        ("ascend-910b", 313, 1600, 400),
        ("gaudi2", 432, 2450, 600),
        ("trainium2", 667, 2900, 500),
    ],
)
def test_devices_have_the_datasheet_numbers(name: str, tflops: float, gb_per_s: float, watts: float) -> None:
    found = device(name)
    assert found.peak("fp16") == pytest.approx(tflops * 1e12)
    assert found.hbm_bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=1e-3)
    assert found.power_watts == watts


@pytest.mark.parametrize(("core", "chip", "n"), [("neuroncore-v2", "trainium1", 2), ("neuroncore-v3", "trainium2", 8)])
def test_cores_add_up_to_their_chip_and_its_node(core: str, chip: str, n: int) -> None:
    one, whole = device(core), device(chip)
    assert n * one.peak("bf16") == pytest.approx(whole.peak("bf16"), rel=1e-3)
    for field in ("hbm_bytes", "hbm_bytes_per_s", "power_watts", "n_sm"):
        assert n * getattr(one, field) == pytest.approx(getattr(whole, field))
    cores, chips = default_cluster(one.name, 1024), default_cluster(whole.name, 1024)
    assert cores.node_size == n * chips.node_size
    for own, other in zip(cores.tiers, chips.tiers, strict=True):
        assert n * own.bytes_per_s == pytest.approx(other.bytes_per_s)


@pytest.mark.parametrize(
    ("name", "tflops", "gb_per_s", "n_mxu", "ici_gb_per_s", "pod"),
    [  # per chip, both directions of the interconnect, as in the Cloud TPU documentation
        ("tpu-v4", 275, 1228, 8, 600, 4096),
        ("tpu-v5e", 197, 819, 4, 400, 256),
        ("tpu-v5p", 459, 2765, 8, 1200, 8960),
        ("tpu-v6e", 918, 1638, 2, 800, 256),
        ("tpu-v7x", 2307, 7380, 4, 1200, 9216),
    ],
)
def test_tpus_have_the_documented_numbers(
    name: str, tflops: float, gb_per_s: float, n_mxu: int, ici_gb_per_s: float, pod: int
) -> None:
    found, ici = device(name), default_cluster(name, 64).tiers[0]
    assert found.peak("bf16") == pytest.approx(tflops * 1e12)
    assert found.hbm_bytes_per_s == pytest.approx(gb_per_s * 1e9)
    assert found.n_sm == n_mxu
    assert (ici.bytes_per_s, ici.n_devices) == (pytest.approx(ici_gb_per_s * 1e9 / 2), pod)


def test_a_tile_of_aurora_has_the_active_share_of_half_a_gpu() -> None:
    tile = device("Intel-PVC-tile (Aurora)")
    assert tile.peak("bf16") == pytest.approx(448 * 512 * 1.6e9, rel=2e-3)  # engines, operations per clock, clock
    assert tile.hbm_bytes_per_s == pytest.approx(3276.8e9 / 2, rel=1e-3)
    node = default_cluster("max-1550-tile", 192)
    assert node.tiers[1].bytes_per_s * node.node_size == pytest.approx(8 * 25e9, rel=3e-3)


# fmt: off
NAMES = {
    "TPU-v7x (Ironwood)": "tpu-v7x", "Trillium": "tpu-v6e", "TPU v5p": "tpu-v5p",
    "a100": "a100-80gb", "A100-SXM4-80GB": "a100-80gb", "NVIDIA A100_SXM4_40GB": "a100-40gb",
    "A100-80GB (4-GPU node)": "a100-80gb", "H100-SXM-80GB": "h100-sxm", "NVIDIA H100 80GB HBM3": "h100-sxm",
    "h100 pcie": "h100-pcie", "Tesla V100-SXM2-16GB": "v100-16gb", "AMD Instinct MI300X": "mi300x",
    "GB200 NVL72": "gb200", "Ascend-910B (Atlas 800T A2)": "ascend-910b", "MI250 (GCD)": "mi250",
    "AMD Instinct MI250X (one GCD)": "mi250x", "RTX-3090-24GB": "rtx-3090", "NVIDIA RTX A6000": "rtx-a6000",
    "RTX-PRO-6000-Blackwell-96GB": "rtx-pro-6000", "A64FX node (Fugaku CPU)": "a64fx", "Gaudi2": "gaudi2",
    "Intel Gaudi 3": "gaudi3", "MI350X": "mi350x", "Tesla T4": "t4", "trn2": "trainium2",
}
# fmt: on


@pytest.mark.parametrize("text", NAMES)
def test_device_names_are_matched_tolerantly(text: str) -> None:
    assert device(text).name == NAMES[text]


@pytest.mark.parametrize("text", ["h10", "dgx-h1000", "", "a"])
def test_an_unknown_name_says_what_is_known(text: str) -> None:
    with pytest.raises(SpecError, match=r"Did you mean|Known are"):
        device(text)
    with pytest.raises(SpecError, match=r"Did you mean|Known are"):
        cluster(text, 8)


def test_a_missing_dtype_names_the_known_ones() -> None:
    with pytest.raises(SpecError, match="v100-32gb has no bf16 peak; it has fp16, fp32"):
        device("v100").peak("bf16")


@pytest.mark.parametrize("name", cluster_names())
@pytest.mark.parametrize("n_devices", [1, 8, 72, 100_000])
def test_every_cluster_grows_to_any_size(name: str, n_devices: int) -> None:
    found = cluster(name, n_devices)
    assert found.n_devices == n_devices
    assert found.tiers[-1].n_devices >= n_devices
    bandwidths = [tier.effective_bytes_per_s for tier in found.tiers]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert all(tier.source for tier in found.tiers)
    assert found.source


@pytest.mark.parametrize("name", device_names())
def test_every_device_has_a_default_cluster_built_of_it(name: str) -> None:
    assert default_cluster(name, 64).device == device(name)


def test_llama3_cluster_has_pods_of_3072_and_a_spine_seven_times_oversubscribed() -> None:
    found = cluster("llama3-h100", 16_384)  # arXiv 2407.21783 section 3.3.1
    assert [tier.n_devices for tier in found.tiers] == [8, 3072, 16_384]
    assert found.tiers[1].effective_bytes_per_s == pytest.approx(400e9 / 8)
    assert found.tiers[2].effective_bytes_per_s == pytest.approx(400e9 / 8 / 7)


def test_nvlink_figures_are_per_direction() -> None:
    for name, both_directions in (("dgx-v100", 300e9), ("dgx-a100", 600e9), ("dgx-h100", 900e9), ("gb200", 1800e9)):
        assert cluster(name, 64).tiers[0].bytes_per_s == pytest.approx(both_directions / 2)


@pytest.mark.parametrize("n_devices", [0, -8, 2.5, True, "8"])
def test_a_cluster_needs_a_whole_number_of_devices(untyped: None, n_devices: object) -> None:
    with pytest.raises(SpecError, match="whole number of at least 1"):
        cluster("dgx-h100", n_devices)  # pyright: ignore[reportArgumentType]


def test_impossible_hardware_is_refused_with_a_remedy() -> None:
    good = device("a100")
    with pytest.raises(SpecError, match=r"oversubscription = 0\.5"):
        Tier("leaf", 8, 1e9, 0.0, oversubscription=0.5)
    with pytest.raises(SpecError, match="bytes_per_s = 0"):
        Tier("leaf", 8, 0.0, 0.0)
    with pytest.raises(SpecError, match="latency_s = -1"):
        Tier("leaf", 8, 1.0, -1.0)
    with pytest.raises(SpecError, match="peak of bf16 = nan"):
        Device("x", {"bf16": float("nan")}, 1.0, 1.0, 1.0, 1, "")
    with pytest.raises(SpecError, match="at least one dtype"):
        Device("x", {}, 1.0, 1.0, 1.0, 1, "")
    with pytest.raises(SpecError, match="node_size = 0"):
        Cluster("x", good, (Tier("leaf", 8, 1.0, 0.0),), 8, node_size=0)


# --- Clusters of another size ----------------------------------------------------------------------------------------


def test_a_cluster_of_another_size_keeps_its_tiers_and_grows_the_last():
    small = cluster("dgx-a100", 16)
    large = small.of_size(64)
    assert (large.n_devices, large.tiers[:-1], large.device) == (64, small.tiers[:-1], small.device)
    assert large.tiers[-1].n_devices == 64
    assert small.of_size(8).tiers == small.tiers


# --- Utilisation figures: closed forms, and the relation between the figures of a published table --------------------


H100 = cluster("llama3-h100", 16384)


@pytest.mark.parametrize(("tflops", "published_mfu"), [(430, 0.43), (400, 0.41), (380, 0.38)])
def test_llama3_utilisation_follows_from_its_tflops(tflops: float, published_mfu: float):
    """arXiv 2407.21783, table 4; it rounds to a percent, of a peak it does not state."""
    assert mfu(tflops * 1e12, 1.0, H100, 1, "bf16") == pytest.approx(published_mfu, abs=0.011)


def test_rates_are_per_device_and_second():
    assert tflops_per_gpu(8e15, 2.0, 4) == 1000.0
    assert tokens_per_s_per_gpu(8192, 2.0, 4) == 1024.0


def test_hardware_utilisation_counts_recomputation():
    assert hfu(4e15, 2.0, H100, 8, "bf16") == pytest.approx(4 / 3 * mfu(3e15, 2.0, H100, 8, "bf16"))


def test_a_dtype_that_the_device_lacks_is_refused():
    with pytest.raises(SpecError, match="fp8"):
        mfu(1e15, 1.0, cluster("dgx-a100", 8), 8, "fp8")


# --- Devices like a known one ----------------------------------------------------------------------------------------


def test_stated_figures_replace_and_the_rest_is_taken_over() -> None:
    base, found = device("h100-sxm"), device_like("h100-sxm", hbm_bytes=96e9)
    assert (found.hbm_bytes, found.like) == (96e9, "h100-sxm")
    for field in ("peak_flops_per_s", "hbm_bytes_per_s", "power_watts", "n_sm", "generation"):
        assert getattr(found, field) == getattr(base, field)
    assert found.likeness_sd == SAME_KIND  # memory size costs no time


def test_a_lower_limit_scales_the_peaks_by_the_clock_that_the_law_allows() -> None:
    base, found = device("h100-sxm"), device_like("h100-sxm", power_watts=500)
    law = power_law(base)
    assert law is not None
    clock = law.clock_under(500 / 700, law.busy["gemm"])
    assert 0.8 < clock < 0.95
    for dtype, peak in base.peak_flops_per_s.items():
        assert found.peak(dtype) == pytest.approx(peak * clock)
    assert found.hbm_bytes_per_s == base.hbm_bytes_per_s
    assert found.likeness_sd == pytest.approx(hypot(SAME_KIND, POWER_SD * log(7 / 5)))


def test_a_device_without_a_law_takes_that_of_all_gpus() -> None:
    base, found = device("gaudi3"), device_like("gaudi3", power_watts=0.6 * device("gaudi3").power_watts)
    clock = population_law().clock_under(0.6, 1.0)
    assert found.peak("bf16") == pytest.approx(base.peak("bf16") * clock)


def test_a_higher_limit_leaves_the_peaks_of_the_datasheet() -> None:
    assert device_like("h100-pcie", power_watts=700).peak_flops_per_s == device("h100-pcie").peak_flops_per_s


def test_a_stated_peak_scales_the_other_dtypes_and_takes_the_place_of_the_power_law() -> None:
    base = device("h100-sxm")
    found = device_like(base, power_watts=350, peak_flops_per_s={"bf16": base.peak("bf16") / 4})
    assert found.peak("fp8") == pytest.approx(base.peak("fp8") / 4)
    assert found.likeness_sd == pytest.approx(hypot(SAME_KIND, SHARE_SD * log(4)))


def test_likeness_of_a_likeness_adds_up_and_names_the_preset() -> None:
    found = device_like(device_like("a100-80gb"))
    assert found.like == "a100-80gb"
    assert found.likeness_sd == pytest.approx(hypot(SAME_KIND, SAME_KIND))


def test_the_note_states_the_interval() -> None:
    assert device_notes(device("h100-sxm")) == ()
    (note,) = device_notes(device_like("h100-sxm", likeness_sd=0.1))
    assert note.startswith("device like h100-sxm: interval widened by ")
    assert f"{exp(0.1645) - 1:.0%}" in note


@pytest.mark.parametrize(
    ("figures", "rule"),
    [
        ({"power_watts": 1.0}, "at its lowest clock"),
        ({"power_watts": -5.0}, "greater than 0|positive|at least 0"),
        ({"hbm_bytes": 0.0}, "greater than 0|positive|at least 0"),
        ({"likeness_sd": -0.1}, "likeness_sd = -0.1, but it must be between 0 and 5"),
        ({"peak_flops_per_s": {"bf16": -1.0}}, "greater than 0|positive|at least 0"),
    ],
)
def test_impossible_figures_are_refused(figures: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        device_like("h100-sxm", **figures)


def test_an_unknown_device_is_refused_with_the_remedy() -> None:
    with pytest.raises(SpecError, match=r"Did you mean h100-sxm.*device: \{like: h100-sxm"):
        device_like("h100-smx")
