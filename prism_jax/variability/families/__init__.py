"""Families of slowdown factors, each positive with mean one."""

from .base import Family as Family
from .constant import CONSTANT as CONSTANT, Constant as Constant
from .gamma import Gamma as Gamma
from .log_normal import LogNormal as LogNormal
from .mixture import Mixture as Mixture
from .normal import Normal as Normal
from .pool import Pool as Pool
from .registry import (
    FAMILIES as FAMILIES,
    family_fields as family_fields,
    family_from_dict as family_from_dict,
    family_to_dict as family_to_dict,
)
from .student_t import StudentT as StudentT
