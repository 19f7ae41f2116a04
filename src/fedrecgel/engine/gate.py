"""The gate before aggregation: one bad answer is left out, counted and reported; it cannot stop or distort a round.

`sift` judges uploads client by client, where they are still apart: in the simulator and on a node. `check_form`
and `check_clients` judge what arrives from a node the server does not trust, `far_off` the answers of all nodes beside
each other. All leave the sums of a round bit-identical to those without the refused clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from msgspec import Meta
from torch import Tensor

from fedrecgel.data.federation import ClientBatch
from fedrecgel.data.history import History
from fedrecgel.data.item_sets import ItemSets
from fedrecgel.draws import Draws
from fedrecgel.errors import PrivacyError
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import ClientResult, Problem, Server, Upload
from fedrecgel.tensors import Factors, Summed, Tensors


@dataclass(frozen=True)
class GateSettings:
    """What an upload may be."""

    max_norm: Annotated[float, Meta(gt=0)] = 1e6
    """Largest Euclidean norm of one client's upload, all tensors together; a larger or undefined one is refused."""
    spread: Annotated[float, Meta(gt=0)] = 100.0
    """How many times longer than the middle of all nodes' answers one client's upload may be, and the mean over many
    clients a fifth of that; more only where most nodes differ as much. In rounds with three answers or more."""
    max_weight: Annotated[float, Meta(gt=0)] = 1e6
    """Largest weight a client may claim, for methods whose clients count by their examples; others weigh 1."""
    row_limit: Annotated[float, Meta(gt=0)] | None = None
    """Longest row of an item, over all tables, that a device sends; longer ones are shortened. Against promotion."""
    row_limits: tuple[Annotated[float, Meta(gt=0)], ...] = ()
    """The same round by round, as `fedrecgel audit` measures them; the last one holds from then on."""
    client_limit: Annotated[float, Meta(gt=0)] | None = None
    """Longest upload of rows that a device sends; longer ones are shortened as a whole."""

    @property
    def shortens(self) -> bool:
        """Whether devices shorten what they send."""
        return bool(self.row_limits) or self.row_limit is not None or self.client_limit is not None

    @property
    def without_limits(self) -> GateSettings:
        """The same gate for devices that shorten nothing."""
        return replace(self, row_limit=None, row_limits=(), client_limit=None)

    def longest_row(self, round: int) -> float | None:
        """The limit of rows in a round."""
        return self.row_limits[min(round, len(self.row_limits) - 1)] if self.row_limits else self.row_limit


REASONS = {"norm"}
"""Why a node may leave clients out, as `sift` does."""


FEWEST_COMPARED = 3
"""Of two answers that differ, nobody can say which is wrong."""
OF_MANY = 0.2
"""Which part of `spread` remains for the mean over very many clients: nodes differ less than clients do."""
DEVIATIONS = 10
"""How many middle deviations, of logarithms, an answer may be above the middle where those are large: some 7 sigma."""


class Refusal(Exception):  # noqa: N818 - not a failure of ours
    """An answer that is left out, and why: one or two words that are counted."""


def check_declared(upload: Upload, method: Method) -> None:
    """What a run says leaves the device is what leaves it.

    Raises:
        PrivacyError: an upload carries more.
    """
    if more := sorted({*upload.dense, *upload.rows} - method.leaves_device()):
        raise PrivacyError(
            f"What leaves the device should be declared in `sends`. {type(method).__name__} declares "
            f"{', '.join(sorted(method.leaves_device())) or 'nothing'} and sends {', '.join(more)}, too."
        )


def sift(result: ClientResult, settings: GateSettings, round: int = 0) -> ClientResult:
    """The clients whose uploads are finite and bounded; all of them, not copied, in a healthy run.

    Uploads that were summed early can only be judged together.
    """
    if settings.longest_row(round) is not None or settings.client_limit is not None:
        result = result._replace(upload=shorten_rows(result.upload, settings, round))
    good = admissible(result.upload, settings)
    if result.loss is not None:
        good &= torch.isfinite(result.loss)
    if good.all():
        return result
    if any(isinstance(value, Summed) for value in result.upload.dense.values()):
        good = torch.zeros_like(good)
    loss = None if result.loss is None else result.loss[good]
    return ClientResult(result.private.of(good.nonzero()[:, 0]), choose(result.upload, good), loss)


def shorten_rows(upload: Upload, settings: GateSettings, round: int = 0) -> Upload:
    """Uploads within the limits of rows and of clients; the same object where there are none."""
    longest = settings.longest_row(round)
    if upload.rows and longest is not None:
        by = (longest / row_lengths(upload)).clamp(max=1)
        upload = replace(upload, rows={name: value * by[:, :, None] for name, value in upload.rows.items()})
    if upload.rows and settings.client_limit is not None:
        each = (settings.client_limit / upload_lengths(upload)).clamp(max=1)
        upload = replace(upload, rows={name: value * each[:, None, None] for name, value in upload.rows.items()})
    return upload


