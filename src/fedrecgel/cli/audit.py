"""`fedrecgel audit`: attacks on what a run's channel reveals."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from fedrecgel.audit.record import record_of, write_audit
from fedrecgel.audit.scene import Scene
from fedrecgel.audit.verdict import BY_ROUND, INCOMPLETE, NONE, SMALL, Audit, audit_run, claimed_epsilon
from fedrecgel.cli.common import add_set_option, config_of
from fedrecgel.errors import ConfigError
from fedrecgel.runs.folder import RunFolder
from fedrecgel.runs.train import load_split

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Subparsers = _SubParsersAction[ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add `audit`."""
    parser = subparsers.add_parser(
        "audit",
        help="attack what a channel reveals of users",
        description="Play a curious server, a canary and malicious clients against the settings of a run. Rounds are "
        "run again in this process. For a run folder with its own settings the outcome is written to audit.json in "
        "it, and `fedrecgel report` shows it.",
        epilog="Attacks guess each user's training items. F1 alone says little, because popular items are easily "
        "guessed: the advantage is what the guess gains over popularity, with a 95% interval over users.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", metavar="RUN|CONFIG", help="a run folder, or a config file")
    parser.add_argument("--dataset", metavar="NAME|PATH", help="other data than the config names")
    parser.add_argument("--method", metavar="NAME", help="another method")
    parser.add_argument("--channel", metavar="NAME", help="another channel")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with the raw files of named data sets")
    add_set_option(parser)
    parser.add_argument("--no-promotion", action="store_true", help="leave out malicious clients, the longest part")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run_audit)


def run_audit(args: Namespace) -> int:
    """Attack, and say what came of it."""
    place = Path(args.config)
    own = place.is_dir() and not (args.dataset or args.method or args.channel or args.assignments)
    if place.is_dir():
        args.config = RunFolder(place).config
        if not args.config.exists():
            raise ConfigError(f"RUN should be a run folder. '{place}' has no config.toml.")
    config = config_of(args)
    scene = Scene(config, load_split(config))

    def tell(text: str) -> None:
        if not args.json:
            print(text, file=sys.stderr)

    found = audit_run(scene, tell, promotion=not args.no_promotion)
    if own:  # other settings would be those of another run
        path = write_audit(place, record_of(found, claimed_epsilon(scene) if found.noise_p is not None else None))
        tell(f"Written to {path}.")
    print(json.dumps(found.to_dict(), indent=1) if args.json else describe(found, scene))
    return 0


def describe(found: Audit, scene: Scene) -> str:
    """Everything in a few lines."""
    about = scene.config
    lines = [
        f"{about.method.name} on {about.data.name}, channel {found.channel}, {found.cohort:,} clients a round",
        f"{'attack':<20}{'F1':>8}{'popularity':>12}{'advantage':>11}{'95% interval':>18}",
    ]
    rows = {**found.attacks, **{f"sum of {n:,}": one for n, one in found.by_cohort.items()}}
    for name, one in rows.items():
        interval = f"{one.low:+.3f} to {one.high:+.3f}"
        words = name.replace("_", " ")
        lines.append(f"{words:<20}{one.f1:>8.3f}{one.popularity_f1:>12.3f}{one.advantage:>+11.3f}{interval:>18}")
    if found.by_cohort and scene.sums_are_exact:
        least = found.smallest_cohort
        lines.append(
            f"Smallest cohort whose sums give at most {SMALL:g} away: {least:,}."
            if least is not None
            else f"No cohort up to {max(found.by_cohort):,} keeps the advantage at {SMALL:g}."
        )
    if found.epsilon_lower_bound is not None and found.noise_p is not None:
        lines.append(
            f"Canaries show epsilon of a round to be at least {found.epsilon_lower_bound:.2f}; claimed for who takes "
            f"part: {claimed_epsilon(scene):.2f}. Size of the noise: p = {found.noise_p:.3g}."
        )
    lines += [
        f"Promotion, malicious {name}: ER@10 {100 * one.er:.1f}, HR@10 {100 * one.hr:.2f}"
        for name, one in found.promotion.items()
    ]
    if found.promotion_error is not None:
        lines.append(f"{INCOMPLETE if found.promotion else NONE} {found.promotion_error}")
    if {"0%", f"0%{BY_ROUND}"} <= found.promotion.keys():
        by_round = ", ".join(f"{limit:.3g}" for limit in found.promotion[f"0%{BY_ROUND}"].row_limits)
        fixed = "--set gate.row_limit={:.3g} --set gate.client_limit={:.3g}".format(*found.promotion["0%"].first_limits)
        other = " (with --set method.init=normal, as promotion was tried)"
        where = other if scene.from_random_tables() is not scene else ""
        lines.append(f"Limits{where}: {fixed}; by round: --set gate.row_limits=[{by_round}]")
    return "\n".join([*lines, "", found.sentence])
