"""A fitted tree over another one: what was measured replaces what was assumed, the rest stays."""

from __future__ import annotations

from dataclasses import replace

from .families import Constant
from .tree import PARTS, ClassVariability, Variability


def overlay(base: Variability, fitted: Variability) -> Variability:
    """`base` with every part of `fitted` that varies in its place; its stalls where `fitted` has any."""
    classes = dict(base.classes)
    for name, factors in fitted.classes.items():
        given = {part: getattr(factors, part) for part in PARTS if not isinstance(getattr(factors, part), Constant)}
        classes[name] = replace(classes.get(name, ClassVariability()), **given)
    has_step = not isinstance(fitted.step, Constant)
    return Variability(
        name=f"{base.name} with {fitted.name}",
        classes=classes,
        step=fitted.step if has_step else base.step,
        step_ar1=fitted.step_ar1 if has_step else base.step_ar1,
        stalls=fitted.stalls or base.stalls,
        source="; ".join(text for text in (base.source, fitted.source) if text),
    )
