"""The whole audit: what applies is tried, and the sentence says what came of it."""

from __future__ import annotations

import pytest
from tests.audit.scenes import scene_of

from fedrecgel.audit import verdict
from fedrecgel.audit.guesses import Finding
from fedrecgel.audit.promotion import Promotion, promote
from fedrecgel.audit.record import record_of
from fedrecgel.audit.scene import Scene
from fedrecgel.audit.verdict import Audit, audit_run, promote_all
from fedrecgel.cli.audit import describe
from fedrecgel.engine.gate import GateSettings
from fedrecgel.errors import RunError


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
        "promotion_error",
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


def failing_at(case: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promotion of which this case, counted from 0, ends in a round."""
    cases: list[float] = []

    def some(
        scene: Scene, share: float, rounds: int, gate: GateSettings | None = None, *, follow: float = 0.0
    ) -> Promotion:
        cases.append(share)
        if len(cases) > case:
            raise RunError("The numbers grew too large.")
        return promote(scene, share, 1, gate, follow=follow)

    monkeypatch.setattr(verdict, "promote", some)


@pytest.mark.parametrize(
    ("case", "found", "words"),
    [
        (0, [], "No promotion: the run cannot be trained from random tables. The numbers grew too large."),
        (1, ["0%"], "Promotion is incomplete: a case cannot be trained. The numbers grew too large."),
        (3, ["0%", "0% limited by round", "1%"], "Promotion is incomplete: a case cannot be trained. The numbers grew"),
    ],
)
def test_what_was_found_before_a_case_failed_is_kept_and_told(
    case: int, found: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_at(case, monkeypatch)
    told: list[str] = []
    scene = scene_of("fedmf")
    audit = audit_run(scene, told.append)
    assert list(audit.promotion) == found
    assert words in told[-1]
    assert words in describe(audit, scene)
    assert ("Limits: --set gate.row_limit" in describe(audit, scene)) == (case == 3)
    assert record_of(audit, None).promotion_error == audit.to_dict()["promotion_error"] == "The numbers grew too large."


def test_promotion_that_was_tried_in_every_case_is_complete() -> None:
    scene = scene_of("fedmf", run={"rounds": 1})
    audit = audit_run(scene)
    assert audit.promotion_error is None
    shares, limits = ("0%", "1%", "5%"), ("", " limited", " limited by round")
    assert audit.promotion.keys() == {share + name for share in shares for name in limits}
    assert "Promotion is incomplete" not in describe(audit, scene)


def test_promotion_ends_where_the_gate_refuses_all_uploads() -> None:
    found, failed = promote_all(scene_of("fedmf", gate={"max_norm": 1e-9}), lambda text: None)
    assert list(found) == ["0%"]
    assert failed == "The gate refused all uploads of the first round."
