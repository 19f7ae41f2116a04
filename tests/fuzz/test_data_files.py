"""Whatever a data file holds, it is read, or refused in a sentence."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from tests.fuzz.budget import inputs
from tests.fuzz.data_files import data_files

import fedrecgel as fr
from fedrecgel.data.audit import audit
from fedrecgel.errors import FedrecgelError

OUTCOMES: Counter[str] = Counter()


@inputs(300)
@given(data_files())
def test_a_data_file_is_read_or_refused(tmp_path: Path, file: tuple[str, bytes]) -> None:
    """What `fedrecgel data info`, `fedrecgel data audit` and `load(path).split()` do; warnings are errors here."""
    suffix, content = file
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(content)
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # no header
            data = fr.load(path, min_interactions=2)
        assert len(data) == len(data.users) == len(data.items)
        assert len(set(data.user_ids)) == data.n_users > 0
        found = audit(data.split(candidates=1))
        assert 0 <= found.heldout_in_train <= 1
        outcome = "read"
    except FedrecgelError:
        outcome = "refused"
    OUTCOMES["inputs"] += 1
    OUTCOMES[f"{suffix} {outcome}"] += 1


@pytest.fixture(scope="module", autouse=True)
def counts() -> Iterator[None]:
    """Say how many inputs were read and refused, where more than the usual number was asked for."""
    yield
    if "FEDRECGEL_FUZZ" in os.environ:
        print("\n", dict(sorted(OUTCOMES.items())))
