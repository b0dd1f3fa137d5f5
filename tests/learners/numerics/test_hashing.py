"""The hash of strings: frozen, as stored states and logs are only right together with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.numerics.hashing import hash_strings
from tests.learners.naive_pipeline import hash_text

FROZEN = {
    "": 0x48218226FF3CD4BF,
    "a": 0x3E506E5796335AF0,
    "amount": 0x0AE46C5A6F9F5CFE,
    "country=DE": 0x43E18C5E3CB631F1,
    "\0": 0xDCE423FC82C0D5B8,
    "\0\0": 0xE60BBBF6CA094F3C,
    "12345678": 0x66FB43A3019F5EEC,
    "123456789": 0xB0F00539162B363B,
    "é": 0x4EB3CC1EE1644D29,
    "e\u0301": 0xC5CC9CC5BD96278A,
    "\U0001f600": 0x2F99688C1D8B0B83,
    "\ud800": 0x7D8D8F5723C8A1E5,
    "x" * 1000: 0x7BC947DF48F4F4D2,
}


@pytest.mark.parametrize("text", FROZEN)
def test_the_hash_never_changes(text: str) -> None:
    assert int(hash_strings([text])[0]) == FROZEN[text]


@given(st.lists(st.text(st.characters(exclude_categories=())), max_size=20))
@settings(max_examples=30)
def test_matches_the_naive_version_for_any_neighbours(texts: list[str]) -> None:
    hashes = hash_strings(texts)
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == [hash_text(text) for text in texts]


@pytest.mark.parametrize("size", range(26))
def test_every_length_and_every_byte_changes_the_hash(size: int) -> None:
    texts = ["a" * size, *("a" * i + "b" + "a" * (size - i - 1) for i in range(size)), "a" * size + "\0"]
    assert len(set(hash_strings(texts).tolist())) == len(texts)


def test_hashes_are_evenly_distributed() -> None:
    hashes = hash_strings([f"name={i}" for i in range(4096)])
    assert len(set(hashes.tolist())) == 4096
    for bit in range(64):
        share = np.mean((hashes >> np.uint64(bit)) & np.uint64(1))
        assert abs(share - 0.5) < 0.04, bit  # five standard deviations
    occupied = len(set((hashes & np.uint64(4095)).tolist()))
    assert abs(occupied - 4096 * (1 - np.exp(-1))) < 160
