"""Prices of a GPU-hour: one for all devices, or one for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import TypeAlias

from ..core.errors import DataError
from ..system import catalog
from .objective import OBJECTIVES

Prices: TypeAlias = float | Mapping[str, float] | None  # of all devices, by name of the device, or not known
FORM = "Write --price 2.5, or --price h200=2.5 for one device."


def prices_of(texts: Sequence[str]) -> Prices:
    """Prices from "2.5" or "DEVICE=2.5"; None of none.

    Raises:
        DataError: no positive number, a device that stands twice, or both forms at once.
        SpecError: unknown device.
    """
    named: dict[str, float] = {}
    for text in texts:
        device, equals, number = text.rpartition("=")
        price = _price(number, text)
        if not equals and len(texts) == 1:
            return price
        if not equals or not device.strip():
            raise DataError(f"--price: {text[:80]!r} among other prices names no device. {FORM}")
        name = catalog.device(device.strip()).name
        if name in named:
            raise DataError(f"--price: {name} has two prices. Give one.")
        named[name] = price
    return named or None


def check_price(price: float | None) -> None:
    """Refuses a price that is none.

    Raises:
        DataError: value and remedy.
    """
    if price is not None and not 0.0 < price < inf:
        raise DataError(f"--price: {price:g}, but a price must be positive and finite")


def checked(prices: Prices) -> Prices:
    """The prices, by the names that the catalogue has.

    Raises:
        DataError: one is not positive and finite.
        SpecError: unknown device.
    """
    named = prices if isinstance(prices, Mapping) else {} if prices is None else {"": prices}
    for device, price in named.items():
        if not 0.0 < price < inf:
            raise DataError(
                f"price {price:g}{f' of {device}' if device else ''}, but a price must be positive and finite"
            )
    return (
        {catalog.device(name).name: price for name, price in prices.items()} if isinstance(prices, Mapping) else prices
    )


def price_of(prices: Prices, device: str) -> float | None:
    """Price of an hour of a device of that name; None where it is not known."""
    return prices.get(device) if isinstance(prices, Mapping) else prices


def check_prices(prices: Prices, devices: Sequence[str], objective: str) -> None:
    """Refuses a price of a device that nothing runs on, and an objective in money where a device has no price.

    Args:
        devices: names of the devices of all jobs.

    Raises:
        DataError: device and remedy.
    """
    used = list(dict.fromkeys(devices))
    idle = [name for name in prices if name not in used] if isinstance(prices, Mapping) else []
    if idle:
        raise DataError(f"--price: {idle[0]} has a price, but nothing runs on it. Give the price of {', '.join(used)}.")
    unknown = [name for name in used if price_of(prices, name) is None]
    if unknown and "price_per_gpu_hour" in OBJECTIVES.named(objective).needs:
        raise DataError(
            f"objective {objective!r} needs the price of a GPU-hour of {', '.join(unknown)}: --price {unknown[0]}=2.5"
        )


def _price(number: str, text: str) -> float:
    try:
        price = float(number)
    except ValueError:
        price = 0.0
    if not 0.0 < price < inf:
        raise DataError(f"--price: {text[:80]!r}, but a price must be positive and finite. {FORM}")
    return price
