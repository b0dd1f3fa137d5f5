"""The documents as the tests read them: fenced blocks, headings and links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["DOCUMENTS", "ROOT", "Block", "anchors", "block", "blocks", "commands", "inline", "instead", "links", "read"]

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Block(NamedTuple):
    """A fenced block."""

    document: str  # its path from the root
    line: int  # of the opening fence, from 1
    language: str
    text: str

    @property
    def place(self) -> str:
        """Where it stands, as an editor finds it."""
        return f"{self.document}:{self.line}"


def read(name: str) -> str:
    """Read a document, named by its path from the root."""
    return (ROOT / name).read_text()


def blocks(document: Path) -> list[Block]:
    """Every fenced block, in order. Raises ValueError where a fence is not closed."""
    blocks_found: list[Block] = []
    opened: tuple[int, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(document.read_text().splitlines(), 1):
        fence = re.fullmatch(r"```(\S*)", line)
        if fence is None:
            inside.append(line)
        elif opened is None:
            opened, inside = (number, fence[1]), []
        else:
            text = "\n".join(inside) + "\n"
            blocks_found.append(Block(str(document.relative_to(ROOT)), *opened, text))
            opened = None
    if opened is not None:
        raise ValueError(f"{document}: the fence of line {opened[0]} is not closed")
    return blocks_found


def block(document: str, begins: str) -> Block:
    """Find the one block of a document that begins so. Raises ValueError if there is none or more than one."""
    matches = [item for item in blocks(ROOT / document) if item.text.startswith(begins)]
    if len(matches) != 1:
        raise ValueError(f"{document} has {len(matches)} blocks that begin with {begins}")
    return matches[0]


def commands(console: Block) -> list[str]:
    """List the commands of a `console` block, each after its $, without their output."""
    return [item.strip() for item in re.findall(r"^\$ ((?:.*\\\n)*.*)$", console.text, re.MULTILINE)]


def instead(text: str, others: Mapping[str, object]) -> str:
    """Adapt a text to this machine: replace each key, which must occur, by its value."""
    for printed, replacement in others.items():
        if printed not in text:
            raise ValueError(f"{printed} is not in {text}")
        text = text.replace(printed, str(replacement))
    return text


def inline(document: Path) -> list[str]:
    """Every piece of code within the prose and the tables, in one line each."""
    return [" ".join(item.split()) for item in re.findall(r"`([^`]+)`", _prose(document))]


def _prose(document: Path) -> str:
    """Remove the fenced blocks from a text."""
    return re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """List the anchors of a document: its headings, as GitHub spells them."""
    titles = re.findall(r"^#+ (.*)$", _prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(document: Path) -> list[str]:
    """Targets of all links and pictures."""
    return re.findall(r"\]\(([^)\s]+)\)", _prose(document))
