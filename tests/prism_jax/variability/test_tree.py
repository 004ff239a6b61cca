"""The tree: what-if views, configuration sections, presets, and their measured origin."""

import math
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from experiments.variability_presets import run
from prism_jax.core.errors import SpecError
from prism_jax.core.kernels import COLLECTIVES, varying_classes
from prism_jax.job.load_job import loaded
from prism_jax.simulate.predict import predict
from prism_jax.variability.config import default_for, preset, preset_names, variability_from_dict, variability_to_dict
from prism_jax.variability.families import CONSTANT, Constant, LogNormal, Normal
from prism_jax.variability.family_registry import Mixture
from prism_jax.variability.score_map import NormalScoreMap
from prism_jax.variability.tree import PARTS, ClassVariability, Stall, Variability

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / ".." / "shared" / "data"
TREE = Variability(
    name="t",
    classes={
        "gemm": ClassVariability(gpu=LogNormal(0.02), call=Normal(0.001)),
        "p2p": ClassVariability(regime=LogNormal(0.1)),
    },
    step=Normal(0.002),
    step_ar1=0.3,
    stalls=(Stall(step_prob=0.01, mean_fraction=0.1),),
)


def test_views_keep_what_their_name_says() -> None:
    assert TREE.without("gemm").spread() == {"p2p.regime": 0.1, "step": 0.002}
    assert TREE.only("gemm").spread() == {"gemm.gpu": 0.02, "gemm.call": 0.001}
    assert TREE.only("gemm").stalls == ()


def test_scaling_scales_every_spread_and_zero_is_no_variability() -> None:
    assert TREE.scaled(2.0).spread() == pytest.approx({path: 2.0 * cv for path, cv in TREE.spread().items()})
    assert TREE.scaled(2.0).stalls[0].mean_fraction == 0.2
    assert TREE.scaled(0.0).is_zero
    assert not TREE.is_zero
    assert not Variability(stalls=(Stall(gpu_prob=0.1, mean_fraction=0.1),)).is_zero
    assert Variability().is_zero


def test_unknown_class_gets_a_hint() -> None:
    for view in (TREE.without, TREE.only):
        with pytest.raises(SpecError, match=r"'allreduce', did you mean all_reduce\?"):
            view("allreduce")
    with pytest.raises(SpecError, match="did you mean gemm"):
        Variability(classes={"gem": ClassVariability()})


def test_stall_probability_grows_with_devices() -> None:
    stall = Stall(step_prob=0.1, gpu_prob=0.01, mean_fraction=0.1)
    assert stall.prob(0) == pytest.approx(0.1)
    assert stall.prob(2) == pytest.approx(1.0 - 0.9 * 0.99**2)
    assert Stall(gpu_prob=0.01, gpu_exponent=2.0).prob(3) == pytest.approx(1.0 - 0.99**9)
    with pytest.raises(SpecError, match="step_prob"):
        Stall(step_prob=1.5)


@pytest.mark.parametrize("n_devices", [6144, 8192, 10752, 16384, 131072])
def test_one_step_in_a_hundred_of_a_large_job_stalls_by_what_was_measured(n_devices: int) -> None:
    # p99/p50 - 1 = 2.4% beyond 4,096 H100 (MLPerf Training, experiments/variability_presets/README.md).
    beyond = sum(s.prob(n_devices) * math.exp(-0.024 / s.mean_fraction) for s in preset("h100-default").stalls)
    assert 0.005 < beyond < 0.025


@pytest.mark.parametrize("tree", [TREE, preset("h100-default"), preset("none")], ids=lambda t: t.name)
def test_dict_round_trip(tree: Variability) -> None:
    assert variability_from_dict(variability_to_dict(tree)) == tree


def test_overrides_replace_part_by_part() -> None:
    base = preset("h100-default")
    tree = variability_from_dict(
        {"preset": "h100-default", "gemm": {"call": 0.05}, "step": {"kind": "normal", "cv": 0.01}}
    )
    assert tree.of("gemm").call == LogNormal(0.05)
    assert tree.of("gemm").gpu == base.of("gemm").gpu
    assert tree.step == Normal(0.01)
    assert tree.stalls == base.stalls
    assert variability_from_dict("none").is_zero


def test_scale_multiplies_the_presets_spreads() -> None:
    doubled = variability_from_dict({"preset": "h100-default", "scale": 2.0})
    assert doubled.of("gemm").call.cv == pytest.approx(2.0 * preset("h100-default").of("gemm").call.cv)
    assert variability_from_dict({"preset": "h100-default", "scale": 0}).is_zero


