"""Reads offers, kinds of instances in a zone with their hourly price on a date, from catalogues: CSV (gzip too).

There is one row per instance and zone. GPUs by name ("A100 (40 GB)", "L4-24GB", "K80") are matched to preset devices.

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

Columns are recognised by other common names, too, with their units (`InstanceType`, `AcceleratorName`, `AcceleratorCount`,
`MemoryGiB`, `Price`, `SpotPrice` of SkyPilot's catalogues; `API Name`, `GPUs`, `Linux On Demand cost` of lists of AWS's), or as
`--map COLUMN=FIELD` says. Values may say their unit ("$98.32 hourly", "2048 GiB", "3200 Gigabit"). Other columns are passed over,
and so are rows without a GPU; rows that cannot be used are left out, counted and named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ..core.errors import DataError
from ..system import catalog
from ..tables.column_map import ColumnOf, columns_of
from ..tables.csv_rows import BadRows, CsvTable, integer_field, number_field, read_packed_text, whole_number
from ..tables.document import short

_IN_BRACKETS = re.compile(r"^(?P<name>.*?)\s*\((?P<gb>[0-9]+)\s*GB\)$", re.IGNORECASE)
_WITH_SIZE = re.compile(r"^(?P<name>.*\S)[-\s]+[0-9]+\s*GB$", re.IGNORECASE)
_FILLERS = re.compile(r"\s+(?:HGX|SXM[0-9]?)\b", re.IGNORECASE)


@cache
def device_of(gpu: str) -> str:
    """Name of the preset device; empty where none is meant for sure.

    Notes: the size of the memory is part of the name where there are devices of several sizes; it is left out where the device
    with it is not known but the one without is, and has that size.
    """
    text = _FILLERS.sub("", gpu.strip())
    brackets = _IN_BRACKETS.match(text)
    tries = [f"{brackets['name']}-{brackets['gb']}gb", brackets["name"]] if brackets else [text]
    sized = _WITH_SIZE.match(tries[0])
    if sized:
        tries.append(sized["name"])
    size = re.search(r"([0-9]+)\s*gb\)?$", text, re.IGNORECASE)
    for one in tries:
        found = catalog.known_device(one)
        if found and (size is None or _has_size(found, float(size[1]))):
            return found
    return ""


def _has_size(device: str, gb: float) -> bool:
    """Vendors round 79.6 GiB to 80 and 139.8 to 141."""
    return abs(catalog.device(device).hbm_bytes / (gb * 1e9) - 1.0) < 0.12


class Identity(NamedTuple):
    """Key by which offers are told apart: rows with the same key are about the same thing.

    Attributes:
        unnamed_usd_per_h: the on-demand price where the instance has no name: vendors list such machines by price alone.
    """

    cloud: str
    instance: str
    gpu: str
    gpus: int
    vcpus: int | None
    ram_bytes: float | None
    region: str
    zone: str
    unnamed_usd_per_h: float | None


@dataclass(frozen=True)
class Offer:
    """One row of a catalogue.

    Attributes:
        cloud, instance: of the vendor, and its name for the machine; the name may be empty.
        gpu, gpus: as the row names the GPU, and how many an instance has.
        region, zone: empty where the price is that of all regions or zones.
        on_demand_usd_per_h, spot_usd_per_h: of one instance; None: not offered.
        network_bytes_per_s: of one instance to others, nominal; None: not stated.
        vcpus, ram_bytes: of one instance; None: not stated.
        day: on which the prices were those, the earliest that the row leaves open; None: not stated.
        source: of the prices.
        device: name of the preset device that `gpu` means; empty: none does.
        place: file and line, for messages.
    """

    cloud: str
    instance: str
    gpu: str
    gpus: int
    region: str = ""
    zone: str = ""
    on_demand_usd_per_h: float | None = None
    spot_usd_per_h: float | None = None
    network_bytes_per_s: float | None = None
    vcpus: int | None = None
    ram_bytes: float | None = None
    day: date | None = None
    source: str = ""
    device: str = ""
    place: str = ""

    @property
    def identity(self) -> Identity:
        """Key of the offers that a user's own row replaces."""
        price = None if self.instance else self.on_demand_usd_per_h
        size = (self.gpus, self.vcpus, self.ram_bytes)
        return Identity(self.cloud, self.instance, self.gpu, *size, self.region, self.zone, price)

    @property
    def title(self) -> str:
        """The machine in a report: "p5.48xlarge", or "8 x A100 (cudo compute)"."""
        return self.instance or f"{self.gpus} x {self.gpu} ({self.cloud})"

    @property
    def where(self) -> str:
        """Zone, or region, or cloud: the narrowest that is stated."""
        return self.zone or self.region or self.cloud


