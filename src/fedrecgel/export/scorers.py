"""Forms a model can have on a device: tables and settings in, scores of the whole catalogue out, by NumPy alone.

A bundle carries a copy of this file as fedrecgel_scorers.py, so it imports nothing of the package that wrote it and is
one file whatever its length. The page has the same forms in page/model.js.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

LEVEL = 1e-12
"""Scores whose variance is below this share of their mean square are all the same but for rounding."""
LAST_RANK, DRAWN, SAME = 10, 99, 1e-4
"""A vote is NDCG at this rank, among all items and among so many; scores no farther apart tie."""
Array = np.ndarray[Any, np.dtype[Any]]
Private = dict[str, Array]


class DeviceError(Exception):
    """What should be, what was found, the way out."""


class Own(NamedTuple):
    """What the device knows of its user."""

    items: Array
    """Distinct items, ascending, as numbers of the catalogue."""
    counts: Array
    """How often each occurs."""
    later: Array
    """How many own items came later."""

    @classmethod
    def of(cls, history: list[int]) -> Own:
        """From the numbers of items, oldest first, repeats included."""
        items, counts = np.unique(np.array(history, dtype=np.int64), return_counts=True)
        place = {item: number for number, item in enumerate(dict.fromkeys(reversed(history)))}
        return cls(items, counts, np.array([place[item] for item in items.tolist()], dtype=np.float64))

    def fade(self, decay: float) -> Array:
        """(1 + number of later own items)^-decay."""
        faded: Array = (1 + self.later) ** -decay
        return faded

    def latest(self, most: int) -> Own:
        """At most so many items, those of last."""
        kept = self.later < most
        return Own(self.items[kept], self.counts[kept], self.later[kept])

    def without_latest(self) -> Own:
        """As if the device did not know the latest of several items."""
        kept = self.later > 0 if len(self.items) > 1 else self.later >= 0
        return Own(self.items[kept], self.counts[kept], np.maximum(self.later[kept] - (len(self.items) > 1), 0))


class Scorer:
    """Base of all forms a model can have: tables and settings in, scores of the whole catalogue out."""

    def __init__(self, tables: Mapping[str, Array], settings: Mapping[str, Any], n_items: int) -> None:
        self.tables, self.settings, self.n_items = tables, settings, n_items

    def fold_in(self, own: Own) -> Private:
        """The private part, learnt from the own items with everything shared frozen."""
        return {}

    def scores(self, own: Own, private: Private) -> Array:
        """Of every item."""
        raise NotImplementedError

    def shares(self, own: Own, private: Private, item: int) -> Array | None:
        """What each own item adds to the score of an item; None where the model does not tell."""
        return None

    def upload(self, own: Own, what: str, hold_back: bool) -> dict[str, Array] | None:
        """What a client would send, without the latest item if one is held back; None if it has no closed form."""
        return None


class Popularity(Scorer):
    """Counts, the same for everybody."""

    def scores(self, own: Own, private: Private) -> Array:
        """The count itself."""
        counts: Array = self.tables["counts"][:, 0]
        return counts

    def upload(self, own: Own, what: str, hold_back: bool) -> dict[str, Array] | None:
        """How often each item occurs."""
        return {"counts": _spread(own, own.counts[:, None], self.n_items)} if what == "counts" else None


class Rows(Scorer):
    """Every own item has a row of weights for all items: EASE, GF-CF."""

    def scores(self, own: Own, private: Private) -> Array:
        """The sum of the own rows."""
        scores: Array = own.fade(self.settings["decay"]).astype(np.float32) @ self.tables["rows"][own.items]
        return scores

    def shares(self, own: Own, private: Private, item: int) -> Array:
        """The entries of that sum."""
        shares: Array = own.fade(self.settings["decay"]) * self.tables["rows"][own.items, item]
        return shares


class Neighbours(Scorer):
    """Every own item votes for a few neighbours: ItemKNN."""

    def scores(self, own: Own, private: Private) -> Array:
        """The votes."""
        found = np.zeros(self.n_items)
        loud = self.tables["similarity"][own.items] * own.fade(self.settings["decay"])[:, None]
        np.add.at(found, self.tables["neighbours"][own.items], loud)
        return found

    def shares(self, own: Own, private: Private, item: int) -> Array:
        """The votes for this item."""
        loud = self.tables["similarity"][own.items] * own.fade(self.settings["decay"])[:, None]
        shares: Array = (loud * (self.tables["neighbours"][own.items] == item)).sum(1)
        return shares


class Factors(Scorer):
    """Item vectors; the user's is a ridge regression on the own items: iALS."""

    def __init__(self, tables: Mapping[str, Array], settings: Mapping[str, Any], n_items: int) -> None:
        super().__init__(tables, settings, n_items)
        self.items = tables["items"].astype(np.float64)
        self.gram = self.items.T @ self.items

    def scores(self, own: Own, private: Private) -> Array:
        """Item vectors times the user's."""
        left, right = self._system(own)
        scores: Array = self.items @ np.linalg.solve(left, right.sum(0))
        return scores

    def shares(self, own: Own, private: Private, item: int) -> Array:
        """The regression is a sum over own items."""
        left, right = self._system(own)
        shares: Array = right @ np.linalg.solve(left, self.items[item])
        return shares

    def _system(self, own: Own) -> tuple[Array, Array]:
        """The matrix of the regression, and what each own item adds to its right side."""
        more = self.settings["alpha"] * own.counts * own.fade(self.settings["decay"])
        y = self.items[own.items]
        penalty = self.settings["reg"] * (self.n_items + more.sum()) ** self.settings["nu"]
        return self.gram + (y * more[:, None]).T @ y + penalty * np.eye(len(self.gram)), (more + 1)[:, None] * y


