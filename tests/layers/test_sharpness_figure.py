"""The figure of the radii without its runs, which not every checkout has."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra 'report'")

from docs import sharpness_figure


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        ((), r"sharpness.client' and '.*sharpness.item' should hold the runs of the figure\. There are none"),
        (("client",), "should hold finished runs"),
    ],
)
def test_without_runs_a_sentence_says_so(
    folders: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in folders:
        (tmp_path / "sharpness" / folder).mkdir(parents=True)
    monkeypatch.setattr(sharpness_figure, "RESULTS", tmp_path / "sharpness")
    with pytest.raises(SystemExit, match=words):
        sharpness_figure.main()
