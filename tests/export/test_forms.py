from __future__ import annotations

import pytest
from tests.export.device_runs import small_run

from fedrecgel.errors import ConfigError
from fedrecgel.export.forms import exportable, form_of
from fedrecgel.export.scorers import FORMS
from fedrecgel.methods import METHODS


def test_methods_that_can_be_exported() -> None:
    assert set(exportable()) == {
        *("popularity", "itemknn", "ease", "ials", "gfcf", "spectra"),
    }


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(exportable())))
def test_others_say_so_and_name_those_that_can(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Method '{name}' cannot be exported: .* Train one that can: .*spectra"):
        form_of(small_run(name))


@pytest.mark.parametrize("name", exportable())
def test_a_form_holds_nothing_of_a_user(name: str) -> None:
    """Shared tensors, numbers, and a start that all newcomers have in common."""
    run = small_run(name)
    form = form_of(run)
    assert form.kind in FORMS
    shared = {tuple(value.shape) for value in run.shared.values()}
    for table, values in form.tables.items():
        assert values.shape in shared or table == "start"
    assert set(form.rounded) <= {table for table, values in form.tables.items() if len(values) == len(run.item_ids)}
