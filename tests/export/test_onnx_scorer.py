from __future__ import annotations

import pytest
from tests.export.device_runs import small_run

from fedrecgel.errors import ConfigError
from fedrecgel.export.forms import form_of
from fedrecgel.export.onnx_scorer import onnx_bytes


def test_a_method_without_a_network_says_so() -> None:
    with pytest.raises(ConfigError, match=r"Method 'ease' is no network: .* Use --format bundle"):
        onnx_bytes(form_of(small_run("ease")), "ease")
