"""The devices of an audit are those of the run: what the data decide there is decided here."""

from __future__ import annotations

import pytest
from tests.audit.scenes import popular_split, scene_of

from fedrecgel.methods import spectral_start
from fedrecgel.methods.fedncf import FedNCF

MANY = popular_split(n_users=spectral_start.LEAST_COHORT)


@pytest.mark.parametrize("method", ["fedncf", "fedrecgel"])
def test_what_is_left_to_the_data_is_decided_as_in_a_run(method: str) -> None:
    """Few clients start from random tables, and then a server steps by small gradients, too."""
    few, many = scene_of(method).method, scene_of(method, split=MANY).method
    assert isinstance(few, FedNCF)
    assert isinstance(many, FedNCF)
    assert (few.init, few.tau) == ("normal", 1e-8)
    assert not few.leaves_device() & spectral_start.SENDS
    assert (many.init, many.tau) == ("spectral", 1e-3)


def test_a_run_that_goes_on_has_no_start_of_its_own() -> None:
    scene = scene_of("fedncf", split=MANY, run={"start": "elsewhere"})
    assert isinstance(scene.method, FedNCF)
    assert scene.method.init == "kept"
    assert not spectral_start.begins(scene.first_server(start=True).shared)
    random = scene.from_random_tables().method
    assert isinstance(random, FedNCF)
    assert random.init == "normal"
