"""Measurements from files and tables, checked: canonical columns, SI units, and an account of every row that was dropped."""

from .columns import Column as Column
from .measurements import CleaningReport as CleaningReport, Measurements as Measurements
from .read import read_measurements as read_measurements, tidy as tidy
