"""How the tests check types and shapes of every call: an int passes for a float, as it does for mypy."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
