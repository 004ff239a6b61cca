"""Trainers whose logs state their jobs; a new one is a file with its `LogTrainer` and a line in `TRAINERS`.

The lines and sentences of the older ones stand together in `said` and `config_blocks`, since trainers that build on each other
share them.
"""

from __future__ import annotations

from . import config_blocks, said
from .config_blocks import BlockOpener
from .hugging_face import hugging_face_job
from .megatron_files import NEMO_TRAINER
from .nanotron import nanotron_job
from .said import Begin, LogTrainer, Said
from .small_trainers import LITGPT_TRAINER, maxtext_job, modded_job, nanochat_job
from .torchtitan import torchtitan_job
from .verl import verl_job

TRAINERS: tuple[LogTrainer, ...] = (
    LogTrainer(said.TITAN, torchtitan_job),
    LogTrainer(said.HF, hugging_face_job),
    LogTrainer(said.SWIFT, hugging_face_job),
    LogTrainer(said.LLAMA_FACTORY, hugging_face_job),
    LogTrainer(said.AXOLOTL, hugging_face_job),
    LogTrainer(said.OPENRLHF, hugging_face_job),
    LogTrainer(said.VERL, verl_job),
    LogTrainer(said.MAXTEXT, maxtext_job),
    LogTrainer(said.NANOCHAT, nanochat_job),
    LogTrainer(said.NANOTRON, nanotron_job),
    LogTrainer(said.MODDED, modded_job),
    NEMO_TRAINER,
    LITGPT_TRAINER,
)
BEGINS: tuple[Begin, ...] = (*said.BEGINS, *(one for trainer in TRAINERS for one in trainer.begins))
SAID: tuple[Said, ...] = (*said.SAID, *(one for trainer in TRAINERS for one in trainer.said))
OPENERS: tuple[BlockOpener, ...] = (*(one for trainer in TRAINERS for one in trainer.blocks), *config_blocks.OPENERS)
