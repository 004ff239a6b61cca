"""Catalogues: rows of a user over those before, and what is wrong is named."""

import gzip
from datetime import date
from pathlib import Path

import pytest

from prism_jax.cloud.offers import merged, read_catalogue, read_catalogues, shipped_catalogue
from prism_jax.core.errors import DataError

HEAD = "cloud,date,instance,gpu,gpus,vcpus,mem_gb,network_gbps,region,zone,usd_h,spot_usd_h,source"
ROW = "aws,2025-04..2025-06-05,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az1,32.77,9.5,list"
SHARED = Path("../shared/data/cloud/instance_catalogue.csv.gz")


def read(tmp_path, *rows, head=HEAD):
    file = tmp_path / "catalogue.csv"
    file.write_text("\n".join((head, *rows)) + "\n")
    return read_catalogue([file])


def changed(**fields):
    values = dict(zip(HEAD.split(","), ROW.split(","), strict=True)) | fields
    return ",".join(values.values())


def test_a_row(tmp_path):
    (offer,) = read(tmp_path, ROW)
    assert offer.device == "a100-40gb"
    assert offer.gpus == 8
    assert offer.network_bytes_per_s == 50e9
    assert offer.ram_bytes == 1152e9
    assert offer.day == date(2025, 4, 1)
    assert (offer.on_demand_usd_per_h, offer.spot_usd_per_h) == (32.77, 9.5)
    assert offer.where == "use1-az1"


def test_blank_prices_are_no_offer(tmp_path):
    (offer,) = read(tmp_path, changed(usd_h="", spot_usd_h=""))
    assert offer.on_demand_usd_per_h is None
    assert offer.spot_usd_per_h is None


def test_later_files_replace_rows_of_earlier_ones(tmp_path):
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    files[0].write_text(f"{HEAD}\n{ROW}\n{changed(zone='use1-az2')}\n")
    files[1].write_text(f"{HEAD}\n{changed(usd_h='20')}\n")
    found = read_catalogue(files)
    assert [offer.on_demand_usd_per_h for offer in found] == [20.0, 32.77]


def test_gzip(tmp_path):
    file = tmp_path / "c.csv.gz"
    file.write_bytes(gzip.compress(f"{HEAD}\n{ROW}\n".encode()))
    assert len(read_catalogue([file])) == 1


def test_values_that_say_their_units_and_prices_in_dollars(tmp_path):
    head = "Name;API Name;Instance Memory;vCPUs;GPU model;GPUs;Network Performance;Linux On Demand cost;Linux Spot Minimum cost"
    offers = read(
        tmp_path,
        "P5;p5.48xlarge;2048 GiB;192 vCPUs;NVIDIA H100;8;3200 Gigabit;$98.3200 hourly;unavailable",
        "M5;m5.large;8 GiB;2 vCPUs;N/A;0;Up to 10 Gigabit;$0.096 hourly;$0.05",
        "A3;a3-megagpu-8g;1,872 GB;208;H100-MEGA;8;1800;92.2;US$25/h",
        head=head,
    )
    assert [offer.instance for offer in offers] == ["p5.48xlarge", "a3-megagpu-8g"]
    first, second = offers
    assert (first.device, second.device) == ("h100-sxm", "h100-sxm")
    assert (first.ram_bytes, second.ram_bytes) == (pytest.approx(2048 * 2**30), 1872e9)
    assert (first.network_bytes_per_s, first.vcpus) == (400e9, 192)
    assert (first.on_demand_usd_per_h, first.spot_usd_per_h) == (98.32, None)
    assert (second.on_demand_usd_per_h, second.spot_usd_per_h) == (92.2, 25.0)