def row_lengths(upload: Upload) -> Float[Tensor, "C K"]:
    """Norm of each row, over all tables."""
    found: Tensor = torch.linalg.vector_norm(torch.cat(list(upload.rows.values()), 2), dim=2)
    return found


def upload_lengths(upload: Upload) -> Float[Tensor, " C"]:
    """Norm of each client's rows."""
    found: Tensor = torch.linalg.vector_norm(row_lengths(upload), dim=1)
    return found


def admissible(upload: Upload, settings: GateSettings) -> Bool[Tensor, " C"]:
    """Whether each client's upload is finite and at most `max_norm` long; a NaN anywhere fails the comparison."""
    good = (upload.weight > 0) & (upload.weight <= settings.max_weight)
    if not _bound(upload) <= settings.max_norm:  # of all together: one bad client, or many
        good &= _norms(upload) <= settings.max_norm
    summed = [value.value.flatten() for value in upload.dense.values() if isinstance(value, Summed)]
    if summed:
        good &= sqrt(_square(torch.cat(summed))) <= settings.max_norm * upload.weight.sum()
    return good


def _bound(upload: Upload) -> float:
    """An upper bound on the norm of all uploads together, and so of each; no matrix is built."""
    square = sum((_square(value) for value in upload.rows.values()), start=0.0)
    for value in upload.dense.values():
        if isinstance(value, Factors):  # ‖LᵀR‖ ≤ ‖L‖ ‖R‖
            square += _square(value.left) * _square(value.right)
        elif not isinstance(value, Summed):
            square += _square(value)
    return sqrt(square)


def _square(value: Tensor) -> float:
    """Squared norm, in at least single precision; infinite where it overflows."""
    flat = value.flatten()
    if flat.dtype in (torch.float32, torch.float64):
        return float(torch.dot(flat, flat))
    whole = flat if flat.is_floating_point() else flat.float()
    return float(torch.linalg.vector_norm(whole, dtype=torch.float32)) ** 2


def _norms(upload: Upload) -> Float[Tensor, " C"]:
    """Norm of each client's upload."""
    squares = torch.zeros_like(upload.weight)
    for value in (*upload.dense.values(), *upload.rows.values()):
        if not isinstance(value, Summed):
            squares = squares + _length(value.each() if isinstance(value, Factors) else value).square()
    return squares.sqrt()


def _length(value: Tensor) -> Float[Tensor, " C"]:
    flat = value.unsqueeze(1).flatten(1)  # a number per client is a vector too
    found: Tensor = torch.linalg.vector_norm(flat, dim=1)
    return found


def choose(upload: Upload, good: Bool[Tensor, " C"]) -> Upload:
    """The uploads of some clients; of a sum taken early nothing remains unless all are chosen."""
    dense: dict[str, Tensor | Factors | Summed] = {}
    for name, value in upload.dense.items():
        if isinstance(value, Factors):
            dense[name] = Factors(value.left[good], value.right[good])
        elif isinstance(value, Summed):
            dense[name] = value if good.all() else Summed(torch.zeros_like(value.value))
        else:
            dense[name] = value[good]
    rows = {name: value[good] for name, value in upload.rows.items()}
    return replace(upload, ids=upload.ids[good], dense=dense, rows=rows, at=upload.at[good], weight=upload.weight[good])


class Amount(NamedTuple):
    """How much a node sent per client."""

    each: Float[Tensor, " k"]
    """Of every client, or the mean over all of them."""
    n_clients: int
    """How many clients each of these speaks for."""


def far_off(uploads: Sequence[Upload], settings: GateSettings, *, summed: bool) -> list[Bool[Tensor, " k"]]:
    """Which uploads of a round are far above the middle of all, in their norm or in the weight they claim.

    Args:
        uploads: of one node each.
        settings: how far is far.
        summed: whether they are sums over a node's clients, judged as a whole; else each client is.
    """
    amounts = [(_norms_sent(upload, summed=summed), _weights_sent(upload, summed=summed)) for upload in uploads]
    of_norms, of_weights = (far_above_middle([pair[kind] for pair in amounts], settings.spread) for kind in (0, 1))
    return [norm | weight for norm, weight in zip(of_norms, of_weights, strict=True)]


def _norms_sent(upload: Upload, *, summed: bool) -> Amount:
    """Per unit of weight: weights are judged apart."""
    if not summed:
        return Amount(_norms(upload).double(), 1)
    sums = [value.value.flatten().double() for value in upload.dense.values() if isinstance(value, Summed)]
    norm = torch.cat(sums).norm() if sums else torch.zeros((), dtype=torch.float64)
    return Amount(norm[None] / upload.weight.double().sum(), len(upload.ids))


def _weights_sent(upload: Upload, *, summed: bool) -> Amount:
    weight = upload.weight.double()
    return Amount(weight.mean()[None], len(weight)) if summed else Amount(weight, 1)


