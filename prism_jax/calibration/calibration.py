"""Calibration: what measured training runs say about the cost model, as draws of its posterior; and what stays uncertain.

A knob (field of `CostCorrection`) is, on its link's scale, a sum of terms: one for all, and deviations of the device generation,
of the device, of the style of the software (fused or eager), of generation and style together, and of the framework. Members that
no run has measured deviate by a fresh draw, so that their predictions are the population's, with a wider band. On top of the
corrected cost a site (a cluster with its software as it was set up there) is off by a factor of its own, and every configuration
by another, which configurations made of the same parts share (`ResidualGP`).

The shipped calibration is `presets/calibration.json`, made by `experiments/calibrate_steps/run.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from typing import Any
from zlib import crc32

import numpy as np

from ..core.arrays import Floats
from ..core.content import ByContent
from ..core.errors import DataError
from ..cost.compute import peak_shares
from ..cost.efficiency import (
    NEUTRAL,
    OF_SECONDS,
    SHARE,
    CostCorrection,
    Efficiency,
    MeasuredTables,
    efficiency,
    generations,
)
from ..framework.base import Framework
from ..plan.plan import ParallelPlan
from ..system.catalog import load_json
from ..system.hardware import Cluster
from ..workload.base.workload import Workload
from .evidence import WidthLaw, width_law
from .key import OF_HARDWARE, STEP, UNDATED_SD, USED_OR_NOT, CalibrationKey, Level
from .surrogate import ResidualGP, sensitivities, stack, surrogate_of

KNOBS = tuple(item.name for item in fields(CostCorrection))
MISFIT = "misfit"  # the scale of a configuration's own factor, which kinds of model deviate in as they do in knobs
FORMAT = 3  # 3: the share of the window in which communication hides, not of the communication
DEGREES = 4.0  # of freedom of a configuration's own deviation, a Student-t
SITE_DEGREES = 4.0  # the same of a site's: software that nobody has seen is off by a multiple now and then


def linked(knob: str, value: Any, xp: Any = np) -> Any:
    """Knob from its value on the link's scale: a share from its logit, everything else from its logarithm."""
    return 1.0 / (1.0 + xp.exp(-value)) if knob == SHARE else xp.exp(value)


@dataclass(frozen=True, eq=False)
class Term(ByContent):
    """Deviations at one level of one knob, or of `MISFIT`.

    Attributes:
        sd: prior standard deviation of a member, on the link's scale; what is assumed of a member never seen.
        names: members that were seen.
        value: [draw, member]
    """

    knob: str
    level: str
    sd: float
    names: tuple[str, ...]
    value: Floats


