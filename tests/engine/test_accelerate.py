"""The native kernel agrees with the PyTorch path."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.builders import random_interactions, random_split

import fedrecgel as fr
from fedrecgel.channels.sums import add_up
from fedrecgel.data.federation import Federation
from fedrecgel.data.split import Split, leave_one_out
from fedrecgel.draws import Draws
from fedrecgel.engine.economies import has_kernel
from fedrecgel.errors import ConfigError
from fedrecgel.methods.base import Method
from fedrecgel.methods.fedmf import FedMF
from fedrecgel.methods.fedncf import FedNCF
from fedrecgel.methods.fedrecgel import FedRecGEL
from fedrecgel.methods.messages import Download, Problem
from fedrecgel.methods.popularity import Popularity
from fedrecgel.models.kernels import allow_kernels
from fedrecgel.models.kernels.compiler import library
from fedrecgel.tensors import Tensors

SPLIT = random_split(n_users=30, n_items=200)
SIZES: dict[str, Any] = {"gmf_dim": 16, "mlp_dim": 32}
METHODS: list[Method] = [
    FedNCF(**SIZES),
    FedRecGEL(**SIZES),
    FedRecGEL(**SIZES, rho_co=0.5, rho_ur=0.3),
    FedRecGEL(**SIZES, rho_co=0.0),
    FedRecGEL(**SIZES, rho_ur=0.0, reduction="mean"),
    FedRecGEL(user_optimiser="sgd"),
]

pytestmark = pytest.mark.skipif(not has_kernel(FedNCF(**SIZES)), reason="needs a C++ compiler at run time")


def close(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    assert float((found - wanted).abs().max()) <= 1e-5 * float(wanted.abs().max()), what


def update(
    method: Method, split: Split, *, compiled: bool
) -> tuple[Tensors, Tensors, torch.Tensor | None, torch.Tensor]:
    """Mean upload, private tensors, losses and scores of one round with thirtyfold embeddings."""
    draws, problem = Draws(1), Problem(split.n_users, split.n_items)
    ids = torch.arange(split.n_users)
    server = method.init_server(problem, draws)
    shared = {name: value * (30 if name.startswith("item") else 1) for name, value in server.shared.items()}
    down, federation = Download(shared), Federation(split)
    private = method.init_clients(problem, ids, draws)
    items = torch.arange(split.n_items).expand(split.n_users, -1)
    with allow_kernels(compiled):
        result = method.client_update(private, down, federation.batch(ids, 0, draws), 0, draws)
        scores = method.score(private, down, federation.history(ids), items)
    mean = add_up([result.upload], split.n_items, method.server_needs).mean()
    return mean, result.private.tensors, result.loss, scores


def assert_agree(method: Method, split: Split) -> None:
    assert has_kernel(method)
    reference, found = (update(method, split, compiled=compiled) for compiled in (False, True))
    for name, value in reference[0].items():
        close(found[0][name], value, name)
    # Adam's first step is g / |g|: compare what it was made of.
    name = "user_m" if "user_m" in reference[1] else "user"
    close(found[1][name], reference[1][name], name)
    assert found[2] is not None
    assert reference[2] is not None
    close(found[2], reference[2], "loss")
    close(found[3], reference[3], "scores")


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{type(m).__name__}-{m.user_optimiser}")
def test_agrees_with_pytorch(method: Method) -> None:
    assert_agree(method, SPLIT)


@pytest.mark.parametrize("method", METHODS[1:4], ids=lambda m: f"{m.rho_co}-{m.rho_ur}")
def test_clients_of_several_blocks_agree(method: Method) -> None:
    """The kernel cuts a client's examples into blocks; here some have one, some up to five."""
    split = leave_one_out(random_interactions(12, 1500, longest=160))
    lengths = (5 * split.train.sizes(np.arange(12))).tolist()
    assert min(lengths) < 144 < 2 * 144 < max(lengths)
    assert_agree(method, split)


@pytest.mark.parametrize("loss", ["bce", "squared"])
@pytest.mark.parametrize("repeated", ["add", "last"])
@pytest.mark.parametrize("examples", ["sampled", "positives"])
@pytest.mark.parametrize("dim", [16, 20])
def test_fedmf_agrees_with_pytorch(
    loss: Literal["bce", "squared"],
    repeated: Literal["add", "last"],
    examples: Literal["sampled", "positives"],
    dim: int,
) -> None:
    method = FedMF(dim=dim, lr=0.2, loss=loss, repeated=repeated, examples=examples)
    assert_agree(method, SPLIT)


