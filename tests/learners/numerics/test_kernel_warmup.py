"""What is compiled in advance runs through: a record that a learner refuses would end it."""

from __future__ import annotations

import pytest

from learners.kernel_warmup import rehearse


@pytest.mark.parametrize("kind", ["dense", "named"])
def test_every_kind_of_record_is_taken(kind: str) -> None:
    rehearse("fofo", kind)