def far_above_middle(amounts: Sequence[Amount], spread: float) -> list[Bool[Tensor, " k"]]:
    """Which amounts are too many times what the middle of all nodes makes one expect.

    Every node has one vote, however many clients it claims: who has fewer than half of the nodes cannot move the middle
    out of the range of the others. A mean over n clients that differ by chance is shorter than one over m < n clients,
    by √(n / m) at most, so votes of larger nodes are scaled up by that. And exceptional clients even out: one of them
    may be `spread` times above the middle, a mean over n clients less, down to `OF_MANY` of it; more only where most
    nodes differ that much among each other.
    """
    if len(amounts) < FEWEST_COMPARED:
        return [torch.zeros_like(amount.each, dtype=torch.bool) for amount in amounts]
    votes = torch.stack([amount.each.quantile(0.5) for amount in amounts])
    sizes = torch.tensor([amount.n_clients for amount in amounts], dtype=votes.dtype)

    @cache
    def most(n: int) -> Float[Tensor, ""]:
        """For n clients."""
        scaled = votes * (sizes / n).clamp(min=1).sqrt()
        middle = scaled.quantile(0.5)
        usual = (scaled / middle).log().abs().quantile(0.5)
        factor = (DEVIATIONS * usual).exp().clamp(min=spread * (OF_MANY + (1 - OF_MANY) / sqrt(n)))
        return torch.where(middle > 0, middle * factor, torch.inf)  # where most send nothing, nothing can be compared

    return [each > most(n) for each, n in amounts]


class Form(NamedTuple):
    """What one client's upload must look like."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    over_items: bool
    """A table over the catalogue, whose rows a method may send apart."""


def form_of(method: Method, server: Server, problem: Problem, round: int) -> dict[str, Form]:
    """The form of an upload, computed for an invented client: nothing that arrives decides it."""
    pair = torch.tensor([[0, 1]], device=problem.device)
    first, once = np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.int32)
    rows = ItemSets(problem.n_items, np.array([0, 1]), items=first, counts=once, recency=first)
    made_up = ClientBatch(
        ids=torch.tensor([0]),
        items=pair,
        labels=problem.tensor([[1.0, 0.0]]),
        mask=torch.ones_like(pair, dtype=torch.bool),
        rows=pair,
        row_counts=1 - pair,
        row_mask=torch.ones_like(pair, dtype=torch.bool),
        slots=pair,
        history=History(rows, torch.tensor([0]), problem.device),
    )
    draws = Draws(0)
    private, down = method.init_clients(problem, made_up.ids, draws), method.broadcast(server, made_up.ids)
    upload = method.client_update(private, down, made_up, round, draws).upload
    forms = {}
    for name, value in upload.dense.items():
        one = value.value if isinstance(value, Summed) else (value.each() if isinstance(value, Factors) else value)[0]
        forms[name] = Form(tuple(one.shape), one.dtype, over_items=False)
    for name, value in upload.rows.items():
        forms[name] = Form((problem.n_items, value.shape[2]), value.dtype, over_items=True)
    return forms


def nobodys_upload(forms: Mapping[str, Form]) -> Upload:
    """What a cohort without clients sends: sums of 0, whose names and shapes a channel that adds noise must know."""
    dense = {name: torch.zeros(0, *form.shape, dtype=form.dtype) for name, form in forms.items()}
    nobody = torch.zeros(0, dtype=torch.int64)
    return Upload(nobody, dense, {}, nobody[:, None], torch.zeros(0))


def check_form(found: Tensors, forms: Mapping[str, Form], leading: tuple[int, ...]) -> None:
    """Exactly these names, with exactly these shapes and types: nothing is broadcast or cast.

    Raises:
        Refusal: something differs.
    """
    if found.keys() != forms.keys():
        raise Refusal("names")
    for name, form in forms.items():
        if found[name].shape != (*leading, *form.shape):
            raise Refusal("shape")
        if found[name].dtype != form.dtype:
            raise Refusal("dtype")


def check_clients(ids: Tensor, asked: Tensor) -> None:
    """Every client answers at most once, and only when asked.

    Raises:
        Refusal: somebody else answers, or somebody twice.
    """
    if ids.dim() != 1 or ids.dtype != torch.int64:
        raise Refusal("clients")
    if len(set(ids.tolist())) != len(ids):
        raise Refusal("twice")
    if not torch.isin(ids, asked).all():
        raise Refusal("clients")


def check_refusals(found: object, n_clients: int) -> None:
    """What a node says it left out: known reasons, each for some of the clients it was asked for.

    Raises:
        Refusal: it says something else.
    """
    counts = found.values() if isinstance(found, dict) and found.keys() <= REASONS else [None]
    if not all(type(count) is int and 0 <= count <= n_clients for count in counts):
        raise Refusal("refusals")
