"""The whole audit: what applies is tried, and the sentence says what came of it."""

from __future__ import annotations

import pytest
from tests.audit.scenes import scene_of

from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.verdict import Audit, audit_run


def finding(f1: float, common: float = 0.3) -> Finding:
    return Finding(f1, common, f1 - common - 0.01, f1 - common + 0.01, 100)


def test_plain_is_read() -> None:
    found = audit_run(scene_of("fedmf"), promotion=False)
    assert set(found.attacks) == {"touched_rows", "gradient_sign", "intersection", "known_seed"}
    assert "can read users' histories" in found.sentence
    assert found.to_dict().keys() == {
        "channel",
        "cohort",
        "attacks",
        "epsilon_lower_bound",
        "noise_p",
        "promotion",
    }
    assert found.to_dict()["attacks"]["gradient_sign"].keys() == {"f1", "popularity_f1", "advantage", "low", "high"}
    assert (found.epsilon_lower_bound, found.noise_p) == (None, None)


def test_noise_is_tested_where_there_is_some() -> None:
    found = audit_run(scene_of("popularity", "dp", dp={"epsilon": 2.0, "clip": 3.0}))
    assert list(found.attacks) == ["cohort_sum"]
    assert found.noise_p is not None
    assert found.noise_p > 1e-4
    assert found.epsilon_lower_bound is not None
    assert found.epsilon_lower_bound < 2.0
    assert found.promotion == {}


def test_ciphertexts_leave_nothing_to_attack() -> None:
    found = audit_run(scene_of("fedmf", "bfv"))
    assert found.attacks == {}
    assert "ciphertexts" in found.sentence


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (finding(0.99), "can read users' histories"),
        (finding(0.4), "learns something about single users: cohort sum is 0.10 better"),
        (finding(0.31), "None of these attacks"),
    ],
)
def test_the_sentence(found: Finding, words: str) -> None:
    assert words in Audit("secagg", 10, {"cohort_sum": found}).sentence


def test_the_smallest_safe_cohort_is_safe_from_there_on() -> None:
    by_cohort = {2: finding(0.6), 10: finding(0.31), 50: finding(0.4), 100: finding(0.315), 200: finding(0.3)}
    assert Audit("secagg", 200, {}, by_cohort).smallest_cohort == 100
    assert Audit("secagg", 2, {}, {2: finding(0.6)}).smallest_cohort is None