NAMES = {
    "gpu": ("gpu", "accelerator_name", "accelerator", "gpu_name", "gpu_type", "gpu_model", "accelerator_type"),
    "gpus": ("gpus", "accelerator_count", "gpu_count", "num_gpus", "n_gpus", "gpus_per_instance", "gpu_num"),
    "usd_h": (
        "usd_h", "price", "on_demand_price", "on_demand", "on_demand_usd", "price_per_hour", "hourly_price",
        "hourly_rate", "usd_per_hour", "usd_per", "cost_per_hour", "price_hour", "price_usd_per_hour",
        "on_demand_usd_h", "on_demand_cost", "linux_on_demand_cost",
    ),
    "spot_usd_h": (
        "spot_usd_h", "spot_price", "spot", "spot_usd", "spot_price_per_hour", "spot_usd_per_hour",
        "spot_hourly_price", "preemptible_price", "spot_cost", "linux_spot_minimum_cost",
    ),
    "cloud": ("cloud", "provider", "vendor", "cloud_provider"),
    "instance": (
        "instance", "instance_type", "machine_type", "instance_name", "vm_type", "vm_size", "sku", "flavor",
        "api_name", "name",
    ),
    "network_gbps": ("network", "network_gbps", "bandwidth", "network_bandwidth", "network_performance", "net"),
    "vcpus": ("vcpus", "vcpu", "cpus", "cpu", "cpu_count", "num_cpus", "n_cpus"),
    "mem_gb": ("mem", "memory", "ram", "memory_size", "instance_memory"),
    "region": ("region", "location", "region_name"),
    "zone": ("zone", "availability_zone", "az"),
    "date": ("date", "day", "updated", "updated_at", "last_updated"),
    "source": ("source", "url"),
    "currency": ("currency",),
}  # fmt: skip
GIB = {"gib": 2.0**30 / 1e9, "mib": 2.0**20 / 1e9, "mb": 1e-3, "tb": 1e3, "tib": 2.0**40 / 1e9}  # in GB
NEEDED = ("gpu", "gpus", "usd_h")
OPTIONAL = ("cloud", "instance", "spot_usd_h", "network_gbps", "vcpus", "mem_gb", "region", "zone", "date", "source")
WHAT = f"a catalogue in CSV with the columns {', '.join((*NEEDED, *OPTIONAL))}"
MOST_NAMED = 12  # columns in a message
MOST_USD_PER_H = 1e6
MOST_GPUS = 1024  # of an instance
MOST_GBIT = 1e6
NOTHING = ("n/a", "na", "-", "none", "unavailable", "not available")  # what tables write for nothing
_WITH_UNIT = re.compile(
    r"(?:up to )?(?P<number>[0-9][0-9,.]{0,20}) ?(?P<unit>gi?b|mi?b|ti?b|gigabit|gbps|gbit/s|vcpus?)", re.IGNORECASE
)
_DOLLARS = re.compile(
    r"(?:us)?\$ ?(?P<number>[0-9][0-9,.]{0,20})(?: ?(?:/|per |an? )? ?(?:h|hr|hour|hourly))?", re.IGNORECASE
)
_DAY = re.compile(r"(?P<y>[0-9]{4})(?:-(?P<m>[0-9]{2})(?:-(?P<d>[0-9]{2}))?)?(?![0-9])")
_CURRENCY = re.compile(r"[€£¥$]|\b(?:eur|gbp|jpy|cny|inr|usd|chf)\b", re.IGNORECASE)


def read_catalogue(sources: Sequence[str | Path], columns: Mapping[str, str] | None = None) -> tuple[Offer, ...]:
    """Offers of several files; a row of a later file replaces those of the same identity in earlier ones.

    Args:
        columns: which column is which field, where its name does not say it.

    Raises:
        DataError: no file, a file cannot be read, has no rows or lacks a column, or half of its rows are bad; names the line.
    """
    return read_catalogues(sources, columns)[0]


def read_catalogues(
    sources: Sequence[str | Path], columns: Mapping[str, str] | None = None
) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    """Reads several catalogues, and returns notes on rows that are left out."""
    if not sources:
        raise DataError(f"no catalogue. Give {WHAT}.")
    found: dict[Identity, Offer] = {}
    notes: list[str] = []
    for source in sources:
        offers, more = _read(read_packed_text(Path(source), WHAT), str(source), columns or {})
        found |= {offer.identity: offer for offer in offers}
        notes += [f"{Path(source).name}: {note}" for note in more]
    return tuple(found.values()), tuple(notes)


def shipped_catalogue() -> tuple[Offer, ...]:
    """The list prices that ship with the package; a few dozen typical instances."""
    text = files("prism_jax.cloud").joinpath("presets", "instances.csv").read_text(encoding="utf-8")
    return _read(text, "shipped catalogue", {})[0]


