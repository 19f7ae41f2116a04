"""What notebooks see: rounds one by one, the history as a frame and a figure, a short table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.builders import random_split as small_split

import fedrecgel as fr
from fedrecgel.errors import ConfigError
from fedrecgel.runs import progress as shown
from fedrecgel.runs.progress import Progress

SMALL: dict[str, Any] = {"gmf_dim": 4, "mlp_dim": 6, "fraction": 0.5}


def test_a_run_stopped_after_two_rounds_is_a_run_of_two_rounds() -> None:
    split = small_split()
    seen = []
    for one in fr.rounds("fedncf", split, 5, seed=3, **SMALL):
        seen.append(one)
        if one.number == 2:
            break
    stopped, straight = one.result(), fr.train("fedncf", split, rounds=2, seed=3, evaluation={"every": 1}, **SMALL)
    assert [entry.number for entry in seen] == [1, 2]
    assert all(entry.loss is not None and "NDCG@10" in entry.metrics for entry in seen)
    assert stopped.config == straight.config
    assert (stopped.metrics, stopped.metrics_full) == (straight.metrics, straight.metrics_full)
    with pytest.raises(ConfigError, match="Round 1 is over: the model is that of round 2"):
        seen[0].result()


def test_the_last_round_is_evaluated_wherever_a_run_ends() -> None:
    rounds = fr.rounds("fedncf", small_split(), 9, every=4, **SMALL)
    one = next(rounds)
    assert one.metrics == {}
    assert one.result().metrics.keys() >= {"HR@10", "NDCG@10"}
    assert next(rounds, None) is None  # the run is over


def test_the_history_as_a_frame_and_as_a_figure() -> None:
    result = fr.train("fedncf", small_split(), rounds=3, evaluation={"every": 2}, **SMALL)
    frame = result.history_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame["round"].tolist() == [1, 2, 3]
    assert math.isnan(frame["NDCG@10"][0])
    assert frame["NDCG@10"][2] == result.history[2]["NDCG@10"]
    figure = result.plot("HR@10")
    drawn = figure.axes[0].lines[0].get_ydata()
    assert np.asarray(drawn).tolist() == [100 * line["HR@10"] for line in result.history if "HR@10" in line]
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="There is no 'HR@11'"):
        result.plot("HR@11")


def test_a_notebook_shows_both_rankings_beside_popularity() -> None:
    result = fr.train("popularity", small_split())
    page = result._repr_html_()
    assert f"<td>{100 * result.metrics['NDCG@10']:.2f}</td>" in page
    assert f"<td>{100 * result.metrics_full['NDCG@10']:.2f}</td>" in page
    assert page.count("popularity, among candidates") == 2


def test_training_shows_a_bar_where_a_person_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fr.train("fedncf", small_split(), rounds=2, **SMALL)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(shown, "in_notebook", lambda: True)
    fr.train("fedncf", small_split(), rounds=2, **SMALL)
    assert "2/2" in capsys.readouterr().err
    fr.train("fedncf", small_split(), rounds=2, progress=False, **SMALL)
    assert capsys.readouterr().err == ""
    assert Progress.__module__ == shown.__name__
