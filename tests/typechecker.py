"""The run-time type checker of the tests: beartype, where an int is a float too, as in every type checker."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