@pytest.mark.parametrize(
    ("section", "text"),
    [
        (
            {"gemm": {"gpu": {"kind": "mixtur"}}},
            r"variability\.gemm\.gpu\.kind: unknown 'mixtur', did you mean mixture\?",
        ),
        ({"gem": {}}, r"variability\.gem: unknown field, did you mean gemm\?"),
        ({"gemm": {"gpus": 0.1}}, r"variability\.gemm\.gpus: unknown field, did you mean gpu\?"),
        ({"gemm": 0.1}, r"variability\.gemm: 0\.1 is not a mapping"),
        ({"preset": "h100-defualt"}, r"variability\.preset: .*did you mean h100-default\?"),
        ({"stalls": [{"gpu_prb": 1e-6}]}, r"variability\.stalls\[0\]\.gpu_prb: unknown field, did you mean gpu_prob\?"),
        ({"stalls": [{"gpu_prob": -1}]}, r"variability\.stalls\[0\]: Stall: gpu_prob = -1"),
        ({"stalls": {"gpu_prob": 0.1}}, r"variability\.stalls: .*not a list"),
        ({"step_ar1": 2}, r"variability\.step_ar1: 2, but"),
        ({"step_ar1": "high"}, r"variability\.step_ar1: 'high' is not a number"),
        ({"scale": 2}, r"variability\.scale: scales a preset, but no preset is named"),
        ({"preset": "h100-default", "scale": -1}, r"variability\.scale: spread scale = -1"),
    ],
)
def test_mistakes_name_their_path(section: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        variability_from_dict(section)


PRODUCTION = "production-2025"
OF_WHOLE_STEPS = ("none", "lambda-h100-resnet", "host-bound-cnn")  # say nothing of kernel classes apart


def test_the_production_preset_is_as_wide_as_what_it_was_chosen_for() -> None:
    job = loaded("llama3_405b_65536", (f"variability={PRODUCTION}",))
    found = predict(job, key=jax.random.key(0))
    assert found.quantile(0.05) / found.quantile(0.5) == pytest.approx(0.989, abs=0.003)
    assert found.quantile(0.95) / found.quantile(0.5) == pytest.approx(1.027, abs=0.003)
    score = np.random.default_rng(0).standard_normal((2, 200_000))
    for name in COLLECTIVES[:-1]:  # but for sends
        own = job.variability.of(name)
        maps = (NormalScoreMap.from_family(family) for family in (own.regime, own.call))
        collective = np.prod([one(z) for one, z in zip(maps, score, strict=True)], axis=0)
        assert 2.3 < np.quantile(collective, 0.99) / np.median(collective) < 2.8


def test_the_presets_of_the_issue_are_there() -> None:
    wanted = {
        "none",
        "v100-longhorn",
        "a100-default",
        "h100-default",
        "b200-default",
        "mi300x-default",
        *OF_WHOLE_STEPS,
    }
    assert wanted <= set(preset_names())


@pytest.mark.parametrize("name", preset_names())
def test_preset_loads_has_a_source_and_mean_one_factors(name: str) -> None:
    tree = preset(name)
    assert tree.name == name
    assert len(tree.source) > 40
    for factors in tree.classes.values():
        for part in PARTS:
            assert NormalScoreMap.from_family(getattr(factors, part)).mean == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("name", [n for n in preset_names() if n not in (*OF_WHOLE_STEPS, PRODUCTION)])
def test_preset_keeps_tails_out_of_the_per_call_residual(name: str) -> None:
    tree = preset(name)
    assert set(tree.classes) == set(varying_classes())
    assert isinstance(tree.of("gemm").gpu, Mixture)
    assert isinstance(tree.of("all_reduce").regime, Mixture)
    assert all(isinstance(tree.of(c).call, (Normal, LogNormal, Constant)) for c in varying_classes())
    assert tree.of("gemm").call.cv ** 2 < 0.03 * tree.of("gemm").gpu.cv ** 2  # PAL: 97% of the variance is between GPUs


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("h100-sxm", "h100-default"),
        ("NVIDIA A100-SXM4-80GB", "a100-default"),
        ("gb200", "b200-default"),
        ("mi325x", "mi300x-default"),
        ("v100-32gb", "v100-longhorn"),
        ("unheard-of", "h100-default"),
        (SimpleNamespace(name="next", generation="blackwell"), "b200-default"),
    ],
)
def test_default_preset_follows_generation_then_name(device: object, name: str) -> None:
    assert default_for(device) == name


def test_absent_class_does_not_vary() -> None:
    assert Variability().of("gemm").gpu is CONSTANT


@pytest.mark.skipif(not (DATA / "variability").is_dir(), reason="measured tables are not beside this checkout")
def test_shipped_presets_are_what_the_script_measures() -> None:
    for name, section in run.presets(run.measure(DATA)).items():
        shipped = ROOT / "prism_jax" / "variability" / "presets" / f"{name}.toml"
        assert tomllib.loads(run.toml_text(name, section)) == tomllib.loads(shipped.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", ["gemm.regime", "attention.regime", "memory.regime", "all_reduce.gpu", "p2p.gpu"])
def test_a_part_that_nothing_reads_is_refused(path):
    name, part = path.split(".")
    with pytest.raises(SpecError, match=f"{path}: has no meaning"):
        Variability(classes={name: ClassVariability(**{part: LogNormal(0.1)})})
    with pytest.raises(SpecError, match=rf"^variability\.{path}: has no meaning"):
        variability_from_dict({name: {part: 0.1}})


@pytest.mark.parametrize(
    "family", [{"kind": ["normal"], "cv": 0.1}, {"kind": "normal", "cv": "0.1"}, {"kind": "normal", "cv": True}]
)
def test_families_take_names_and_numbers_only(family):
    with pytest.raises(SpecError, match=r"^variability\.step\.(kind|cv): [^:]*$"):
        variability_from_dict({"step": family})
