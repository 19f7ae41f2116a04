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
        *("fedmf", "fedncf", "fedrecgel"),
    }


@pytest.mark.parametrize("name", sorted(set(METHODS) - set(exportable())))
def test_others_say_so_and_name_those_that_can(name: str) -> None:
    with pytest.raises(ConfigError, match=f"Method '{name}' cannot be exported: .* Train one that can: .*spectra"):
        form_of(small_run(name))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fedncf", {"model": "mlp"}, "neumf and mf can be exported. Found 'mlp'"),
        ("fedmf", {"catalogue": 0.1}, "with catalogue = 0, the default"),
        ("spectra", {"pairs": True, "sketch": True}, "Hashed co-occurrences cannot be exported"),
        ("fedrecgel", {"g_norm": 1.0}, "Export a run with g_norm = 0, the default"),
    ],
)
def test_settings_that_cannot_be_exported(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        form_of(small_run(name, **options))


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
