"""Accuracy against a budget, on ranks made by hand: which methods are above popularity with the same ε."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ranks import lay_out

from fedrecgel.display.chart import Steps
from fedrecgel.errors import ConfigError
from fedrecgel.studies.budgets import Privacy, PrivacyExperiment
from fedrecgel.studies.experiment import Scope
from fedrecgel.studies.presets import Presets
from fedrecgel.studies.statistics import Comparison


def experiment(
    epsilons: str = "inf,8", configs: Path = Path("none"), methods: tuple[str, ...] = ("fedmf",)
) -> PrivacyExperiment:
    return PrivacyExperiment(Scope(Presets(configs), ("demo",), 5, (), methods, {"epsilons": epsilons}))


def reduced(root: Path, hits: dict[str, float]) -> Privacy:
    chosen = experiment()
    plans = [plan for plans in chosen.plans.values() for plan in plans if plan.label in hits]
    return chosen.reduce(root, lay_out(root, plans, hits), "command")


HITS = {"fedmf, ε = ∞": 0.8, "popularity, ε = ∞": 0.5, "fedmf, ε = 8": 0.2, "popularity, ε = 8": 0.5}


def test_each_budget_is_compared_with_popularity_at_the_same_budget(tmp_path: Path) -> None:
    found = reduced(tmp_path, HITS)
    signs = {(p.row.method, p.epsilon): p.above_popularity["HR@10"].sign for p in found.points if p.above_popularity}
    assert signs == {("fedmf", None): 1, ("fedmf", 8.0): -1}
    short, everything = found.tables()
    assert short.columns == ["method", "ε = ∞", "ε = 8"]
    assert [row[0].text for row in short.rows] == ["fedmf", "popularity"]
    assert [row[1].text[-1] for row in short.rows[:1]] == ["▲"]
    assert [row[2].text[-1] for row in short.rows[:1]] == ["▼"]
    assert [(row[0].text, row[1].text, row[2].text) for row in everything.rows] == [
        ("fedmf", "∞", "0.50"),
        ("fedmf", "8", "0.50"),
        ("popularity", "∞", "0.50"),
        ("popularity", "8", "0.50"),
    ]
    levels, verdict = found.findings()["demo"]
    assert re.fullmatch(
        r"With noise for ε = 8 HR@10 is: popularity \d+% \(\d+% without\), fedmf \d+% \(\d+% without\)\.", levels
    )
    assert verdict == "Above popularity with the same ε (∞: both without noise): fedmf at ε = ∞."
    found.write(tmp_path / "privacy.json")


def test_what_is_open_or_untested_is_not_called_no_better(tmp_path: Path) -> None:
    found = reduced(tmp_path, HITS)
    at_8 = next(point for point in found.points if point.above_popularity and point.epsilon == 8)
    below = at_8.above_popularity["HR@10"]
    wide, few = replace(below, low=-0.1, high=0.1, p_adjusted=0.3), replace(below, seeds=3)

    def verdict(*comparisons: Comparison) -> str:
        methods = zip(("fedmf", "spectra"), comparisons, strict=False)
        points = [
            replace(at_8, row=replace(at_8.row, method=method), above_popularity={"HR@10": one})
            for method, one in methods
        ]
        return replace(found, points=points).findings()["demo"][-1]

    assert verdict(below) == "No method is above popularity with the same ε."
    assert verdict(few) == "The seeds are too few to test who is above popularity with the same ε."
    assert verdict(below, wide) == ("No method is surely above popularity with the same ε. Open: spectra at ε = 8.")
    assert verdict(few, wide) == (
        "No method is surely above popularity with the same ε. Open: spectra at ε = 8. "
        "Too few seeds to say: fedmf at ε = 8."
    )


def test_the_figure_has_a_line_for_each_method(tmp_path: Path) -> None:
    (chart,) = reduced(tmp_path, HITS).charts([])
    assert isinstance(chart.content, Steps)
    assert chart.content.values == ["∞", "8"]
    assert [line.name for line in chart.content.lines] == ["fedmf", "popularity"]
    fedmf, popularity = (line.mean for line in chart.content.lines)
    assert fedmf[0] > popularity[0]
    assert fedmf[1] < popularity[1]


def test_a_budget_that_not_all_have_is_in_the_table_only(tmp_path: Path) -> None:
    found = reduced(tmp_path, {name: chance for name, chance in HITS.items() if name != "fedmf, ε = 8"})
    (chart,) = found.charts([])
    assert isinstance(chart.content, Steps)
    assert chart.content.values == ["∞"]
    short, _ = found.tables()
    assert [row[2].text == "–" for row in short.rows] == [True, False]
    assert found.left_out == {"demo": ["fedmf, ε = 8 (not run)"]}


def test_noise_and_none_have_settings_of_their_own(tmp_path: Path) -> None:
    for folder, rate in (("dp", 0.3), ("dp-none", 0.7)):
        (tmp_path / folder / "demo").mkdir(parents=True)
        file = tmp_path / folder / "demo" / "fedmf.toml"
        file.write_text(
            f'[method]\nname = "fedmf"\nserver_lr = {rate}\n\n[dp]\nclip = 0.2\nclips = {{ items = 0.1 }}\n'
        )
    configs = [config for config in experiment(configs=tmp_path).configs() if config.method.name == "fedmf"]
    found = {(c.to_dict()["method"]["server_lr"], c.to_dict()["dp"]["epsilon"]) for c in configs}
    assert found == {(0.7, math.inf), (0.3, 8.0)}
    limits = {c.to_dict()["dp"]["epsilon"]: (c.to_dict()["dp"]["clip"], c.to_dict()["dp"]["clips"]) for c in configs}
    assert limits == {math.inf: (math.inf, {}), 8.0: (0.2, {"items": 0.1})}
    assert {c.run.channel for c in configs} == {"dp"}
    assert all(c.split.validation for c in configs)
    assert len({c.split.seed for c in configs}) == 5, "popularity draws nothing, but noise and splits differ"


def test_popularity_is_always_there_once() -> None:
    methods = [config.method.name for config in experiment("8", methods=("popularity", "spectra")).configs()]
    assert methods == ["popularity"] * 5 + ["spectra"] * 5


@pytest.mark.parametrize("text", ["much", "8,-1", "0", "nan"])
def test_budgets_are_positive_numbers(text: str) -> None:
    with pytest.raises(ConfigError, match="--epsilons takes positive numbers"):
        experiment(text).configs()
