"""Words of texts in any script: the rule of new learners, and that of learners of earlier versions."""

# ruff: noqa: RUF001 - letters of many scripts

from __future__ import annotations

import re
import sys
import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.features.column_map import columns_of
from learners.features.named import Named
from learners.features.words import words_of
from learners.numerics import Sparse
from tests.learners.naive_pipeline import named_row


def words(text: str) -> list[str]:
    return words_of(text, "normalised", 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("आधुनिक मानक हिन्दी", ["आधुनिक", "मानक", "हिन्दी"]),
        ("தமிழ் மொழி বাংলা ਪੰਜਾਬੀ", ["தமிழ்", "மொழி", "বাংলা", "ਪੰਜਾਬੀ"]),
        ("مُحَمَّد، שָׁלוֹם", ["مُحَمَّد", "שָׁלוֹם"]),
        ("می\u200cخواهم", ["میخواهم"]),
        ("한국어 텍스트", ["한국어", "텍스트"]),
        ("\u1112\u1161\u11ab", ["한"]),
        ("ｖｉａｇｒａ", ["viagra"]),
        ("v\u200bi\u200ba\u200bg\u200br\u200ba", ["viagra"]),
        ("VI\u00adAG\u2060RA \ufeffvi\u034fagra v\ufe0fiagra \u202eviagra", ["viagra"] * 4),
        ("𝐯𝐢𝐚𝐠𝐫𝐚 ⓥⓘⓐⓖⓡⓐ", ["viagra", "viagra"]),
        ("E\u200b\u0301cole école ÉCOLE", ["école"] * 3),
        ("ﬁn ①² Straße ΟΔΟΣ", ["fin", "12", "straße", "οδος"]),
        ("今天天气很好。我們", ["今天", "天天", "天气", "气很", "很好", "我們"]),
        ("iPhone手机2024年", ["iphone", "手机", "2024", "年"]),
        ("東京タワー ﾃﾚﾋﾞ・カ\u3099", ["東京", "京タ", "タワ", "ワー", "テレ", "レビ", "ガ"]),
        ("𠮷野家", ["𠮷野", "野家"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("ที่นี่ ก", ["ที่นี่", "ก"]),
        ("ລາວ မြန်မာ ភាសា", ["ລາ", "າວ", "မြန်", "န်မာ", "ភាសា"]),
        ("\u0301 👩\u200d🚀 ❤️ a😀b", ["a", "b"]),
        ("snake_case's 3.5 – naïve", ["snake_case", "s", "3", "5", "naïve"]),
        ("\u3164\u200b \n", []),
    ],
)
def test_words_of_every_script_are_normalised(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@given(st.text(st.characters(codec="ascii"), max_size=60))
def test_a_text_in_ascii_has_the_same_words_by_both_rules(text: str) -> None:
    assert words(text) == words_of(text, "literal", 1000) == re.findall(r"[a-z0-9_]+", text.lower())


@given(st.text(max_size=40))
def test_spelling_a_text_otherwise_gives_the_same_words(text: str) -> None:
    expected = words(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert words(unicodedata.normalize(form, text)) == expected
    assert words(text.replace("a", "a\u200b")) == expected


@pytest.mark.parametrize("start", [0, *(pytest.param(start, marks=pytest.mark.integration) for start in range(1, 8))])
def test_the_word_of_every_character_is_its_own_word(start: int) -> None:
    for code in range(start, sys.maxunicode + 1, 8):
        for word in words(chr(code)):
            assert words(word) == [word], hex(code)


@pytest.mark.parametrize("rule", ["normalised", "literal"])
@pytest.mark.parametrize("text", ["a b c d", "日本語日本語", "a " * 50])
def test_only_the_first_words_are_read(rule: Literal["normalised", "literal"], text: str) -> None:
    everything = words_of(text, rule, 1000)
    for most in (1, 2, 3, 49, 50, 51):
        assert words_of(text, rule, most) == everything[:most]


def test_the_literal_rule_is_that_of_earlier_versions() -> None:
    assert words_of("हिन्दी ｖＩ v\u200bi 東京", "literal", 100) == ["ह", "न", "द", "ｖｉ", "v", "i", "東京"]


@pytest.mark.parametrize(
    ("rule", "tokens"),
    [
        ("normalised", ["body~vi", "body~हि", "body~vi हि"]),
        ("literal", ["body~ｖｉ", "body~ह", "body~ｖｉ ह"]),
    ],
)
def test_events_are_encoded_by_the_rule_of_the_learner(
    rule: Literal["normalised", "literal"], tokens: list[str]
) -> None:
    features = Named(bits=20, text=("body",), words=rule)
    rows = columns_of(features).encoded(features.encode([{"body": "ｖｉ हि"}]))
    assert isinstance(rows, Sparse)
    expected = named_row([(token, 1.0) for token in tokens], 20)
    assert dict(zip(rows.indices.tolist(), rows.data.tolist(), strict=True)) == expected
    named = features.names({"body": "ｖｉ हि"}, list(expected))
    assert sorted(named) == sorted(tokens)
