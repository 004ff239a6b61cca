"""Kinds of configuration files, told apart by their keys: `CARRIERS` lists them, and the first that knows a document reads it.

A carrier knows its files by keys that no other has, and gives a head: names and values with their lines, as a log would print
them, and the trainer whose reader makes a job of it.
"""

from __future__ import annotations

from dataclasses import replace

from .config_files import Carrier, ConfigFiles, NoHeadError
from .gpt_neox import NEOX
from .head import Head
from .hf_configs import HF_CARRIERS
from .maxtext import MAXTEXT_CARRIER
from .megatron_files import ANY_MEGATRON, MEGATRON_CARRIERS
from .nanotron import NANOTRON_CARRIER
from .titan_config import TITAN_CARRIER
from .verl import VERL_CARRIERS

CARRIERS: tuple[Carrier, ...] = (
    *VERL_CARRIERS,
    *MEGATRON_CARRIERS,
    NANOTRON_CARRIER,
    TITAN_CARRIER,
    MAXTEXT_CARRIER,
    NEOX,
    *HF_CARRIERS,
    ANY_MEGATRON,
)


def head_of_config(files: ConfigFiles) -> Head:
    """Reads the job that configuration files state.

    Raises:
        NoHeadError: no carrier knows the document.
        ConfigError: a document cannot be read.
    """
    every = (files.main, *files.others)
    for carrier in CARRIERS:
        for one in every:
            if carrier.is_mine(one):
                rest = tuple(other for other in every if other is not one)
                return carrier.read(replace(files, main=one, others=rest))
    known = ", ".join(carrier.name for carrier in CARRIERS)
    raise NoHeadError(f"{files.main.name}: no configuration of a trainer that is known here ({known})")
