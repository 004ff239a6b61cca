"""nvidia_dle.csv.gz: throughput tables of NVIDIA's DeepLearningExamples; the source of a row is its example.

A cell of batches may hold two numbers: one per precision, in the order of the table's heading ("64 , 32": PyTorch writes fp32 or
tf32 first, TensorFlow's BERT mixed precision first), or one per label ("128 (TF) / 256 (AMP)"). Behind a slash stands what is
accumulated: per GPU in PyTorch's BERT, over all GPUs in TensorFlow's. Rows without a micro-batch, and rates that count tokens or
frames, are no rows here; classifiers of which no table states a batch have the largest that fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.nonllm_tables.row import TableRow

FILE = "nvidia_dle.csv.gz"
_GPUS = {"V100-16GB": "v100-16gb", "V100-32GB": "v100-32gb", "A100-40GB": "a100-40gb", "A100-80GB": "a100-80gb"}
_PRECISIONS = {"fp16/amp": "fp16", "fp32": "fp32", "tf32": "tf32"}
_OTHER_UNITS = ("tok", "tokens", "mel")
_NUMBER = re.compile(r"\d[\d,]*(?:k\b)?")
# Samples of a micro-batch in 16 bits that GPUs of 32 GB take.
_LARGEST = {
    "MxNet/Classification/RN50v1.5": 256,
    "PaddlePaddle/Classification/RN50v1.5": 256,
    "PyTorch/Classification/ConvNets/resnet50v1.5": 256,
    "PyTorch/Classification/ConvNets/se-resnext101-32x4d": 128,
}
_MIXED_FIRST = "TensorFlow/LanguageModeling"
_MOST = 4096  # samples of a micro-batch; larger ones are global batches


def read(folder: Path) -> Iterator[TableRow]:
    """All rows that state a micro-batch and a rate in samples."""
    table = pd.read_csv(folder / FILE)
    lines: Iterable[Any] = table.itertuples()  # its fields are the columns of the table
    for number, line in enumerate(lines):
        batches = _batches(line)
        if batches is None or line.unit in _OTHER_UNITS or line.dtype not in _PRECISIONS:
            continue
        each, n_accumulated = batches
        yield TableRow(
            id=f"dle-{number:04d}",
            table="dle",
            name=line.model,
            gpu=_GPUS[line.gpu],
            n_gpus=int(line.gpus_total),
            gpus_per_node=16 if "DGX-2" in line.section else 8,
            batch_per_gpu=each,
            n_accumulated=n_accumulated,
            step_s=each * n_accumulated * line.gpus_total / line.throughput,
            source=f"DLE {line.model}",
            precision=_PRECISIONS[line.dtype],
            framework=line.model.partition("/")[0],
            seq_len=int(line.seq_cell) if line.seq_cell == line.seq_cell else 0,
            is_compiled="XLA" in line.column,
            task=line.section,
        )


def _batches(line: Any) -> tuple[int, int] | None:
    """Micro-batch of a GPU, and micro-batches per step; None where the micro-batch is not stated."""
    cell, per_gpu = line.batch_cell, line.batch_per_gpu
    if re.match(r"LanguageModeling/BERT", line.model.partition("/")[2]):
        return _bert_batches(line)
    if per_gpu == per_gpu:
        return (int(per_gpu), 1) if per_gpu <= _MOST else None
    if not isinstance(cell, str):
        return _unstated(line)
    numbers = [int(text.replace(",", "")) for text in _NUMBER.findall(cell.partition("/")[0]) if "k" not in text]
    if "(AMP)" in cell:
        numbers = [int(text) for text in re.findall(r"(\d+) \(", cell)]
    if not 1 <= len(numbers) <= 2 or max(numbers) > _MOST:
        return None
    return numbers[_which(line) if len(numbers) == 2 else 0], 1


def _unstated(line: Any) -> tuple[int, int] | None:
    """Classifiers whose tables leave the batch out: what fits into the GPU, half of it in fp32; rates hardly depend on it."""
    largest = next((most for name, most in _LARGEST.items() if line.model.endswith(name)), None)
    if largest is None:
        return None
    whole = largest if line.gpu != "V100-16GB" else 3 * largest // 4
    return (whole if line.dtype == "fp16/amp" else whole // 2), 1


def _which(line: Any) -> int:
    """Which of two numbers holds for the precision of the row."""
    is_mixed = line.dtype == "fp16/amp"
    return int(not is_mixed) if line.model.startswith(_MIXED_FIRST) else int(is_mixed)


def _bert_batches(line: Any) -> tuple[int, int] | None:
    if not isinstance(line.batch_cell, str):
        return (int(line.batch_per_gpu), 1) if line.batch_per_gpu == line.batch_per_gpu else None
    each, _, whole = line.batch_cell.partition("/")
    numbers = [int(text.replace(" ", "")) for text in re.split(r"and|,", each) if text.strip().isdigit()]
    if not numbers or max(numbers) >= 2048:  # an accumulated batch without its parts
        return None
    own = numbers[_which(line) if len(numbers) == 2 else 0]
    totals = [int(text) for text in re.findall(r"\d+", whole)]
    if not totals:
        return own, 1
    per_gpu = totals[-1] if line.model.startswith("PyTorch") else totals[-1] / line.gpus_total
    return own, max(1, round(per_gpu / own))
