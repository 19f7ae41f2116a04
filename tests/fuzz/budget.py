"""How many inputs a fuzz test tries: some in CI, more at night.

``FEDRECGEL_FUZZ=1000000 pytest tests/fuzz`` gives every target a million inputs.
"""

from __future__ import annotations

import os

import hypothesis


def inputs(in_ci: int) -> hypothesis.settings:
    """Settings of a fuzz test: so many inputs, or as many as the environment asks for; found failures shrink."""
    return hypothesis.settings(
        max_examples=int(os.environ.get("FEDRECGEL_FUZZ", in_ci)),
        suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
    )