@dataclass(frozen=True, eq=False)
class Calibration(ByContent):
    """Draws of a posterior.

    Attributes:
        centre: knob -> value of its link where all deviations are zero.
        terms: deviations.
        site_sd: [draw] scale of the log factor of a site, a Student-t.
        misfit: [draw] median over sites of the scale of a configuration's own log factor.
        misfit_sd: [draw] spread of that scale between sites, as a standard deviation of its logarithm.
        expert_misfit: how much wider it is for models with experts.
        site: [draw] log factor of this site; None where the site was not measured.
        nearby: measured runs of the site, whose own deviations carry over to jobs like them; None: none are known.
        record: how it was made.
        measured: tables measured on this hardware, in place of presets and of what they were off by; None: none.
        width: how much wider what it leaves open is for the evidence near a job; None: as it is. A site that was measured
            itself is as sure as its runs make it.
    """

    centre: Mapping[str, float]
    terms: tuple[Term, ...]
    site_sd: Floats
    misfit: Floats
    misfit_sd: Floats
    expert_misfit: float
    site: Floats | None = None
    nearby: ResidualGP | None = None
    record: Mapping[str, Any] | None = None
    measured: MeasuredTables | None = None
    width: WidthLaw | None = None

    @property
    def n_draw(self) -> int:
        """Number of posterior draws."""
        return len(self.site_sd)

    def corrections(self, setting: CalibrationKey, seed: int = 0) -> CostCorrection:
        """Draws of the correction: every field an array [draw]; settings that share an unseen member share its draws."""
        return self._linked(self._summed(setting, seed), setting)

    def mean(self, setting: CalibrationKey) -> dict[str, float]:
        """Knob -> posterior mean on the link's scale, where members that were not seen do not deviate."""
        return {knob: float(np.asarray(value).mean()) for knob, value in self._summed(setting, None).items()}

    def correction(self, setting: CalibrationKey) -> CostCorrection:
        """Correction at the posterior mean of the link's scale: what predictions use; cached."""
        return self._usual(setting)

    @cached_property
    def _usual(self) -> Callable[[CalibrationKey], CostCorrection]:
        def made(setting: CalibrationKey) -> CostCorrection:
            correction = self._linked(self.mean(setting), setting)
            return CostCorrection(**{name: float(getattr(correction, name)) for name in KNOBS})

        return cache(made)

    def constants(self, generation: str) -> Efficiency:
        """The kernel constants of a generation, as measured where they were, without correction.

        Raises:
            SpecError: no constants for the generation.
        """
        preset = efficiency(generation)
        return preset if self.measured is None else self.measured.mean.constants_of(preset)

    def efficiency(self, setting: CalibrationKey) -> Efficiency:
        """The kernel constants of its generation with that correction; cached.

        Raises:
            SpecError: no constants for the generation.
        """
        return self._corrected(setting)

    @cached_property
    def _corrected(self) -> Callable[[CalibrationKey], Efficiency]:
        return cache(lambda setting: replace(self.constants(setting.generation), correction=self.correction(setting)))

    def efficiency_of(
        self, model: Workload, cluster: Cluster, plan: ParallelPlan, framework: str | Framework
    ) -> Efficiency:
        """Efficiency for one job, with what carries over from measured runs like it.

        Raises:
            SpecError: no constants for the device.
            PlanError: `layer_split` does not fit.
        """
        eff = self.efficiency(CalibrationKey.of(cluster.device, framework, plan.software, model))
        if self.nearby is None:
            return eff
        carried = self.nearby.log_residual(
            sensitivities(stack([surrogate_of(model, cluster, plan, eff)]), eff.correction)
        )
        return replace(eff, correction=eff.correction.scaled(float(np.exp(carried[0]))))

    def deviations(self, setting: CalibrationKey, has_experts: bool, seed: int = 0, n_repeat: int = 1) -> Floats:
        """[n_repeat * draw] log factors from the corrected cost to what is measured: of the site, and of the configuration."""
        rng = np.random.default_rng([seed, 1])
        site, scale = self._site_and_scale(has_experts, rng, n_repeat)
        scale = scale * np.tile(self._wider(setting, seed), n_repeat)
        return site + scale * rng.standard_t(DEGREES, size=n_repeat * self.n_draw)

    def joint_deviations(
        self, settings: Sequence[CalibrationKey], correlation: Floats, has_experts: Sequence[bool], seed: int = 0
    ) -> Floats:
        """[draw, row] the same of configurations of one site whose own deviations have that `correlation` [row, row]."""
        rng = np.random.default_rng([seed, 2])
        site, scale = self._site_and_scale(False, rng)
        value, vector = np.linalg.eigh(correlation)
        normal = rng.normal(size=(self.n_draw, len(value))) @ (vector * np.sqrt(np.maximum(value, 0.0))).T
        own = normal / np.sqrt(rng.chisquare(DEGREES, size=(self.n_draw, 1)) / DEGREES)
        wider = np.stack([self._wider(setting, seed) for setting in settings], axis=-1)
        wider = wider * np.where(has_experts, self.expert_misfit, 1.0)
        return site[:, None] + scale[:, None] * wider * own

    def _wider(self, setting: CalibrationKey, seed: int) -> Floats:
        """[draw] how much wider configurations of its kind of model deviate; 1 of transformers."""
        own = setting.members()
        spreads = (term for term in self.terms if term.knob == MISFIT)
        return np.exp(sum((self._of(own[term.level], term, seed) for term in spreads), np.zeros(self.n_draw)))

    def _site_and_scale(self, has_experts: bool, rng: np.random.Generator, n_repeat: int = 1) -> tuple[Floats, Floats]:
        """([n_repeat * draw], the same) log factor of the site, and scale of a configuration's own."""
        shape = (n_repeat, self.n_draw)
        site = rng.standard_t(SITE_DEGREES, size=shape) * self.site_sd if self.site is None else self.site
        site = np.broadcast_to(site, shape).ravel()
        scale = (self.misfit * np.exp(self.misfit_sd * rng.normal(size=shape))).ravel()
        return site, scale * (self.expert_misfit if has_experts else 1.0)

    @cached_property
    def _frameworks(self) -> tuple[str, ...]:
        """Frameworks with measured runs."""
        return tuple(sorted({name for term in self.terms if term.level == Level.FRAMEWORK for name in term.names}))

    def _summed(self, setting: CalibrationKey, seed: int | None) -> dict[str, Floats]:
        """Knob -> [draw] on the link's scale; without `seed` unseen members do not deviate.

        A framework that is not stated is one of those that were measured: another one in every draw, their mean without `seed`.
        """
        if setting.framework or setting.style or not self._frameworks:
            return self._summed_of(setting, seed)
        each = [self._summed_of(setting._replace(framework=name, style=None), seed) for name in self._frameworks]
        stacked = {knob: np.stack([own[knob] for own in each]) for knob in KNOBS}
        if seed is None:
            return {knob: value.mean(axis=0) for knob, value in stacked.items()}
        which = np.random.default_rng([seed, 5]).integers(len(each), size=self.n_draw)
        return {knob: value[which, np.arange(self.n_draw)] for knob, value in stacked.items()}

    def _summed_of(self, setting: CalibrationKey, seed: int | None) -> dict[str, Floats]:
        """Knob -> [draw] on the link's scale, for a framework that is stated."""
        own = setting.members()
        total: dict[str, Any] = {knob: np.full(self.n_draw, self.centre[knob]) for knob in KNOBS}
        total[STEP] = np.zeros(self.n_draw)
        replaced = frozenset() if self.measured is None else self.measured.knobs
        for term in self.terms:
            if term.knob in total and not (term.knob in replaced and term.level in OF_HARDWARE):
                per = self._years(setting, seed) if term.level == Level.DATE else 1.0
                total[term.knob] = total[term.knob] + per * self._of(own[term.level], term, seed)
        whole = total.pop(STEP)
        return total | {knob: total[knob] + whole for knob in OF_SECONDS}

    def _years(self, setting: CalibrationKey, seed: int | None) -> Floats | float:
        """[draw] of the software; one number without `seed`, or where its date is stated."""
        if seed is None or setting.software.date or self.site is not None:  # a site's runs had the date that they had
            return setting.years
        return setting.years + UNDATED_SD * np.random.default_rng([seed, 6]).normal(size=self.n_draw)

    def _of(self, member: str, term: Term, seed: int | None) -> Floats | float:
        """[draw] what a member deviates by: one never seen by a fresh draw, or by nothing without `seed`."""
        if member in term.names:
            return term.value[:, term.names.index(member)]
        if seed is None or (not member and term.level in USED_OR_NOT):
            return 0.0
        rng = np.random.default_rng([seed, crc32(f"{term.knob} {term.level} {member}".encode())])
        return term.sd * rng.normal(size=self.n_draw)

    def _linked(self, summed: Mapping[str, Any], setting: CalibrationKey) -> CostCorrection:
        """The correction of these sums, under which no kernel runs above the peak of the device."""
        found = CostCorrection(**{knob: linked(knob, value) for knob, value in summed.items()})
        if setting.generation not in generations():
            return found
        products, narrow, attention = peak_shares(setting.device, self.constants(setting.generation))
        gemm = np.maximum(found.gemm, products)
        return replace(
            found,
            gemm=gemm,
            fp8=np.maximum(found.fp8, narrow / gemm),
            attention=np.maximum(found.attention, attention),
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, four digits; what the preset holds."""
        return {
            "format": FORMAT,
            "centre": dict(self.centre),
            "terms": [
                {"knob": t.knob, "level": t.level, "sd": t.sd, "names": list(t.names), "value": _short(t.value)}
                for t in self.terms
            ],
            "site_sd": _short(self.site_sd),
            "misfit": _short(self.misfit),
            "misfit_sd": _short(self.misfit_sd),
            "expert_misfit": self.expert_misfit,
            "site": None if self.site is None else _short(self.site),
            "record": dict(self.record or {}),
        }


def calibration_from(plain: Mapping[str, Any]) -> Calibration:
    """The calibration that `as_dict` wrote.

    Raises:
        DataError: not one, or of another version.
    """
    try:
        if plain["format"] != FORMAT:
            raise DataError(
                f"calibration of format {plain['format']}, but this version reads {FORMAT}. Calibrate again."
            )
        terms = tuple(
            Term(t["knob"], t["level"], float(t["sd"]), tuple(t["names"]), np.array(t["value"], dtype=float))
            for t in plain["terms"]
        )
        return Calibration(
            centre={knob: float(plain["centre"][knob]) for knob in KNOBS},
            terms=terms,
            site_sd=np.array(plain["site_sd"], dtype=float),
            misfit=np.array(plain["misfit"], dtype=float),
            misfit_sd=np.array(plain["misfit_sd"], dtype=float),
            expert_misfit=float(plain["expert_misfit"]),
            site=None if plain["site"] is None else np.array(plain["site"], dtype=float),
            record=plain["record"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"not a calibration of the cost model ({type(error).__name__}: {error})") from None


@cache
def shipped() -> Calibration:
    """The calibration of this package."""
    return replace(calibration_from(load_json(__name__.rpartition(".")[0], "calibration.json")), width=width_law())


def uncalibrated() -> Calibration:
    """Kernels and links alone: one draw, no deviation."""
    zero = np.zeros(1)
    centre = {knob: 40.0 if knob == SHARE else float(np.log(max(getattr(NEUTRAL, knob), 1e-12))) for knob in KNOBS}
    return Calibration(centre, (), zero, zero, zero, 1.0)


def _short(values: Floats) -> Any:
    return np.round(values, 4).tolist()
