"""What pyproject.toml cannot say: links of the README that work on a package index, and configs inside the package."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def index_readme() -> str:
    """README.md for readers without the repository: links lead to the site, and pip installs from the index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = project["urls"]["Documentation"]

    def moved(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        place = target.removeprefix("docs/")
        page = re.sub(r"\.(md|py|ipynb)$", ".html", place.lower() if target == place else place)
        return f"]({site}{page}{anchor})"

    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("-c constraints.txt -e . &&", "fedrecgel &&")
    return re.sub(r"\]\(([^)\s#]+)(#[^)\s]*)?\)", moved, text)


class BuildWithConfigs(build_py):
    """Put configs/ into the package: in a checkout it stands beside the sources."""

    def run(self) -> None:
        """Build, then copy."""
        super().run()
        if not self.editable_mode:
            shutil.copytree(ROOT / "configs", Path(self.build_lib) / "fedrecgel" / "configs", dirs_exist_ok=True)


setup(
    long_description=index_readme(),
    long_description_content_type="text/markdown",
    cmdclass={"build_py": BuildWithConfigs},
)
