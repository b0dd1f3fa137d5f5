"""`helm template` of the chart, with everything that it can have."""

from __future__ import annotations

import pytest

from tests.deploy.helm import FULL, rendered, with_helm

pytestmark = pytest.mark.integration


@with_helm
def test_helm_renders_all_objects() -> None:
    kinds = {kind for kind, _ in rendered(*FULL)}
    assert {"Deployment", "Service", "StatefulSet", "HorizontalPodAutoscaler", "NetworkPolicy"} <= kinds
