from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.ranks import lay_out
from tests.results import patch_runner, words, write_csv

from fedrecgel.cli.main import main
from fedrecgel.methods import METHODS
from fedrecgel.studies.experiment import Scope
from fedrecgel.studies.fingerprints import config_fingerprint
from fedrecgel.studies.presets import Presets
from fedrecgel.studies.quirks import (
    ALL,
    CORRECTED,
    KINDS,
    LEAKY,
    PICKED,
    QuirksExperiment,
    native_values,
    single_quirks,
)


def rows_of(method: str, *kinds: str, dataset: str = "demo") -> dict[str, dict[str, Any]]:
    """The settings of every row, by label."""
    options = {"rows": ",".join(kinds or KINDS)}
    scope = Scope(Presets(Path("configs")), (dataset,), 1, methods=(method,), options=options)
    (plans,) = QuirksExperiment(scope).plans.values()
    return {plan.label: plan.origins[0].config.to_dict() for plan in plans}


@pytest.mark.parametrize("dataset", ["demo", "filmtrust"])
@pytest.mark.parametrize("method", [name for name, kind in METHODS.items() if kind.kind == "federated"])
def test_rows_differ_from_the_corrected_one_in_what_they_name(method: str, dataset: str) -> None:
    """Without tuned settings, and with some."""
    rows = rows_of(method, dataset=dataset)
    usual = rows.pop(CORRECTED)
    picked = rows.pop(PICKED)
    assert usual["evaluation"]["selection"] == "validation"
    assert picked["evaluation"]["selection"] == "test"
    for label, changed in rows.items():
        method_changed = {key for key, value in changed["method"].items() if usual["method"].get(key) != value}
        assert changed["sampling"]["exclude_heldout_from_negatives"] == (label in (LEAKY, ALL))
        if label == LEAKY:
            assert not method_changed
        elif label == ALL:
            assert method_changed == {"variant", *native_values(method)}
        else:
            assert method_changed == {label.split(" = ")[0]}
        assert changed["evaluation"] == usual["evaluation"]


def test_rows_can_be_chosen() -> None:
    assert set(single_quirks("gpfedrec")) == {"native_cosine_distance = true"}
    assert list(rows_of("gpfedrec", "leaky", "native", "picked")) == [CORRECTED, LEAKY, ALL, PICKED]
    assert list(rows_of("gpfedrec", "native")) == [CORRECTED, ALL]
    assert list(rows_of("fedncf")) == [CORRECTED, LEAKY, PICKED]


def test_native_values_are_what_the_released_settings_are_not() -> None:
    assert native_values("fedrap") == {"vary": "fixed"}
    assert native_values("fedmf")["dim"] == 100
    assert "updates" not in native_values("fedmf")
    assert native_values("spectra") == {}


def test_worth_is_the_row_minus_the_corrected_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch_runner(monkeypatch)
    csv, out = write_csv(tmp_path / "shop.csv"), tmp_path / "results"
    assert main(words("quirks", csv, out, "--quiet")) == 0
    rows = json.loads((out / "quirks.json").read_text())["rows"]
    usual = {item["row"]["method"]: item for item in rows if item["row"]["label"] == CORRECTED}
    assert usual
    assert all(not item["worth"] for item in usual.values())
    for item in rows:
        if item["row"]["label"] != CORRECTED:
            base = usual[item["row"]["method"]]["row"]["cells"]["candidates"]["NDCG@10"]["mean"]
            own = item["row"]["cells"]["candidates"]["NDCG@10"]["mean"]
            assert item["worth"]["candidates"]["NDCG@10"]["difference"] == pytest.approx(own - base, abs=1e-12)


def test_the_corrected_row_is_the_run_of_the_main_table() -> None:
    scope = Scope(Presets(Path("configs")), ("filmtrust",), 1, methods=("pfedrec",))
    rows = QuirksExperiment(scope).plans["filmtrust", "pfedrec"]
    (corrected,) = (plan for plan in rows if plan.label == CORRECTED)
    plain = Presets(Path("configs")).origin("filmtrust", "pfedrec", "tuned", 0)
    assert config_fingerprint(corrected.origins[0].config) == config_fingerprint(plain.config)


def test_runs_without_a_popularity_row_have_a_table(tmp_path: Path) -> None:
    scope = Scope(Presets(Path("none")), ("demo",), 1, methods=("fedncf",), options={"rows": "leaky"})
    chosen = QuirksExperiment(scope)
    (plans,) = chosen.plans.values()
    records = lay_out(tmp_path, plans, {CORRECTED: 0.5, LEAKY: 0.6}, reference=False)
    (table,) = chosen.reduce(tmp_path, records, "command").tables()
    assert {entry.text for entry in table.rows[-1]} == {"popularity", "–", "1"}
