"""Writes docs/job_file.md, the list of all fields of a job file: `python docs/job_file.py` in a checkout."""

from __future__ import annotations

from pathlib import Path

from prism_jax.job.reference import page

if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
