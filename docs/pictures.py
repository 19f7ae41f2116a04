"""Draw what stays on a device and what leaves it: one picture for all, one for each method from the registry.

Every word stands on a filled shape, so that the pictures can be read on light and on dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import torch

from fedrecgel.draws import Draws
from fedrecgel.methods import METHODS
from fedrecgel.methods.base import Method
from fedrecgel.methods.messages import Need, Problem

ASSETS = Path(__file__).parent / "assets"
STAYS, LEAVES, SERVER = "#1b5e57", "#8a3b12", "#23407a"
FONT = "font-family='system-ui, Segoe UI, Helvetica, Arial, sans-serif'"
HEADING = "#4a4a4a"
NETWORK = re.compile(r"(?:w|b)\d?(?:_\w+)?$|out_\w+$")
MEANINGS = {
    "network": "the score network",
    "items": "the item table",
    "item_gmf": "the item table",
    "item_mlp": "the item table",
    "item": "the item table",
    "user": "the user vector",
    "user_gmf": "the user vector",
    "user_mlp": "the user vector",
    "common": "the common item table",
    "personal": "a personal item table",
    "local": "a personal model",
    "counts": "item counts",
    "interactions": "every click",
    "user_m": "optimiser state",
    "user_v": "optimiser state",
    "user_steps": "optimiser state",
    "degree": "how many users an item has",
    "neighbours": "which items go together",
    "label": "who is in which group",
    "labels": "who is in which group",
    "group_of": "who is in which group",
    "groups": "item tables of groups",
    "trained_label": "who is in which group",
    "trained_on": "who is in which group",
    "models": "models of groups",
    "touched": "which rows changed",
    "weight": "how many examples it has",
    "decay": "how fast tables shrink",
    "pull": "how strong similar users pull",
    "similarity": "how alike items are",
    "spectrum": "products with eigenvectors",
    "gram": "products of user vectors",
    "weighted_gram": "products of user vectors",
    "targets": "sums of user vectors by item",
    "votes": "which mixture suits it",
    "mixture": "the chosen mixture",
    "filter": "the graph filter",
    "vectors": "eigenvectors of the items",
    "values": "their eigenvalues",
    "recent": "what was popular lately",
    "weights": "weights between items",
    "trained": "",
    "round": "",
}
"""Plain words for names of tensors; others are shown as they are."""
CHANNEL_ROWS = {
    "plain": ("the upload", ("every upload", "and in it your history"), ("the model",)),
    "secagg": ("a masked upload", ("the sum of the cohort", "and who takes part"), ("the model",)),
    "bfv": ("a ciphertext", ("nothing it can read", "but who takes part"), ("the model", "on devices alone")),
    "dp": ("a clipped upload", ("every upload", "it is trusted to add noise"), ("a noisy model",)),
    "secagg+dp": ("masked and noisy", ("a noisy sum", "and who takes part"), ("a noisy model",)),
    "local-dp": ("a noisy upload", ("a noisy upload", "and who takes part"), ("a noisy model",)),
}
"""By channel: what is on the way, what the server sees, what everybody gets."""
NEEDS = {
    Need.LINEAR: ("needs the sum of all uploads,", "which may stay encrypted"),
    Need.SUM: ("needs the sum of all uploads",),
    Need.EACH: ("needs every single upload",),
}


def words(names: Iterable[str]) -> list[str]:
    """What tensors of these names are, each thing once."""
    plain = [re.sub(r":.*|^stacks:", "", name.removeprefix("stacks:")) for name in names]
    known = ["network" if NETWORK.match(name) else name for name in plain if name]
    said = (MEANINGS.get(name, name.replace("_", " ")) for name in known)
    return list(dict.fromkeys(word for word in said if word))


def box(x: int, y: int, width: int, colour: str, title: str, lines: Sequence[str], height: int = 0) -> str:
    """A filled shape with a title and lines of text, as high as these need or higher."""
    height = max(height, 44 + 22 * len(lines))
    parts = [f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='12' fill='{colour}'/>"]
    parts.append(f"<text x='{x + 16}' y='{y + 28}' fill='#fff' font-size='17' font-weight='700'>{escape(title)}</text>")
    for number, line in enumerate(lines):
        place = f"x='{x + 16}' y='{y + 52 + 22 * number}'"
        parts.append(f"<text {place} fill='#fff' font-size='15'>{escape(line)}</text>")
    return "".join(parts)


def arrow(x1: int, y: int, x2: int, colour: str) -> str:
    """A thick horizontal arrow with its head at x2."""
    head = 12 if x2 > x1 else -12
    points = f"{x2},{y} {x2 - head},{y - 8} {x2 - head},{y + 8}"
    line = f"<line x1='{x1}' y1='{y}' x2='{x2 - head}' y2='{y}' stroke='{colour}' stroke-width='4'/>"
    return f"{line}<polygon points='{points}' fill='{colour}'/>"


def picture(
    title: str, stays: Sequence[str], leaves: Sequence[str], back: Sequence[str], server: Sequence[str], *, name: str
) -> str:
    """A device, what it sends, what comes back, and a server."""
    middle, width = 334, 272
    down = 24 + 44 + 22 * len(leaves) + 16
    inside = max(down + 44 + 22 * len(back) - 24, 44 + 22 * max(len(stays), len(server)))
    height = inside + 48
    content = [
        box(16, 24, 264, STAYS, title, stays, inside),
        box(middle, 24, width, LEAVES, "leaves the device", leaves),
        arrow(282, 46, middle - 2, LEAVES),
        arrow(middle + width + 2, 46, 658, LEAVES),
        box(middle, down, width, SERVER, "comes back", back),
        arrow(middle - 2, down + 22, 282, SERVER),
        arrow(658, down + 22, middle + width + 2, SERVER),
        box(660, 24, 284, SERVER, "the server", server, inside),
    ]
    sized = f"viewBox='0 0 960 {height}' width='960' height='{height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {sized} role='img' {FONT}>"
    return f"{head}<title>{escape(name)}</title>{''.join(content)}</svg>\n"


def method_picture(name: str, kind: type[Method]) -> str:
    """What a method keeps, sends and shares, as its code says."""
    method, problem, draws = kind(), Problem(n_clients=4, n_items=6), Draws(0)
    server = method.init_server(problem, draws)
    private = words(sorted(method.init_clients(problem, torch.arange(4), draws).pack()))
    sent = words(sorted(method.leaves_device()))
    clicks = [] if kind.kind == "centralised" else ["the clicks"]
    stays = [*clicks, *private] or ["nothing of its own"]
    shared = words(sorted(server.shared))
    return picture("stays on the device", stays, sent, shared, [*NEEDS[method.server_needs]], name=name)


def overview_picture() -> str:
    """What all federated methods have in common."""
    return picture(
        "stays on the device",
        ["every click", "the user's own vector or model", "the recommendations"],
        ["what was learnt about items:", "plain, masked, encrypted,", "or with noise"],
        ["the item model"],
        [
            "adds up what devices learnt",
            "is sent no list of clicks",
            "",
            "reads clicks off plain uploads;",
            "with --channel secagg: only sums",
        ],
        name="What leaves a device and what stays",
    )


def channels_picture() -> str:
    """Who sees what, channel by channel."""
    places = ((234, 220), (488, 260), (782, 178))
    content = []
    for (x, width), title in zip(places, ("on the way", "the server sees", "everybody gets"), strict=True):
        content.append(box(x, 24, width, HEADING, title, ()))
    for number, (channel, (way, server, everybody)) in enumerate(CHANNEL_ROWS.items()):
        y = 84 + 76 * number
        reads = LEAVES if server[0] == "every upload" else SERVER
        content += [
            arrow(202, y + 33, 232, LEAVES),
            box(234, y, 220, LEAVES, channel, (way,)),
            arrow(456, y + 33, 486, LEAVES),
            box(488, y, 260, reads, server[0], server[1:]),
            arrow(750, y + 33, 780, SERVER),
            box(782, y, 178, SERVER, everybody[0], everybody[1:], 66),
        ]
    height = 84 + 76 * len(CHANNEL_ROWS) + 14
    content.append(
        box(
            16,
            24,
            184,
            STAYS,
            "your device",
            ["history", "own vector", "recommendations", "", "never leave it"],
            height - 48,
        )
    )
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 976 {height}' width='976' height='{height}' "
    return f"{head}role='img' {FONT}><title>Who sees what, by channel</title>{''.join(content)}</svg>\n"


def pictures() -> dict[Path, str]:
    """Every picture of the documentation by its file."""
    drawn = {ASSETS / "methods" / f"{name}.svg": method_picture(name, kind) for name, kind in METHODS.items()}
    overviews = {ASSETS / "what-leaves.svg": overview_picture(), ASSETS / "who-sees-what.svg": channels_picture()}
    return overviews | drawn
