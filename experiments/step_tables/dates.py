"""When the software of a row was current: the date of its own column, the release in its words, the round, or its source's.

A step gets faster by a tenth a year on the same GPUs (`inference/cost_model/step_times.py`: DATE), so a row without a date says
less than one with a rough one. Dates are those of a release, of a round of results, of a paper, or of the commit or post that
printed the figure; a source whose figures were added over several years has the middle one, within half a year.
"""

from __future__ import annotations

import re

from experiments.step_tables.records import StepRecord

ROUNDS = {  # of MLPerf Training: publication of the results
    "v2.0": "2022-06",
    "v2.1": "2022-11",
    "v3.0": "2023-06",
    "v3.1": "2023-11",
    "v4.0": "2024-06",
    "v4.1": "2024-11",
    "v5.0": "2025-06",
    "v5.1": "2025-11",
    "v6.0": "2026-06",
}
_ROUND = re.compile(r"(?:training_results_|mlperf training )(v\d\.\d)", re.IGNORECASE)
_STATED = re.compile(r"(20[12]\d)(?:-(\d\d))?")
_MONTHS = range(1, 13)
# Releases called after year and month: containers of NVIDIA, recipes of its DGX Cloud.
_RELEASE = re.compile(r"(?:nemo|ngc|container|release|^)[\s:_]{0,3}v?(2[0-9])\.(0[1-9]|1[0-2])\b", re.IGNORECASE)
_IN_PATH = re.compile(r"\b(20[12]\d)-(\d\d)-\d\d-")  # posts are filed by day
_ARXIV = re.compile(r"\b(\d\d)(\d\d)\.\d{5}")
# Sources without a date of their own: the commit or page that holds the figures.
_SOURCES = (
    (r"tpu-recipes", "2025-09"),
    (r"AI-Hypercomputer/maxtext", "2024-06"),
    (r"AMD-AGI/Primus", "2025-10"),
    (r"FlagOpen/FlagPerf", "2024-06"),
    (r"SC24 talk", "2024-06"),
    (r"MegaScale-MoE", "2025-05"),
    (r"SimuMax", "2025-12"),
    (r"NeMo Framework user guide", "2025-04"),
    (r"Megatron-Bridge", "2026-02"),
    (r"NVIDIA/Megatron-LM", "2025-03"),
    (r"NeMo-Framework-Launcher", "2023-10"),
    (r"NVIDIA/NeMo\b", "2024-07"),
    (r"Nemotron-4 340B", "2024-06"),
    (r"Oneflow-Inc/libai", "2022-05"),
    (r"FSDP on AWS", "2022-03"),
    (r"Rapid-LLM \(UCI", "2025-06"),
    (r"GLM-130B", "2022-05"),
    (r"vTrain", "2023-06"),
    (r"argonne-lcf", "2025-06"),
    (r"aws-samples", "2024-06"),
    (r"bigscience", "2022-01"),
    (r"DeepSeek-V3", "2024-12"),
    (r"eth-easl/sailor", "2025-03"),
    (r"fms-fsdp", "2024-05"),
    (r"ColossalAI", "2023-09"),
    (r"huggingface/nanotron", "2024-11"),
    (r"mosaicml/llm-foundry", "2023-09"),
    (r"stas00/ml-engineering", "2026-03"),
    (r"Megatron-MoE-ModelZoo", "2025-09"),
    (r"InternLM/InternEvo", "2023-11"),
)


def date_of_record(record: StepRecord) -> str:
    """Year and month, or the year alone; empty where nothing says."""
    stated = _STATED.match(record.date)
    if stated:
        return f"{stated[1]}-{stated[2]}" if stated[2] and int(stated[2]) in _MONTHS else stated[1]
    texts = (record.release, record.notes)
    release = next((found for text in texts if (found := _RELEASE.search(text))), None)
    if release:
        return f"20{release[1]}-{release[2]}"
    of_results = _ROUND.search(record.source)
    if of_results and of_results[1] in ROUNDS:
        return ROUNDS[of_results[1]]
    posted = _IN_PATH.search(record.table) or _ARXIV.search(record.source)
    if posted:
        year = posted[1] if len(posted[1]) == 4 else f"20{posted[1]}"
        return f"{year}-{posted[2]}" if int(posted[2]) in _MONTHS else year
    return next((date for source, date in _SOURCES if re.search(source, record.source)), "")