WRONG = {
    "negative price": (changed(usd_h="-1"), "usd_h"),
    "no price at all": (changed(usd_h="0"), "above 0"),
    "a price that is no number": (changed(usd_h="abc"), "usd_h"),
    "infinite price": (changed(usd_h="inf"), "usd_h"),
    "NaN price": (changed(spot_usd_h="nan"), "spot_usd_h"),
    "absurd price": (changed(usd_h="1e9"), "at most"),
    "negative spot price": (changed(spot_usd_h="-.5"), "spot_usd_h"),
    "another currency in a price": (changed(usd_h="3.06 EUR"), "US dollars"),
    "a sign of money": (changed(usd_h="€3"), "US dollars"),
    "no GPU": (changed(gpu=""), "gpu is blank"),
    "no GPUs": (changed(gpus="0"), "gpus"),
    "half a GPU": (changed(gpus="1.5"), "gpus"),
    "too many GPUs": (changed(gpus="100000"), "gpus"),
    "no network": (changed(network_gbps="0"), "network_gbps"),
    "negative network": (changed(network_gbps="-10"), "network_gbps"),
    "negative memory": (changed(mem_gb="-1"), "mem_gb"),
    "half a CPU": (changed(vcpus="0.5"), "vcpus"),
    "no date": (changed(date="yesterday"), "date"),
    "a date that is none": (changed(date="2025-13-01"), "date"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_no_offer_can_say_is_named_with_its_line(tmp_path, kind):
    row, told = WRONG[kind]
    with pytest.raises(DataError, match=told) as error:
        read(tmp_path, changed(zone="use1-az9"), row)
    assert "line 3" in str(error.value)


def test_rows_there_twice(tmp_path):
    with pytest.raises(DataError, match="same row as"):
        read(tmp_path, ROW, ROW)
    with pytest.raises(DataError, match="at another price"):
        read(tmp_path, ROW, changed(usd_h="31"))


def test_mixed_currencies(tmp_path):
    with pytest.raises(DataError, match="currency"):
        read(tmp_path, f"{ROW},EUR", head=f"{HEAD},currency")
    assert len(read(tmp_path, f"{ROW},USD", head=f"{HEAD},currency")) == 1


def test_empty_catalogues(tmp_path):
    with pytest.raises(DataError, match="empty catalogue"):
        read(tmp_path)
    with pytest.raises(DataError, match="missing"):
        read(tmp_path, "a100", head="gpu")
    with pytest.raises(DataError, match="no catalogue"):
        read_catalogue([])


def test_machines_without_a_name_are_told_apart_by_price(tmp_path):
    assert len(read(tmp_path, changed(instance=""), changed(instance="", usd_h="30"))) == 2


def test_what_ships_has_dates_sources_and_devices():
    offers = shipped_catalogue()
    assert len(offers) >= 20
    assert all(offer.day and offer.source and offer.device for offer in offers)
    assert all((offer.spot_usd_per_h or 0.0) < (offer.on_demand_usd_per_h or 0.0) for offer in offers)


def test_rows_of_a_user_over_what_ships():
    offers = shipped_catalogue()
    assert merged((), over=offers) == offers
    assert len(merged(offers[:3], over=offers)) == len(offers)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared catalogue is not here")
def test_the_gathered_catalogue_is_read_as_it_is():
    offers = read_catalogue([SHARED])
    assert len(offers) == 701
    assert sum(bool(offer.device) for offer in offers) > 600


SKYPILOT = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n"
    "cpu_4x,,,4.0,16.0,0.2,us-east-1,,\n"
    "gpu_8x_h100,H100,8.0,208.0,1800.0,23.92,us-east-1,\"{'Gpus': [{'Name': 'H100', 'Count': 8.0}]}\",\n"
    "gpu_1x_mig,A100,0.5,8,64,0.5,us-east-1,,\n"
    "gpu_8x_a100,A100-80GB,8.0,240.0,1800.0,14.32,us-east-1,,7.1\n"
)


def test_a_catalogue_of_skypilot_is_read_and_its_odd_rows_are_told(tmp_path: Path):
    file = tmp_path / "lambda.csv"
    file.write_text(SKYPILOT)
    offers, notes = read_catalogues([file])
    assert [(one.instance, one.gpus, one.on_demand_usd_per_h, one.spot_usd_per_h) for one in offers] == [
        ("gpu_8x_h100", 8, 23.92, None),
        ("gpu_8x_a100", 8, 14.32, 7.1),
    ]
    assert offers[0].ram_bytes == pytest.approx(1800 * 2**30)
    assert any("1 row without a GPU" in note for note in notes)
    assert any("1 row is left out: line 4: gpus = '0.5'" in note for note in notes)


def test_columns_of_a_catalogue_may_be_said(tmp_path: Path):
    file = tmp_path / "mine.csv"
    file.write_text("was,wieviele,preis\nH100,8,20\n")
    (offer,) = read_catalogue([file], {"was": "gpu", "wieviele": "gpus", "usd_h": "preis"})
    assert (offer.gpu, offer.gpus, offer.on_demand_usd_per_h) == ("H100", 8, 20.0)
    with pytest.raises(DataError, match=r"the column gpu is missing.*--map COLUMN=gpu says which it is"):
        read_catalogue([file])
    with pytest.raises(DataError, match="neither is a field"):
        read_catalogue([file], {"was": "wie"})
    with pytest.raises(DataError, match="no column 'xyz'"):
        read_catalogue([file], {"xyz": "gpu"})
