"""requirements.lock: the tested versions of constraints.txt with the hashes pip checks."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
HASHES = r"((?: *\\\n    --hash=sha256:[0-9a-f]{64})+)"
ENTRY = re.compile(r"^([\w.-]+)==([^\s;\\]+)(?: ; ([^\\]+?))?" + HASHES + "$", re.MULTILINE)


def plain(name: str) -> str:
    """As package indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked() -> dict[str, tuple[str, str]]:
    """Version and marker of every package."""
    text = (ROOT / "requirements.lock").read_text()
    found = {plain(name): (version, marker) for name, version, marker, _ in ENTRY.findall(text)}
    assert len(found) == len(re.findall(r"^\w", text, re.MULTILINE)), "every entry has a version and hashes"
    return found


def test_the_lock_has_the_tested_versions_and_no_address() -> None:
    pins = [line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    lock = locked()
    assert {plain(name): version for name, version in pins} == {
        plain(name): lock.get(plain(name), ("missing", ""))[0] for name, _ in pins
    }
    assert "://" not in (ROOT / "requirements.lock").read_text()


def test_what_was_not_tested_is_for_other_systems_or_builds_the_package() -> None:
    """The tests run with torch's CPU build; the one on the public index brings CUDA on Linux."""
    pins = {plain(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    more = {name: marker for name, (_, marker) in locked().items() if name not in pins}
    assert more.pop("setuptools") == ""
    systems = [f"sys_platform == '{name}'" for name in ("linux", "win32", "darwin")]
    assert all(any(system in marker for system in systems) for marker in more.values())
