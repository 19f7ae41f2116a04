"""What pyproject.toml cannot say: the README as a package index shows it, and configs inside the package."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
ELSEWHERE = "\nThe pages and pictures named here are in the source distribution, under `docs/`.\n"


def index_readme(site: str | None = None) -> str:
    """README.md for readers without the repository: pip installs from the index, and no link leads nowhere.

    Args:
        site: where the documentation is published, as `project.urls` says; without one, links become their words.
    """

    def moved(match: re.Match[str]) -> str:
        picture, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        if site is None:
            return "" if picture else words
        place = target.removeprefix("docs/")
        page = re.sub(r"\.(md|py|ipynb)$", ".html", place.lower() if target == place else place)
        return f"{picture}[{words}]({site}{page}{anchor})"

    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("-c constraints.txt -e . &&", "fedrecgel &&")
    shown = re.sub(r"\n{3,}", "\n\n", LINK.sub(moved, text))
    return shown if site else shown + ELSEWHERE


class BuildWithConfigs(build_py):
    """Put configs/ into the package: in a checkout it stands beside the sources."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if not self.editable_mode:
            shutil.copytree(ROOT / "configs", Path(self.build_lib) / "fedrecgel" / "configs", dirs_exist_ok=True)


URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
setup(
    long_description=index_readme(URLS.get("Documentation")),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithConfigs},
)
