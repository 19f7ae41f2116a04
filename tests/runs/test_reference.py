"""When popularity is measured beside a run, and what says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.builders import TINY, random_split

import fedrecgel
from fedrecgel.cli.main import main
from fedrecgel.cli.table import result_table
from fedrecgel.errors import ConfigError
from fedrecgel.report.write import write_report
from fedrecgel.runs.config import from_dict
from fedrecgel.runs.reference import WITHHELD, has_reference, reference_sends

SPLIT = random_split(n_users=14, n_items=130)


@pytest.mark.parametrize(
    ("engine", "channel", "setting", "measured", "sends"),
    [
        ("local", "plain", "auto", True, set()),
        ("local", "plain", "on", True, set()),
        ("local", "plain", "off", False, set()),
        ("local", "bfv", "auto", False, set()),
        ("local", "bfv", "on", True, {"counts"}),
        ("local", "bfv", "off", False, set()),
        ("flower", "plain", "auto", False, set()),
        ("flower", "plain", "on", True, {"counts"}),
        ("flower", "plain", "off", False, set()),
    ],
)
def test_where_users_rely_on_what_a_method_sends_popularity_is_asked_for(
    engine: str, channel: str, setting: str, measured: bool, sends: set[str]
) -> None:
    config = from_dict({"run": {"engine": engine, "channel": channel}, "evaluation": {"reference": setting}})
    assert has_reference(config) == measured
    assert reference_sends(config) == sends


def test_a_run_without_it_can_be_shown_opened_reported_and_used(tmp_path: Path) -> None:
    result = fedrecgel.train("fedncf", SPLIT, rounds=2, evaluation={"every": 1, "reference": "off"}, **TINY)
    usual = fedrecgel.train("fedncf", SPLIT, rounds=2, evaluation={"every": 1}, **TINY)
    assert result.metrics == usual.metrics
    assert result.reference == {}
    assert WITHHELD in result.summary["warnings"]
    table = result_table(result)
    assert "  popularity" not in table
    assert WITHHELD in table
    assert "  popularity" in result_table(usual)
    result.save(tmp_path / "run")
    opened = fedrecgel.open(tmp_path / "run")
    assert opened.reference == {}
    assert len(opened.recommend("u0", k=3)) == 3
    write_report(tmp_path, tmp_path / "report.html", "fedrecgel report", figures=False)
    assert "fedncf" in (tmp_path / "report.html").read_text(encoding="utf-8")


LIMITS: list[dict[str, object]] = [{"row_limit": 0.1}, {"row_limits": (0.1, 0.2)}, {"client_limit": 0.1}]


@pytest.mark.parametrize("gate", LIMITS, ids=lambda gate: next(iter(gate)))
def test_limits_bind_the_method_and_not_the_popularity_beside_it(gate: dict[str, object]) -> None:
    """Counts are no gradients: cut to a length, those of users with few items would weigh more."""
    settings = {"rounds": 1, "evaluation": {"every": 1}, **TINY}
    limited = fedrecgel.train("fedncf", SPLIT, init="normal", gate=gate, **settings)
    assert limited.reference == fedrecgel.train("fedncf", SPLIT, init="normal", **settings).reference


@pytest.mark.parametrize("gate", LIMITS, ids=lambda gate: next(iter(gate)))
@pytest.mark.parametrize("method", ["popularity", "ease", "spectra"])
def test_methods_that_add_up_what_clients_have_refuse_limits(method: str, gate: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"Limits of uploads .* are for methods that learn from round to round\."):
        fedrecgel.train(method, SPLIT, gate=gate)
    assert fedrecgel.train(method, SPLIT, gate={"max_norm": 1e7}).metrics


def test_an_unknown_value_names_the_valid_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--set", "evaluation.reference=onn"]) == 2
    assert "Did you mean 'on'?" in capsys.readouterr().err