def test_a_client_without_examples_changes_nothing() -> None:
    method = FedRecGEL(**SIZES, reg_user=0.0)  # a prior would pull without examples, too
    draws, problem, ids = Draws(1), Problem(SPLIT.n_users, SPLIT.n_items), torch.arange(4)
    shared = method.init_server(problem, draws).shared
    private, batch = method.init_clients(problem, ids, draws), Federation(SPLIT).batch(ids, 0, draws)
    batch = replace(batch, mask=batch.mask & (ids > 0)[:, None], row_mask=batch.row_mask & (ids > 0)[:, None])
    results = []
    for compiled in (False, True):
        with allow_kernels(compiled):
            results.append(method.client_update(private, Download(shared), batch, 0, draws))
    means = [add_up([result.upload], SPLIT.n_items, method.server_needs).mean() for result in results]
    for name, value in means[0].items():
        close(means[1][name], value, name)
    assert not results[1].private["user_m"][0].any()


def test_the_server_steps_as_with_pytorch() -> None:
    method = FedRecGEL(**SIZES)
    server = method.init_server(Problem(SPLIT.n_users, SPLIT.n_items), Draws(1))
    before = {name: value.clone() for name, value in {**server.shared, **server.kept}.items()}
    generator = torch.Generator().manual_seed(0)
    for number in range(3):
        gradient = {name: torch.randn(value.shape, generator=generator) for name, value in server.shared.items()}
        wanted = method.step_server(server, gradient, number)
        with allow_kernels(True):
            found = method.step_server(server, gradient, number)
        assert all(torch.equal(value, before[name]) for name, value in {**server.shared, **server.kept}.items())
        for name, value in {**wanted.shared, **wanted.kept}.items():
            close({**found.shared, **found.kept}[name], value, name)
        server = wanted
        before = {name: value.clone() for name, value in {**server.shared, **server.kept}.items()}
    half = method.backbone.prepare(server.shared)["item_half"]
    with allow_kernels(True):
        close(method.backbone.prepare(server.shared)["item_half"], half, "item half")


def test_a_kernel_needs_settings_that_it_knows_and_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not has_kernel(Popularity())
    assert not has_kernel(FedNCF(gmf_dim=5))
    assert not has_kernel(FedNCF(model="mf"))
    assert not has_kernel(FedNCF(weighting="examples"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    library.cache_clear()
    try:
        assert not has_kernel(FedNCF(**SIZES))
        with pytest.raises(ConfigError, match="needs a C\\+\\+ compiler"):
            fr.train("fedncf", SPLIT, rounds=2, **SIZES, local={"accelerate": True})
        assert not fr.train("fedncf", SPLIT, rounds=1, **SIZES).summary["accelerated"]
    finally:
        library.cache_clear()


class _Weighted(FedNCF):
    """A subclass that reads uploads apart, which a kernel has summed."""


def test_a_class_of_somebody_else_is_left_alone() -> None:
    assert not has_kernel(_Weighted(**SIZES))
    assert not has_kernel(FedRecGEL(**SIZES, order="user-first")), "no kernel takes the parts one after the other"


def test_g_norm_agrees_too() -> None:
    options: dict[str, Any] = {**SIZES, "rounds": 2, "g_norm": 0.01}
    plain = fr.train("fedrecgel", SPLIT, **options)
    fast = fr.train("fedrecgel", SPLIT, **options, local={"accelerate": True})
    assert fast.summary["accelerated"]
    for name, value in plain.shared.items():
        close(fast.shared[name], value, name)


def test_double_precision_takes_the_reference_path() -> None:
    options: dict[str, Any] = {**SIZES, "rounds": 2, "run": {"dtype": "float64"}}
    plain = fr.train("fedrecgel", SPLIT, **options)
    asked = fr.train("fedrecgel", SPLIT, **options, local={"accelerate": True})
    assert not asked.summary["accelerated"]
    assert all(torch.equal(value, asked.shared[name]) for name, value in plain.shared.items())


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_gives_the_same_bits(workers: int) -> None:
    options: dict[str, Any] = {**SIZES, "rounds": 3, "fraction": 0.9}
    local = {"accelerate": True, "chunk_examples": 300}
    one = fr.train("fedrecgel", SPLIT, **options, local={**local, "workers": 1})
    some = fr.train("fedrecgel", SPLIT, **options, local={**local, "workers": workers})
    assert all(torch.equal(value, some.shared[name]) for name, value in one.shared.items())
    assert replace(one.config, local=some.config.local) == some.config
