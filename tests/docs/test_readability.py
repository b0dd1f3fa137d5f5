"""The documents are easy to read: their sentences are short. `pytest -s` prints the figures."""

from __future__ import annotations

import re

from tests.docs.documents import DOCUMENTS, ROOT

READ = [*DOCUMENTS, ROOT / "benchmarks" / "PAPERS.md", ROOT / "benchmarks" / "THRESHOLDS.md"]
MEAN_WORDS = 17.0
LONG_WORDS = 30
LONG_SHARE = 0.02


def sentences(text: str) -> list[int]:
    """Count the words of each sentence of the prose: fenced blocks, tables, headings and link targets are left out."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^(\||#|    ).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`]*`", "code", text)
    counts = []
    for paragraph in re.split(r"\n\s*\n|\n\s*(?:[-*>]|\d+\.)\s", text):
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z\[*(\"]|code)", paragraph):
            words = re.findall(r"[A-Za-z][\w'-]*", sentence)
            if len(words) > 1:
                counts.append(len(words))
    return counts


def test_sentences_are_short() -> None:
    counts = {str(document.relative_to(ROOT)): sentences(document.read_text()) for document in READ}
    everything = [count for words in counts.values() for count in words]
    mean = sum(everything) / len(everything)
    share = sum(count > LONG_WORDS for count in everything) / len(everything)
    for name, words in counts.items():
        over = sum(count > LONG_WORDS for count in words)
        print(
            f"{sum(words) / max(len(words), 1):5.1f} words a sentence, {over} of {len(words)} over {LONG_WORDS}  {name}"
        )
    print(f"{mean:5.1f} words a sentence, {share:.1%} of {len(everything)} over {LONG_WORDS}  all documents")
    assert mean <= MEAN_WORDS
    assert share <= LONG_SHARE


def test_long_sentences_are_counted() -> None:
    assert sentences("One two three.\n\n- Four five. Six `x y z` seven:\n\n| a | b c d |\n") == [3, 2, 3]
