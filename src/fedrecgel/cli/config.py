"""`fedrecgel config`: every setting, its default and its meaning."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from fedrecgel.cli.common import describe_fields, field_docs
from fedrecgel.errors import ConfigError, unknown

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]

EPILOG = """\
examples:
  fedrecgel config                    all of them
  fedrecgel config split              how data are held out
  fedrecgel methods fedrecgel         the hyper-parameters of a method, which stand in [method]
"""


def add_parser(subparsers: Subparsers) -> None:
    """Add `config`."""
    parser = subparsers.add_parser(
        "config",
        help="every setting, its default and meaning",
        description="What may stand in CONFIG.toml and behind --set section.key=value.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("section", nargs="?", metavar="SECTION", help="settings of this section (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_config)


def run_config(args: Namespace) -> int:
    """Print the settings of one section or of all."""
    from fedrecgel.runs.config import section_types  # here, because it imports torch

    sections = section_types()
    if args.section is not None:
        if args.section not in sections:
            raise ConfigError(unknown("section", args.section, sections))
        sections = {args.section: sections[args.section]}
    if args.json:
        print(json.dumps({name: _facts(kind) for name, kind in sections.items()}, indent=1))
    else:
        print("\n\n".join(_text(name, kind) for name, kind in sections.items()))
    return 0


def _facts(kind: Any) -> dict[str, Any]:
    docs = field_docs(kind)
    return {
        entry.name: {"default": None if entry.default is MISSING else entry.default, "meaning": docs[entry.name]}
        for entry in fields(kind)
        if entry.name != "options"
    }


def _text(name: str, kind: type) -> str:
    lines = [f"[{name}]  {(kind.__doc__ or '').splitlines()[0]}", describe_fields(kind, prefix=f"{name}.")]
    if name == "method":
        lines.append("    … and the hyper-parameters of the method: `fedrecgel methods NAME` lists them.")
    return "\n".join(lines)
