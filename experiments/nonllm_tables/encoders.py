"""Encoders of the tables: BERT of DeepLearningExamples, DLPerf and Sia; DeiT of timm.

DeepLearningExamples trains BERT-large, on 128 tokens (20 of them predicted) and on 512 (80); its rows of fine-tuning are no jobs.
Its PyTorch example on A100 is taken to read data that are binned by length (LDDL), so that padding is not computed at 512 tokens:
were it computed, these rows would run at 66% of the peak, those with 128 tokens at 45%. DLPerf trains BERT-base on 128 tokens,
20 of them predicted. Sia fine-tunes BERT-base on SQuAD with 384 tokens. timm's DeiT have the image size of their names.
"""

from __future__ import annotations

from dataclasses import replace

from experiments.nonllm_tables.row import TableRow
from experiments.nonllm_tables.rule import Made, ModelOf
from prism_jax.workload.catalog import workload
from prism_jax.workload.transformer.encoder import EncoderSpec
from prism_jax.workload.transformer.vision import VitSpec

FAMILY = "encoder"
_PREDICTED = {128: 20, 512: 80}  # `max_predictions_per_seq` of the examples
_SQUAD_TOKENS = 384
_PADDING = 0.5  # arXiv 2107.02027: half of the tokens of Wikipedia in sequences of 512


def _dle(row: TableRow) -> Made | None:
    if row.seq_len not in _PREDICTED or "re-training" not in row.task:
        return None
    model = _predicting("bert-large", row.seq_len)
    is_binned = row.framework == "PyTorch" and row.gpu == "a100-80gb" and row.seq_len == 512
    return Made(FAMILY, replace(model, padding_removed=_PADDING) if is_binned else model, row.seq_len)


def _dlperf(row: TableRow) -> Made:
    return Made(FAMILY, _predicting("bert-base", 128), 128)


def _sia(row: TableRow) -> Made:
    one_token = replace(_encoder("bert-base"), predicted=1.0 / _SQUAD_TOKENS)
    return Made(FAMILY, one_token, _SQUAD_TOKENS)


def _predicting(preset: str, seq_len: int) -> EncoderSpec:
    return replace(_encoder(preset), predicted=_PREDICTED[seq_len] / seq_len)


def _encoder(preset: str) -> EncoderSpec:
    found = workload(preset)
    assert isinstance(found, EncoderSpec)
    return found


def _deit(row: TableRow) -> Made:
    parts = row.name.split("_")
    preset = "vit-b-16" if parts[1] == "base" else f"deit-{parts[1]}-16"
    found = workload(preset)
    assert isinstance(found, VitSpec)
    return Made(FAMILY, replace(found, image_size=row.image, n_extra_tokens=2 if "distilled" in parts else 1))


MODELS = (
    ModelOf(r"deit_(tiny|small|base)(_distilled)?_patch16_\d+$", _deit),
    ModelOf(r"(PyTorch|TensorFlow)/LanguageModeling/BERT$", _dle),
    ModelOf(r"BERT-base$", _dlperf),
    ModelOf(r"bert$", _sia),
)
