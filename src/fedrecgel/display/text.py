"""Text that others wrote, such as the name of a data set: escaped for the place where it is shown."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable

INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but tab and line ends, marks that turn the direction of writing, and halves of characters."""
LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}"}
LATEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
LATEX |= {"±": r"$\pm$", "▲": r"$^{\uparrow}$", "▼": r"$^{\downarrow}$", "≈": r"$^{\approx}$"}
LATEX |= {"ρ": r"$\rho$", "Δ": r"$\Delta$", "λ": r"$\lambda$", "−": "$-$", "…": r"\dots{}", "–": "--"}
LATEX |= {"×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "∞": r"$\infty$", "→": r"$\to$", "←": r"$\gets$"}
LATEX |= {"ε": r"$\varepsilon$", "δ": r"$\delta$", "σ": r"$\sigma$", "θ": r"$\theta$"}
RAISED = dict(zip("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True))
LATEX |= {raised: f"$^{digit}$" for digit, raised in RAISED.items()}
LONGEST_SLUG = 60
"""In characters: at four bytes each, file systems still take it with a suffix."""
RESERVED = {"con", "prn", "aux", "nul", *(f"{port}{digit}" for port in ("com", "lpt") for digit in range(10))}
"""Windows opens devices by these names, whatever the suffix."""


def visible(text: str) -> str:
    r"""The text with its invisible characters written out, so that none can steer a terminal or hide a name.

    >>> visible("a\x1b[2Jb")
    'a\\u001b[2Jb'
    """
    return INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def one_line(text: str) -> str:
    """The same, on one line."""
    return re.sub(r"\s*[\r\n]\s*", " ", visible(text))


def in_html(text: str) -> str:
    """As text of an element or value of a quoted attribute."""
    return html.escape(visible(text))


def in_latex(text: str) -> str:
    """As text; no character is left that LaTeX would obey."""
    return re.sub("|".join(map(re.escape, LATEX)), lambda match: LATEX[match[0]], one_line(text))


def in_markdown(text: str) -> str:
    r"""As text of a paragraph or a table cell: no tag, link, code or end of the cell.

    >>> in_markdown("rho_co [+1] <b> [x](y) a|b")
    'rho_co [+1] \\<b> [x\\](y) a\\|b'
    """
    special = r"[\\|`<]|&(?=#?\w+;)|\](?=[(\[:])|(?<!\w)_|_(?!\w)|~"
    if text.count("*") > 1:  # a single one marks nothing
        special += r"|\*"
    return re.sub(special, lambda match: "\\" + match[0], one_line(text))


def prose(text: str) -> str:
    r"""The same, but for words between backticks, which are code.

    >>> prose("found by `fedrecgel tune`, a|b"), prose("one ` alone")
    ('found by `fedrecgel tune`, a\\|b', 'one \\` alone')
    """
    parts = text.split("`")
    if len(parts) % 2 == 0 or not all(parts[1::2]):
        return in_markdown(text)
    return "".join(markdown_code(part) if place % 2 else in_markdown(part) for place, part in enumerate(parts))


def markdown_code(text: str) -> str:
    """As code, between more backticks than it holds in a row."""
    line = one_line(text)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    room = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{room}{line}{room}{fence}"


def slug(text: str, taken: Collection[str] = ()) -> str:
    """A file name without its suffix: letters, digits and -._=+ only, no leading dot, and none of those taken.

    >>> slug("main-a/../../b"), slug(".."), slug("NUL"), slug("a/b", taken={"a-b"})
    ('main-a-..-..-b', 'unnamed', 'NUL_', 'a-b-2')
    """
    name = re.sub(r"[^\w.=+-]+", "-", text).lstrip(".-")[:LONGEST_SLUG].rstrip(".") or "unnamed"
    first, dot, rest = name.partition(".")
    name = f"{first}_{dot}{rest}" if first.lower() in RESERVED else name
    found, number = name, 1
    while found.casefold() in {other.casefold() for other in taken}:  # some file systems do not tell a from A
        number += 1
        found = f"{name}-{number}"
    return found


def slugs(names: Iterable[str]) -> list[str]:
    """A file name for each of these, none of them twice.

    >>> slugs(["a/b", "a-b", "c"])
    ['a-b', 'a-b-2', 'c']
    """
    found: list[str] = []
    for name in names:
        found.append(slug(name, found))
    return found
