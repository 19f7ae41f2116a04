from __future__ import annotations

import pytest

from fedrecgel import errors
from fedrecgel.errors import FedrecgelError, InputError, RunError, unknown


def test_exit_codes_tell_wrong_input_from_a_failed_run() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) == 10
    for kind in kinds:
        assert issubclass(kind, FedrecgelError)
        assert kind.exit_code == (2 if issubclass(kind, InputError) else 1)
    assert not issubclass(RunError, InputError)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("fedncv", "Unknown method 'fedncv'. Did you mean 'fedncf'?"),
        ("popular", "Unknown method 'popular'. Did you mean 'popularity'?"),
        ("xyz", "Unknown method 'xyz'. Valid: fedncf, popularity."),
        ("", "Unknown method ''. Valid: fedncf, popularity."),
    ],
)
def test_unknown_names_the_nearest_or_all(found: str, expected: str) -> None:
    assert unknown("method", found, ["popularity", "fedncf"]) == expected


def test_long_lists_are_cut() -> None:
    text = unknown("user", "zzz", [f"u{number}" for number in range(1227)])
    assert text.endswith("… (1,227 in all).")
    assert len(text) < 500


def test_unknown_where_nothing_is_valid() -> None:
    assert unknown("variant", "paper", []) == "Unknown variant 'paper'. Valid: none."
