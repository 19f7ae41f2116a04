"""Batched GPFedRec equals a loop over clients with whole tables and one differentiated loss, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedrecgel.data.split import Split
from fedrecgel.errors import ConfigError
from fedrecgel.methods.gpfedrec import GPFedRec
from fedrecgel.models import guided as module
from tests.builders import engine_of, problem_of
from tests.oracles.gpfedrec import GPFedRecOracle
from tests.oracles.plain import SEED, assert_close, catalogue_scores, run_of, start

NATIVE = {key: value for key, value in GPFedRec.variants["native"].items() if key not in GPFedRec.variants["released"]}
"""What the released code does otherwise, apart from its sizes and rates."""
SMALL: dict[str, Any] = {"dim": 4, "layers": (6, 5, 3), "fraction": 0.3, "lr_eta": 3.0}
VARIANTS: dict[str, dict[str, Any]] = {
    "corrected": {},
    "native": NATIVE,
    "everyone": {"fraction": 1.0, "lr_eta": 80.0},
    "everyone-native": {"fraction": 1.0, **NATIVE},
    "several-batches": {"batch_size": 16, "epochs": 2},
    "strong-pull": {"batch_size": 32, "reg": 5.0},
    "no-pull": {"reg": 0.0},
    "neighbours": {"neighbours": 2},
    "native-neighbours": {"neighbours": 2, "native_cosine_distance": True},
    "more-neighbours-than-clients": {"neighbours": 50},
    "threshold": {"threshold": 1.2, "fraction": 0.7},
    "nobody-above": {"threshold": 9.0},
    "hops": {"hops": 2, "threshold": 1.05, "fraction": 0.7},
    "centred": {"centred": True, "fraction": 0.7, "batch_size": 16},
    "noise": {"noise": 0.3, "batch_size": 16},
    "saturated": {"layers": (6,), "lr": 1.0, "lr_eta": 80.0},
    "plain-bce": {"layers": (6,), "lr": 1.0, "lr_eta": 80.0, "saturating_bce": False},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_equals_one_client_at_a_time(small_split: Split, name: str) -> None:
    method = GPFedRec(**{**SMALL, **VARIANTS[name]})
    found = start(GPFedRecOracle, method, small_split).compare()
    assert method.batch_size > 32 or len(found.batch_counts) > 1, "some should have run out of batches before others"


def test_the_variants_are_not_vacuous(small_split: Split) -> None:
    """Every option changes the result, so agreement with the oracle means something."""
    tables = {}
    for name, options in VARIANTS.items():
        _, server = run_of(GPFedRec(**{**SMALL, "fraction": 0.7, **options}), small_split)
        tables[name] = server.shared["items"]
    for name, table in tables.items():
        base = tables["saturated" if name == "plain-bce" else "corrected"]
        assert name == "corrected" or not torch.allclose(base, table), name


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_what_leaves_the_device_is_the_table(small_split: Split, noise: float) -> None:
    """From the upload and what the server sent, the server gets exactly the noised table; names say nothing else."""
    method = GPFedRec(**SMALL, noise=noise)
    engine = engine_of(method, small_split, seed=SEED)
    server = method.init_server(problem_of(small_split), engine.draws)
    for t in range(3):
        cohort = method.cohort(server, engine.population(), t, engine.draws)
        inbox = engine.train(server, cohort, t).inbox
        for upload in inbox.each():
            assert {*upload.dense, *upload.rows} <= method.leaves_device()
            if noise:  # beside a noised table nothing may stand without noise
                assert not torch.as_tensor(upload.dense["pull"]).any()
                assert upload.at.shape[1] == small_split.n_items
        server = method.server_update(server, inbox, t, engine.draws)


@pytest.mark.parametrize("options", [{}, {"noise": 0.1, "hops": 2}, {"graph": "scalable", "neighbours": 3}])
def test_blocks_of_items_change_nothing(
    small_split: Split, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """The server works through the catalogue in blocks that fit its memory."""
    method = GPFedRec(**{**SMALL, "fraction": 0.7, **options})
    guides = []
    for block in (1, 700, module.BLOCK):
        monkeypatch.setattr(module, "BLOCK", block)
        guides.append(run_of(method, small_split, rounds=2)[1].kept["guides"])
    for found in guides[1:]:
        assert_close(found, guides[0], "guides")


def test_16_bits_are_close_and_labelled(small_split: Split) -> None:
    """Tables of half the size: within their precision of the exact run, the same bits each time."""
    method = GPFedRec(**SMALL, neighbours=10)  # all participants, so that rounding cannot change the graph
    small = replace(method, storage="bfloat16")
    runs = [run_of(kind, small_split) for kind in (method, small, small)]
    exact, scores, again = (catalogue_scores(*run) for run in runs)
    guides = [server.kept["guides"] for _, server in runs]
    assert guides[1].dtype == torch.bfloat16
    assert 0 < float((scores - exact).abs().max()) < 0.05 * float(exact.abs().max())
    assert torch.equal(again, scores)
    assert torch.equal(guides[2], guides[1])


def test_the_scalable_graph_is_deterministic_and_labelled(small_split: Split) -> None:
    method = GPFedRec(**{**SMALL, "fraction": 0.9}, graph="scalable", neighbours=2, projection=64)
    (_, first), (_, second) = run_of(method, small_split), run_of(method, small_split)
    assert torch.equal(first.kept["guides"], second.kept["guides"])
    with pytest.raises(ConfigError, match="neighbours"):
        GPFedRec(graph="scalable")
    # With as many neighbours as participants nothing depends on the projection, so it is the exact mode.
    everyone = replace(method, neighbours=12)
    _, exact = run_of(replace(everyone, graph="exact"), small_split)
    assert_close(run_of(everyone, small_split)[1].kept["guides"], exact.kept["guides"], "guides")