class Spectra(Scorer):
    """A filter, a factorisation, popularity and freshness, mixed; docs/methods/spectra.md has the formulas."""

    def __init__(self, tables: Mapping[str, Array], settings: Mapping[str, Any], n_items: int) -> None:
        super().__init__(tables, settings, n_items)
        counts, recent = (tables[name][:, 0].astype(np.float64) for name in ("counts", "recent"))
        self.damping = np.maximum(counts, 1) ** -settings["item_power"]
        usual = recent.sum() / counts.sum() if counts.any() else 1.0
        self.popularity, _ = _standardise(np.log(counts + 1))
        self.freshness, _ = _standardise(np.log((recent + usual) / (counts + 1)))  # Eq. 13
        self.items = tables["items"].astype(np.float64)
        self.gram = self.items.T @ self.items

    def scores(self, own: Own, private: Private) -> Array:
        """The mixture of the parts (Eq. 7)."""
        return self._mix(own, self.settings["mixture"])

    def common(self, mixture: Mapping[str, float]) -> Array:
        """What does not depend on the user."""
        common: Array = mixture["popularity"] * self.popularity + mixture["freshness"] * self.freshness
        return common

    def _mix(self, own: Own, mixture: Mapping[str, float]) -> Array:
        mixed = self.common(mixture)
        for name, part in self._parts(own, mixture).items():
            mixed = mixed + mixture[name] * _standardise(part)[0]
        return mixed

    def _parts(self, own: Own, mixture: Mapping[str, float]) -> dict[str, Array]:
        """Scores before they are standardised."""
        parts = {
            "filter": self.tables["vectors"] @ self._queries(own, mixture).sum(0).astype(np.float32),
            "factors": self.items @ self._user(own, self._weigh(own, mixture["decay"])),
        }
        if "pairs" in self.tables:
            parts["pairs"] = (self._pair_weights(own, mixture) @ self.tables["pairs"][own.items]) * self.damping
        return parts

    def shares(self, own: Own, private: Private, item: int) -> Array:
        """Every part is a sum over own items, up to a constant."""
        mixture = self.settings["mixture"]
        left, right = self._system(own, self._weigh(own, mixture["decay"]))
        terms = {
            "filter": self._queries(own, mixture) @ self.tables["vectors"][item],
            "factors": right @ np.linalg.solve(left, self.items[item]),
        }
        if "pairs" in self.tables:
            column = self.tables["pairs"][own.items, item]
            terms["pairs"] = self._pair_weights(own, mixture) * column * self.damping[item]
        shares = np.zeros(len(own.items))
        for name, part in self._parts(own, mixture).items():
            shares += mixture[name] * _standardise(part)[1] * terms[name]
        return shares

    def _weigh(self, own: Own, decay: float = 0.0) -> Array:
        """An item says less of a user who has many."""
        weights: Array = max(len(own.items), 1) ** -self.settings["user_power"] * own.fade(decay)
        return weights

    def _queries(self, own: Own, mixture: Mapping[str, float]) -> Array:
        """What each own item adds to the vector that eigenvectors are multiplied by (Eq. 8)."""
        values = self.tables["values"].astype(np.float64)
        response = values / (values + mixture["strength"] * values[0]) if values[0] > 0 else np.zeros_like(values)
        weights = own.fade(mixture["decay"]) * self.damping[own.items]
        queries: Array = weights[:, None] * self.tables["vectors"][own.items] * response
        return queries

    def _pair_weights(self, own: Own, mixture: Mapping[str, float]) -> Array:
        weights: Array = own.fade(mixture["decay"]) * self.damping[own.items] ** 2
        return weights

    def _system(self, own: Own, weights: Array) -> tuple[Array, Array]:
        """The matrix of the factorisation's regression, and what each own item adds to its right side (Eq. 4)."""
        y, more = self.items[own.items], self.settings["alpha"] * weights
        penalty = self.settings["reg"] * (self.n_items + more.sum())
        return self.gram + (y * more[:, None]).T @ y + penalty * np.eye(len(self.gram)), (more + 1)[:, None] * y

    def _user(self, own: Own, weights: Array) -> Array:
        left, right = self._system(own, weights)
        user: Array = np.linalg.solve(left, right.sum(0))
        return user

    def upload(self, own: Own, what: str, hold_back: bool) -> dict[str, Array] | None:
        """The own term of a sum: `counts`, `spectrum` (Eq. 1), `factors` (Eq. 5), `pairs` (Eq. 11) or `votes`."""
        if what == "votes":
            return {"votes": self._votes(own)}
        everything, own = own, own.without_latest() if hold_back else own
        weights = self._weigh(own)
        if what == "counts":
            both = [_spread(rows, self._counted(rows), self.n_items) for rows in (own, everything)]
            return {"counts": np.hstack(both)}
        if what == "spectrum":
            a = weights * self.damping[own.items]
            return {"spectrum": _spread(own, a[:, None] * (a @ self.tables["vectors"][own.items]), self.n_items)}
        if what == "factors":
            more, user, y = self.settings["alpha"] * weights, self._user(own, weights), self.items[own.items]
            targets, gram = (1 + more - more * (y @ user))[:, None] * user, np.outer(user, user)
            spread = _spread(own, targets, self.n_items)
            return {"targets": spread, "gram": gram, "weighted_gram": weights.sum() * gram}
        if what == "pairs" and "pairs" in self.tables:
            mine = _spread(own, weights[:, None], self.n_items)
            return {"pairs": mine @ mine.T}
        return None

    def _counted(self, own: Own) -> Array:
        """An item, what is left of it after fading, and its weight."""
        return np.stack([np.ones(len(own.items)), own.fade(self.settings["fade"]), self._weigh(own)], 1)

    def _votes(self, own: Own) -> Array:
        """What each mixture gains by the rank it gives the latest item among those the user does not have (Eq. 10)."""
        votes = np.zeros(len(self.settings["grid"]))
        if len(own.items) < 2:
            return votes
        rest, target = own.without_latest(), own.items[int(np.argmin(own.later))]
        for number, mixture in enumerate(self.settings["grid"]):
            mixed = self._mix(rest, mixture)
            ahead = np.delete(mixed - mixed[target], own.items)
            votes[number] = _gain((ahead > SAME).sum() + (np.abs(ahead) <= SAME).sum() / 2, len(ahead))
        return votes


