"""Commands, options and programs that the documents name within their text: each is taken by the real parser."""

from __future__ import annotations

import re
import shlex
from itertools import chain
from pathlib import Path

import pytest

from tests.docs.command_lines import COMMANDS, Wrong, parse, parse_module
from tests.docs.documents import DOCUMENTS, ROOT, block, inline

# Options of other programs that the text names, by document.
OTHERS = {
    "benchmarks/PAPERS.md": {"--printed": "benchmarks.papers", "--runs": "benchmarks.papers"},
    "docs/reference/http-api.md": {"--ultra": "zstd"},
    "docs/reference/benchmarks.md": {"--peers-python": "benchmarks.service"},
    "docs/how-to/containers.md": {"--build-arg": "docker build", "--set-string": "helm", "--reuse-values": "helm"},
    "docs/how-to/run.md": {"--case": "benchmarks.service"},
}
TEXTS = [*DOCUMENTS, ROOT / "deploy" / "prometheus" / "README.md", *(ROOT / "benchmarks").glob("*.md")]
VOWPAL_WABBIT = "docs/how-to/migrate.md"  # its options stand in the table of what becomes of each


def words(text: str) -> list[str]:
    """Split a command into words; placeholders become 1, which is valid as a number and as a name."""
    return ["1" if re.fullmatch("[A-Z]{3,}", part) else part for part in shlex.split(text)]


def named(document: Path) -> list[str]:
    """List the inline code that names a command with `rarestream`, or alone with options."""
    result = []
    for text in inline(document):
        first, _, rest = text.partition(" ")
        if first == "rarestream" and rest:
            result.append(rest)
        elif first in COMMANDS and " --" in text:
            result.append(text)
    return result


def of_some_command(text: str) -> bool:
    """Whether there is a command that takes these options."""
    for name, command in COMMANDS.items():
        for path in [[name, item] for item in getattr(command, "commands", {})] or [[name]]:
            try:
                parse([*path, *words(text)], complete=False)
            except Wrong:
                continue
            return True
    return False


@pytest.mark.parametrize("document", TEXTS, ids=lambda item: str(item.relative_to(ROOT)))
def test_commands_in_the_text_are_valid(document: Path) -> None:
    for text in named(document):
        if text.startswith("COMMAND "):
            assert of_some_command(text.removeprefix("COMMAND "))
        else:
            parse(words(text), complete=False)


@pytest.mark.parametrize("document", TEXTS, ids=lambda entry: str(entry.relative_to(ROOT)))
def test_options_in_the_text_belong_to_some_command(document: Path) -> None:
    name = str(document.relative_to(ROOT))
    if name == VOWPAL_WABBIT:
        return
    others = OTHERS.get(name, {})
    for text in (item for item in inline(document) if re.match("--[a-z]", item)):
        option = text.split()[0]
        if option not in others:
            assert of_some_command(text), f"no command takes {text}"
        elif others[option].startswith("benchmarks."):
            assert option in Path(ROOT, others[option].replace(".", "/"), "__main__.py").read_text()


def test_every_listed_option_of_other_programs_is_in_the_text() -> None:
    for name, others in OTHERS.items():
        commands = {text.split()[0] for text in inline(ROOT / name)}
        assert set(others) <= commands


def test_the_documents_contain_many_inline_commands() -> None:
    assert len(list(chain.from_iterable(map(named, DOCUMENTS)))) > 15


def programs(document: Path) -> list[list[str]]:
    """List the programs in the text that `python -m` runs, as words."""
    return [text.split()[2:] for text in inline(document) if text.startswith("python -m ")]


@pytest.mark.integration  # some import what only the extra `bench` brings
@pytest.mark.parametrize("document", TEXTS, ids=lambda item: str(item.relative_to(ROOT)))
def test_programs_in_the_text_exist_and_accept_their_options(document: Path) -> None:
    for module, *rest in programs(document):
        if not module.startswith("tests."):
            parse_module(module, rest)


@pytest.mark.integration  # they import what only the extra `integration` brings
def test_campaigns_in_the_text_exist_and_accept_their_options() -> None:
    campaigns = [program for document in TEXTS for program in programs(document) if program[0].startswith("tests.")]
    assert campaigns
    for module, *rest in campaigns:
        parse_module(module, rest)


@pytest.mark.integration
def test_benchmark_programs_accept_the_documented_options() -> None:
    """With what the comment behind a command says that it takes, too."""
    lines = block("docs/reference/benchmarks.md", "$ python -m benchmarks.papers").text.splitlines()
    assert len(lines) > 10
    for line in lines:
        command, _, comment = line.partition("#")
        module, *rest = command.removeprefix("$ python -m ").split()
        assert parse_module(module, rest) is not None
        more = re.findall(r"--[a-z-]+", comment)
        assert parse_module(module, [*rest, *more]) is not None


@pytest.mark.parametrize(
    "text",
    [
        "serve --nonsense",
        "nonsense",
        "keys nonsense --keys FILE",
        "list --sort nonsense",
        "watch a b c",
        "bench --requests many",
        "--nonsense",
    ],
)
def test_invalid_commands_are_detected(text: str) -> None:
    with pytest.raises(Wrong):
        parse(words(text), complete=False)


def test_incomplete_commands_may_omit_arguments() -> None:
    for text in ("watch", "create --config", "keys"):
        parse(words(text), complete=False)
        with pytest.raises(Wrong):
            parse(words(text))


def test_invalid_programs_are_detected() -> None:
    for module, options in (("benchmarks.nonsense", []), ("benchmarks.papers", ["--nonsense"])):
        with pytest.raises(Wrong):
            parse_module(module, options)
