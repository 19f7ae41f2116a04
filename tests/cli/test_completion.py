"""The script is read by a real bash, which then completes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fedrecgel.cli.main import main

ASK = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
$(complete -p fedrecgel | sed -E 's/.*-F ([^ ]+).*/\\1/') 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_options_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "fedrecgel.bash"
    script.write_text(capsys.readouterr().out)

    def complete(*words: str) -> set[str]:
        done = subprocess.run(["bash", "-c", ASK, "ask", script, *words], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert complete("fedrecgel", "tr") == {"train"}
    assert complete("fedrecgel", "tune", "--tri") == {"--trials"}
    assert complete("fedrecgel", "train", "--method", "fedr") == {"fedrap", "fedrecgel"}
    assert complete("fedrecgel", "data", "in") == {"info"}
