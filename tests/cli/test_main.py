"""The command before any command runs: help, version, a misspelt name, Ctrl-C while modules are imported."""

from __future__ import annotations

import io
import subprocess
import sys
from types import ModuleType

import pytest

from fedrecgel.cli.main import COMMANDS, GROUPS, main, parser
from fedrecgel.cli.terminal import COLOURS

HEAVY = ("torch", "numpy", "pyarrow", "scipy", "matplotlib", "msgspec", "optuna")
ASK = f"""
import sys
from fedrecgel.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as left:
    code = left.code
print("imported:", *(name for name in {HEAVY} if name in sys.modules))
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--help", 0),
        ("--version", 0),
        ("trian", 2),
        ("", 0),
        ("train --help", 0),
        ("config --help", 0),
        ("completion --help", 0),
        ("methods --help", 0),
        ("recommend --help", 0),
        ("data --help", 0),
        ("node --help", 0),
        ("doctor --help", 0),
        ("export --help", 0),
        ("serve --help", 0),
    ],
)
def test_what_computes_nothing_imports_nothing_slow(line: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", ASK, *line.split()], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert done.stdout.splitlines()[-1].strip() == "imported:"


def test_importing_the_package_imports_nothing_slow() -> None:
    ask = f"import sys, fedrecgel; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_the_help_is_that_of_the_complete_parser() -> None:
    text = parser([]).format_help()
    assert text == parser().format_help()
    assert COMMANDS.keys() <= {line.split()[0] for line in text.splitlines() if line}


def test_a_misspelt_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "fedrecgel: Unknown command 'trian'. Did you mean 'train'?\n"


def test_no_command_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out == parser([]).format_help()


@pytest.mark.parametrize(
    ("words", "usage", "hint"),
    [
        (["train", "--methd", "x"], "usage: fedrecgel train", "Did you mean --method?"),
        (["data", "audit", "demo", "--jsn"], "usage: fedrecgel data audit", "Did you mean --json?"),
        (["report", "runs", "--zzz"], "usage: fedrecgel report", "unrecognized arguments: --zzz."),
        (["data", "inof", "demo"], "usage: fedrecgel data", "Unknown command 'inof'. Did you mean 'info'?"),
        (["completion", "bsh"], "usage: fedrecgel completion", "Unknown value 'bsh'. Did you mean 'bash'?"),
        (["recommend"], "usage: fedrecgel recommend", "required: RUN"),
    ],
)
def test_wrong_words_show_the_usage_of_their_command_and_the_nearest(
    capsys: pytest.CaptureFixture[str], words: list[str], usage: str, hint: str
) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(usage)
    assert hint in told


def test_every_command_is_in_a_group_of_the_help() -> None:
    grouped = [name for names in GROUPS.values() for name in names if name in COMMANDS]
    assert sorted(grouped) == sorted(COMMANDS)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("variables", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_help_has_colour_on_terminals_that_want_it(
    variables: dict[str, str], colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    assert main([]) == 0
    assert ("\x1b[1musage:\x1b[0m" in screen.getvalue()) is colour
    assert ("  \x1b[36mtrain\x1b[0m   " in screen.getvalue()) is colour
    assert COLOURS.sub("", screen.getvalue()) == parser([]).format_help()


def test_ctrl_c_during_imports_shows_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(name: str) -> ModuleType:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedrecgel.cli.main.import_module", press)
    assert main(["train"]) == 130
    assert capsys.readouterr().err == "fedrecgel: interrupted\n"
