from __future__ import annotations

import pytest
import torch
from tests.builders import enough_rounds, random_split, tiny

import fedrecgel
from fedrecgel.methods import METHODS
from fedrecgel.runs.because import reasons, score_falls
from fedrecgel.runs.recommend import trained

SPLIT = random_split(n_users=10, n_items=120)


def test_of_ease_they_are_the_weights_of_its_table() -> None:
    result = fedrecgel.train("ease", SPLIT)
    items = torch.tensor([5, 40, 77])
    falls = score_falls(trained(result), 3, items)
    own = torch.from_numpy(SPLIT.train.items[SPLIT.train.ptr[3] : SPLIT.train.ptr[4]]).long()
    torch.testing.assert_close(falls, result.shared["weights"][own][:, items], rtol=1e-3, atol=1e-6)
    weights = result.shared["weights"]
    best = {int(own[k]) for k in falls[:, 1].topk(3).indices if weights[own[k], 40] > 0}
    assert set(reasons(trained(result), 3, items)[1]) == best


@pytest.mark.parametrize("name", METHODS)
def test_they_are_own_items_or_there_are_none(name: str) -> None:
    result = fedrecgel.train(name, SPLIT, rounds=enough_rounds(name, 1), **tiny(name))
    found = {item for best in result.recommend("u3", 5) for item in best.because}
    assert found <= {100 + int(item) for item in SPLIT.train.items[SPLIT.train.ptr[3] : SPLIT.train.ptr[4]]}
    assert bool(found) == (name in {"itemknn", "ease", "ials", "gfcf", "spectra"})