def merged(offers: Iterable[Offer], *, over: Iterable[Offer]) -> tuple[Offer, ...]:
    """Offers of `over`, replaced row by row by those of the same identity, and the others after them."""
    found = {offer.identity: offer for offer in over}
    found |= {offer.identity: offer for offer in offers}
    return tuple(found.values())


def _read(text: str, name: str, said: Mapping[str, str]) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    table = CsvTable(text, name)
    columns = columns_of(table.columns, NAMES, said, name)
    missing = [field for field in NEEDED if field not in columns]
    if missing:
        there = ", ".join(short(column) for column in table.columns[:MOST_NAMED])
        raise DataError(
            f"{name}: the column {missing[0]} is missing. Give {WHAT}. There are {there}; --map COLUMN={missing[0]} says which "
            "it is."
        )
    offers: dict[Identity, Offer] = {}
    bad, n_without, n_rows = BadRows(name), 0, 0
    for row in table.rows(bad):
        fields = {field: row.fields[one.column] for field, one in columns.items()}
        n_rows += 1
        if fields["gpu"].lower() in ("", *NOTHING) and fields["gpus"] in ("", "0", "0.0"):
            n_without += 1
            continue
        try:
            _add(offers, _offer(fields, columns, table.place(row.line)))
        except DataError as error:
            bad.add(error)
    bad.check(len(offers))
    if not offers:
        raise DataError(f"{name}: an empty catalogue{' of GPUs' * bool(n_rows)}. Give {WHAT}.")
    without = (f"{n_without:,} row{'s' * (n_without > 1)} without a GPU passed over",) if n_without else ()
    return tuple(offers.values()), (*bad.notes, *without)


def _add(offers: dict[Identity, Offer], offer: Offer) -> None:
    before = offers.setdefault(offer.identity, offer)
    if before is offer:
        return
    if _prices(before) != _prices(offer):
        raise DataError(
            f"{offer.place}: the same instance in the same place as {before.place}, at another price. Keep one."
        )
    raise DataError(f"{offer.place}: the same row as {before.place}. Keep one.")


def _prices(offer: Offer) -> tuple[float | None, float | None]:
    return offer.on_demand_usd_per_h, offer.spot_usd_per_h


def _offer(fields: Mapping[str, str], columns: Mapping[str, ColumnOf], where: str) -> Offer:
    gpu, gpus = fields["gpu"], integer_field(fields["gpus"], "gpus", where)
    if not gpu:
        raise DataError(f"{where}: gpu is blank. Name the GPU.")
    if gpus is None or not 1 <= gpus <= MOST_GPUS:
        raise DataError(f"{where}: gpus = {short(fields['gpus'])}, but it must be from 1 to {MOST_GPUS:,}")
    _check_currency(fields, where)
    on_demand, spot = (_price(fields.get(name, ""), name, where) for name in ("usd_h", "spot_usd_h"))
    gbit = _amount(fields, "network_gbps", columns, where)
    if gbit is not None and not 0.0 < gbit <= MOST_GBIT:
        raise DataError(f"{where}: network_gbps = {gbit:g}, but it must be above 0 and at most {MOST_GBIT:g}")
    ram_gb = _amount(fields, "mem_gb", columns, where)
    vcpus = _amount(fields, "vcpus", columns, where)
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
        vcpus=None if vcpus is None else whole_number(vcpus, fields["vcpus"], None, f"{where}: vcpus"),
        ram_bytes=None if ram_gb is None else ram_gb * 1e9,
        day=_day(fields.get("date", ""), where),
        source=fields.get("source", ""),
        device=device_of(gpu),
        place=where,
    )


def _check_currency(fields: Mapping[str, str], where: str) -> None:
    told = fields.get("currency", "")
    if told and told.upper() not in ("USD", "US$", "$"):
        raise DataError(f"{where}: currency = {short(told)}, but all prices must be in one: US dollars (USD)")


def _amount(fields: Mapping[str, str], field: str, columns: Mapping[str, ColumnOf], where: str) -> float | None:
    """A number in the unit that the value says ("2048 GiB", "Up to 100 Gigabit"), else its column, else the field's."""
    text, written = fields.get(field, ""), None
    if field in columns and (written := _WITH_UNIT.fullmatch(text)):
        text = written["number"].replace(",", "")
    number = number_field(None if text.lower() in NOTHING else text, field, where)
    unit = written["unit"].lower() if written else columns[field].unit if field in columns else ""
    return None if number is None else number * GIB.get(unit, 1.0)


def _price(text: str, field: str, where: str) -> float | None:
    dollars = _DOLLARS.fullmatch(text)
    text = dollars["number"].replace(",", "") if dollars else "" if text.lower() in NOTHING else text
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