def _gain(rank: float, n_others: int) -> float:
    """NDCG@10 among all other items, plus what is to be expected of it among 99 of them drawn at random."""
    share = rank / max(n_others, 1)
    chances = (math.comb(DRAWN, above) * share**above * (1 - share) ** (DRAWN - above) for above in range(LAST_RANK))
    expected = sum(chance / math.log2(above + 2) for above, chance in enumerate(chances))
    return expected + (1 / math.log2(rank + 2) if rank < LAST_RANK else 0)


class Learnt(Scorer):
    """A user vector, learnt in a few local rounds from own items and drawn negatives."""

    closeness: tuple[str, ...] = ("items",)
    """Tables in which items with nearly the same direction are near."""

    def logits(self, user: Array, at: Array | slice) -> Array:
        """Scores of some items."""
        raise NotImplementedError

    def slope(self, user: Array, at: Array, error: Array) -> Array:
        """The gradient by the user vector, from that by the scores."""
        raise NotImplementedError

    def scores(self, own: Own, private: Private) -> Array:
        """Of every item with the own vector."""
        return self.logits(private["user"], slice(None))

    def shares(self, own: Own, private: Private, item: int) -> Array:
        """Cosines of item vectors: which own items the model holds for similar."""
        shares = np.zeros(len(own.items))
        for name in self.closeness:
            rows, row = self.tables[name][own.items].astype(np.float64), self.tables[name][item].astype(np.float64)
            norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(row)
            shares += rows @ row / np.where(norms > 0, norms, 1)
        return shares

    def fold_in(self, own: Own) -> Private:
        """The vector after all rounds."""
        how = self.settings["fold_in"]
        step = {"strides": self._strides, "gradient": self._gradient}[how["kind"]]
        user, moments = self.tables["start"].astype(np.float64), np.zeros((2, len(self.tables["start"])))
        for number in range(how["rounds"]):
            user, moments = step(user, moments, self._examples(own, number), number)
        return {"user": user}

    def _examples(self, own: Own, number: int) -> Array:
        """Positives in a drawn order, each followed by its negatives; row 1 holds labels."""
        how = self.settings["fold_in"]
        k, number = how["negatives"], number if how["redraw"] else 0
        learnt = own.latest(how.get("latest", len(own.items)))
        items = np.repeat(learnt.items, learnt.counts) if how["repeats"] else learnt.items
        free = self.n_items - len(own.items)
        if free < k:
            raise DeviceError(f"Learning needs {k} items that the user does not have. Found {free}.")
        order = np.argsort(_uniform(how["order"][number], np.arange(len(items))), kind="stable")
        chance = _uniform(how["others"][number], order[:, None] * k + np.arange(k)) if k else np.empty((len(items), 0))
        ranks = np.empty((len(items), k), dtype=np.int64)
        for i in range(k):  # Floyd's algorithm: distinct ranks among the items that the user does not have
            top = free - k + i
            pick = (chance[:, i] * (top + 1)).astype(np.int64)
            ranks[:, i] = np.where((ranks[:, :i] == pick[:, None]).any(1), top, pick)
        others = ranks + np.searchsorted(own.items - np.arange(len(own.items)), ranks, side="right")
        drawn = np.hstack([items[order][:, None], others])
        return np.stack([drawn, np.arange(1 + k) == np.zeros((len(items), 1))]).reshape(2, -1)

    def _error(self, scores: Array, labels: Array) -> Array:
        error: Array = (
            2 * (scores - labels) if self.settings["fold_in"].get("squared") else 1 / (1 + np.exp(-scores)) - labels
        )
        return error

    def _strides(self, user: Array, moments: Array, examples: Array, number: int) -> tuple[Array, Array]:
        """A step for each of a few equal parts of the examples."""
        how, size = self.settings["fold_in"], examples.shape[1]
        part = np.arange(size) * how["strides"] // size
        for stride in range(how["strides"]):
            items, labels = examples[:, part == stride]
            slope = self.slope(user, items, self._error(self.logits(user, items), labels))
            user = (1 - 2 * how["lr"] * how["reg"] * len(items)) * user - how["lr"] * slope
        return user, moments

    def _gradient(self, user: Array, moments: Array, examples: Array, number: int) -> tuple[Array, Array]:
        """One step of Adam or plain descent, with the gradient where the loss is worst in a ball around the vector."""
        how, (items, labels) = self.settings["fold_in"], examples
        chunk = how["chunk"] or len(items)
        first = np.arange(len(items)) // chunk * chunk
        weights = 1 / np.minimum(len(items) - first, chunk)
        slope = self.slope(user, items, weights * self._error(self.logits(user, items), labels))
        if how["rho"] > 0:
            worst = user + how["rho"] * slope / (np.linalg.norm(slope) + how["epsilon"])
            slope = self.slope(worst, items, weights * self._error(self.logits(worst, items), labels))
        slope = slope + how.get("reg", 0.0) / max(len(items), 1) * user
        if not how["adam"]:
            return user - how["lr"] * slope, moments
        beta1, beta2, small = how["adam"]
        moments = np.stack([beta1 * moments[0] + (1 - beta1) * slope, beta2 * moments[1] + (1 - beta2) * slope**2])
        first, second = moments[0] / (1 - beta1 ** (number + 1)), moments[1] / (1 - beta2 ** (number + 1))
        return user - how["lr"] * first / (np.sqrt(second) + small), moments


