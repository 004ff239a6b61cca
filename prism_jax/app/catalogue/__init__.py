"""What ships with the package: tables, all facts of an entry, and entries as sections of a job file."""

from .catalogues import CATALOGUES as CATALOGUES, show_catalogue as show_catalogue, show_entry as show_entry
from .job_section import job_section as job_section
