"""Catalogues of instances and prices: one row per instance and zone, CSV (gzip too).

| column | what |
|---|---|
| gpu, gpus | name of the GPU, and how many an instance has |
| usd_h | on-demand price of an instance-hour, US dollars; blank: not offered |
| spot_usd_h | its spot price; blank: not offered. A row without any price is kept, and told as not offered |
| cloud, instance, region, zone | whose it is, its name, and where; may be blank |
| network_gbps | of an instance to others, Gbit/s; blank: not stated, and then no two of them are joined |
| vcpus, mem_gb | of an instance |
| date | of the prices: "2025-06-01", "2025-04..2025-06-05": the earliest day counts |
| currency | may say USD |
| source | of the prices |

Other columns are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.resources import files
from pathlib import Path

from ...cloud.gpu_names import device_of
from ...cloud.offers import Identity, Offer
from ...errors import DataError
from ..job.document import short
from .csv_rows import CsvRow, CsvTable
from .fields import integer_field, number_field
from .packed import read_packed_text

NEEDED = ("gpu", "gpus", "usd_h")
OPTIONAL = ("cloud", "instance", "spot_usd_h", "network_gbps", "vcpus", "mem_gb", "region", "zone", "date", "source")
WHAT = f"a catalogue in CSV with the columns {', '.join((*NEEDED, *OPTIONAL))}"
MOST_USD_PER_H = 1e6
MOST_GPUS = 1024  # of an instance
MOST_GBIT = 1e6
_DAY = re.compile(r"(?P<y>[0-9]{4})(?:-(?P<m>[0-9]{2})(?:-(?P<d>[0-9]{2}))?)?(?![0-9])")
_CURRENCY = re.compile(r"[€£¥$]|\b(?:eur|gbp|jpy|cny|inr|usd|chf)\b", re.IGNORECASE)


def read_catalogue(sources: Sequence[str | Path]) -> tuple[Offer, ...]:
    """Offers of several files; a row of a later file replaces those of the same identity in earlier ones.

    Raises:
        DataError: no file, a file cannot be read, has no rows or lacks a column, or a row says what no offer can; names the line.
    """
    if not sources:
        raise DataError(f"no catalogue. Give {WHAT}.")
    found: dict[Identity, Offer] = {}
    for source in sources:
        for offer in _read(read_packed_text(Path(source), WHAT), str(source)):
            found[offer.identity] = offer
    return tuple(found.values())


def shipped_catalogue() -> tuple[Offer, ...]:
    """The list prices that ship with the package; a few dozen typical instances."""
    text = files("prism_jax.cloud").joinpath("presets", "instances.csv").read_text(encoding="utf-8")
    return _read(text, "shipped catalogue")


def merged(offers: Iterable[Offer], *, over: Iterable[Offer]) -> tuple[Offer, ...]:
    """Offers of `over`, replaced row by row by those of the same identity, and the others after them."""
    found = {offer.identity: offer for offer in over}
    found |= {offer.identity: offer for offer in offers}
    return tuple(found.values())


def _read(text: str, name: str) -> tuple[Offer, ...]:
    table = CsvTable(text, name)
    missing = [column for column in NEEDED if column not in table.columns]
    if missing:
        raise DataError(f"{name}: the column {missing[0]} is missing. Give {WHAT}.")
    offers: dict[Identity, Offer] = {}
    for row in table.rows():
        offer = _offer(row, table.place(row.line))
        before = offers.get(offer.identity)
        if before is not None and before.place != offer.place:
            if _prices(before) != _prices(offer):
                raise DataError(
                    f"{offer.place}: the same instance in the same place as {before.place}, at another price. Keep one."
                )
            raise DataError(f"{offer.place}: the same row as {before.place}. Keep one.")
        offers[offer.identity] = offer
    if not offers:
        raise DataError(f"{name}: an empty catalogue. Give {WHAT}.")
    return tuple(offers.values())


def _prices(offer: Offer) -> tuple[float | None, float | None]:
    return offer.on_demand_usd_per_h, offer.spot_usd_per_h


def _offer(row: CsvRow, where: str) -> Offer:
    fields = row.fields
    gpu, gpus = fields["gpu"], integer_field(fields["gpus"], "gpus", where)
    if not gpu:
        raise DataError(f"{where}: gpu is blank. Name the GPU.")
    if gpus is None or not 1 <= gpus <= MOST_GPUS:
        raise DataError(f"{where}: gpus = {short(fields['gpus'])}, but it must be from 1 to {MOST_GPUS:,}")
    _check_currency(fields, where)
    on_demand, spot = (_price(fields.get(name, ""), name, where) for name in ("usd_h", "spot_usd_h"))
    gbit = number_field(fields.get("network_gbps"), "network_gbps", where)
    if gbit is not None and not 0.0 < gbit <= MOST_GBIT:
        raise DataError(f"{where}: network_gbps = {gbit:g}, but it must be above 0 and at most {MOST_GBIT:g}")
    ram_gb = number_field(fields.get("mem_gb"), "mem_gb", where)
    return Offer(
        cloud=fields.get("cloud", ""),
        instance=fields.get("instance", ""),
        gpu=gpu,
        gpus=gpus,
        region=fields.get("region", ""),
        zone=fields.get("zone", ""),
        on_demand_usd_per_h=on_demand,
        spot_usd_per_h=spot,
        network_bytes_per_s=None if gbit is None else gbit * 1e9 / 8.0,
        vcpus=integer_field(fields.get("vcpus"), "vcpus", where),
        ram_bytes=None if ram_gb is None else ram_gb * 1e9,
        day=_day(fields.get("date", ""), where),
        source=fields.get("source", ""),
        device=device_of(gpu),
        place=where,
    )


def _check_currency(fields: dict[str, str], where: str) -> None:
    told = fields.get("currency", "")
    if told and told.upper() not in ("USD", "US$", "$"):
        raise DataError(f"{where}: currency = {short(told)}, but all prices must be in one: US dollars (USD)")


def _price(text: str, field: str, where: str) -> float | None:
    if _CURRENCY.search(text):
        raise DataError(f"{where}: {field} = {short(text)}: write the number alone, in US dollars")
    price = number_field(text, field, where)
    if price is not None and not 0.0 < price <= MOST_USD_PER_H:
        raise DataError(f"{where}: {field} = {price:g}, but a price must be above 0 and at most {MOST_USD_PER_H:,.0f}")
    return price


def _day(text: str, where: str) -> date | None:
    """The earliest day that a text leaves open."""
    if not text:
        return None
    found = _DAY.match(text)
    try:
        day = date(int(found["y"]), int(found["m"] or 1), int(found["d"] or 1)) if found else None
    except ValueError:
        day = None
    if day is None:
        raise DataError(f"{where}: date = {short(text)} is no date. Write 2025-06-01.")
    return day