class Dot(Learnt):
    """User vector times item vector: FedMF."""

    def logits(self, user: Array, at: Array | slice) -> Array:
        """The product."""
        scores: Array = self.tables["items"][at] @ user
        return scores

    def slope(self, user: Array, at: Array, error: Array) -> Array:
        """The items, as heavy as their errors."""
        slope: Array = error @ self.tables["items"][at]
        return slope


class MF(Learnt):
    """A dot product with biases."""

    closeness = ("item",)

    def logits(self, user: Array, at: Array | slice) -> Array:
        """User and item, and what each has by itself."""
        biases = self.tables["item_bias"][at, 0] + user[-1] + self.tables["bias"][0, 0]
        scores: Array = self.tables["item"][at] @ user[:-1] + biases
        return scores

    def slope(self, user: Array, at: Array, error: Array) -> Array:
        """By the vector and by the bias."""
        return np.append(error @ self.tables["item"][at], error.sum())


class NeuMF(Learnt):
    """A product and a tower of three layers."""

    closeness = ("item_gmf", "item_mlp")

    def __init__(self, tables: Mapping[str, Array], settings: Mapping[str, Any], n_items: int) -> None:
        super().__init__(tables, settings, n_items)
        wide = {name: table.astype(np.float64) for name, table in tables.items() if not name.startswith("item")}
        self.net, self.dim = wide, tables["item_gmf"].shape[1]
        self.half = tables["item_mlp"] @ tables["w1_item"].T

    def logits(self, user: Array, at: Array | slice) -> Array:
        """Of the product and the tower's end."""
        gmf = self.tables["item_gmf"][at] @ (user[: self.dim] * self.net["out_gmf"][:, 0])
        scores: Array = gmf + self._tower(user, at)[-1] @ self.net["out_mlp"][:, 0] + self.net["out_bias"][0, 0]
        return scores

    def _tower(self, user: Array, at: Array | slice) -> list[Array]:
        """What each layer puts out."""
        first = self.half[at] + (self.net["w1_user"] @ user[self.dim :] + self.net["b1"][0])
        layers = [np.maximum(first, 0)]
        for layer in ("2", "3"):
            layers.append(np.maximum(layers[-1] @ self.net[f"w{layer}"].T + self.net[f"b{layer}"], 0))
        return layers

    def slope(self, user: Array, at: Array, error: Array) -> Array:
        """Back through the tower to its user half."""
        first, second, third = self._tower(user, at)
        back = error[:, None] * self.net["out_mlp"][:, 0] * (third > 0)
        back = (back @ self.net["w3"]) * (second > 0)
        back = (back @ self.net["w2"]) * (first > 0)
        gmf = (error @ self.tables["item_gmf"][at]) * self.net["out_gmf"][:, 0]
        return np.concatenate([gmf, back.sum(0) @ self.net["w1_user"]])


def _standardise(scores: Array) -> tuple[Array, float]:
    """Mean 0 and deviation 1 over the catalogue, and what was multiplied by; 0 where all are the same."""
    wide = scores.astype(np.float64)
    mean, variance = float(wide.mean()), float(wide.var())
    scale = 0.0 if variance <= LEVEL * (variance + mean * mean) else variance**-0.5
    return (wide - mean) * scale, scale


def _spread(own: Own, rows: Array, n_items: int) -> Array:
    """Rows of own items in a table of the whole catalogue, as it travels."""
    table = np.zeros((n_items, rows.shape[1]))
    table[own.items] = rows
    return table


def _uniform(stream: str, counters: Array) -> Array:
    """Numbers in [0, 1) of a stream, by SplitMix64: the same on every device and in every language."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    x = np.uint64(int(stream, 16)) + golden * (counters.astype(np.uint64) + np.uint64(1))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    uniform: Array = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


FORMS: dict[str, type[Scorer]] = {
    "popularity": Popularity,
    "rows": Rows,
    "neighbours": Neighbours,
    "factors": Factors,
    "spectra": Spectra,
    "dot": Dot,
    "mf": MF,
    "neumf": NeuMF,
}
"""Every form by its name in a manifest."""
