"""The keys file and the commands that change it: it stores no keys, and no other file passes for one."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from service.auth import keys
from service.auth.keys import BadKeys, Limits, Unwritable, changing, load, new_key, save
from service.cli.main import app as command_line

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_line, ["keys", *arguments])


def test_a_key_has_256_random_bits_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    made = [new_key(f"k{i}", ["read"]) for i in range(50)]
    save(path, [item for item, _ in made])
    text = path.read_text()
    for stored, key in made:
        kind, own_id, secret = key.split("_")
        assert (kind, own_id, len(bytes.fromhex(secret))) == ("rs", stored.id, 32)
        assert stored.sha256 == hashlib.sha256(secret.encode()).hexdigest()
        assert secret not in text
        assert secret not in repr(stored)
    assert len({key.split("_")[2] for _, key in made}) == len({item.id for item, _ in made}) == 50


def test_written_keys_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    limits = Limits(2.5, 1000.0, 2**20, 5, 100, 10_000)
    written = [
        new_key("all", ["admin"])[0],
        new_key("some", ["update", "predict"], "fraud-*", limits, NOW + timedelta(days=90))[0],
    ]
    save(path, written)
    assert load(path) == written
    assert written[1].scopes == ("predict", "update")  # in one order
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_is_replaced_atomically_without_leftovers(tmp_path: Path) -> None:
    path, link = tmp_path / "real" / "keys.json", tmp_path / "keys.json"
    path.parent.mkdir()
    link.symlink_to(path)
    save(link, [new_key("one", ["read"])[0]])
    first = path.stat().st_ino
    with path.open("rb") as old:
        save(link, [])
        assert len(json.load(old)["keys"]) == 1  # whoever reads has the old one whole
    assert load(link) == []
    assert link.is_symlink()
    assert path.stat().st_ino != first
    assert os.listdir(path.parent) == ["keys.json"]


def test_a_failed_change_keeps_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    save(path, [new_key("one", ["read"])[0]])
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(keys.os, "replace", full)
    with pytest.raises(Unwritable, match=r"keys\.json\b.*\bspace\b"):
        save(path, [])
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["keys.json"]


def test_concurrent_changes_are_all_saved(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"

    def add(number: int) -> None:
        with changing(path) as entries:
            entries.append(new_key(f"k{number}", ["read"])[0])

    threads = [threading.Thread(target=add, args=(i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(item.name for item in load(path)) == sorted(f"k{i}" for i in range(20))


def entry(**changed: Any) -> dict[str, Any]:
    made = {"id": "a" * 12, "name": "n", "sha256": "0" * 64, "scopes": ["read"], "created": NOW.isoformat()}
    return {name: value for name, value in {**made, **changed}.items() if value is not None}


def test_a_handwritten_entry_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(
        json.dumps({"keys": [entry(), entry(id="b" * 12, learners="fraud-[ab]?*", limits={"learners": 3})]})
    )
    first, second = load(path)
    assert (first.learners, first.limits, first.expires) == (None, Limits(), None)
    assert (second.learners, second.limits.learners) == ("fraud-[ab]?*", 3)


@pytest.mark.parametrize(
    "changed",
    [
        {"id": "A" * 12},
        {"id": "a" * 11},
        {"id": "a" * 12 + "\n"},
        {"name": ""},
        {"name": "a\nb"},
        {"sha256": "0" * 63},
        {"sha256": "0" * 64 + "\n"},
        {"sha256": None},
        {"scopes": []},
        {"scopes": ["write"]},
        {"scopes": "admin"},
        {"scopes": None},
        {"learners": ""},
        {"learners": "fraud-*\n"},
        {"learners": "a/b"},
        {"limits": {"requests_per_second": 0}},
        {"limits": {"events_per_second": 1e-320}},
        {"limits": {"requests_per_second": "1"}},
        {"limits": {"learners": -1}},
        {"limits": {"learners": 1.5}},
        {"limits": {"requests": 1}},
        {"created": None},
        {"created": "2026-11-22T12:00:00"},  # of no zone
        {"expires": "tomorrow"},
        {"scope": ["admin"]},
    ],
    ids=str,
)
def test_an_invalid_entry_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [entry(id="b" * 12), entry(**changed)]}))
    with pytest.raises(BadKeys, match=r"keys\.json\b"):
        load(path)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"keys": {}}', '{"keys": []} {}', '{"keys": [], "a": 1}', "\xff"]
)
def test_an_invalid_keys_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(BadKeys, match=r"keys\.json\b"):
        load(path)


def test_an_unreadable_keys_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    with pytest.raises(BadKeys, match=r"keys\.json\b.*\bsuch\b"):
        load(path)
    with pytest.raises(BadKeys, match="directory"):
        load(tmp_path)
    with pytest.raises(Unwritable, match=r"nowhere\b.*\bsuch\b"):
        save(tmp_path / "nowhere" / "keys.json", [])
    path.write_text(json.dumps({"keys": [entry(), entry(name="other")]}))
    with pytest.raises(BadKeys, match=r"\bid\b"):
        load(path)
    monkeypatch.setattr(keys, "_LARGEST", 100)
    with pytest.raises(BadKeys, match=r"\b100\b"):
        load(path)


# The commands


def test_keys_are_created_listed_and_revoked(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.json")
    made = run("create", "--keys", path, "--name", "scoring", "--scope", "predict", "--scope", "read")
    assert made.exit_code == 0, made.output
    key = made.stdout.strip()
    own_id = key.split("_")[1]
    assert own_id in made.stderr
    assert key.split("_")[2] not in made.stderr
    limited = run(
        *("create", "--keys", path, "--name", "team", "--scope", "admin", "--learners", "fraud-*", "--expires", "90d"),
        *("--limit", "requests_per_second=2.5", "--limit", "learners=3", "--json"),
    )
    document = json.loads(limited.stdout)
    assert document["key"].startswith(f"rs_{document['id']}_")
    assert document["limits"] == {"requests_per_second": 2.5, "learners": 3}
    assert timedelta(days=89) < datetime.fromisoformat(document["expires"]) - datetime.now(UTC) < timedelta(days=91)

    listed = run("list", "--keys", path)
    assert key.split("_")[2] not in listed.stdout
    (first, second) = listed.stdout.strip().splitlines()[1:]
    assert first.split()[:4] == [own_id, "scoring", "read,", "predict"]
    assert "requests_per_second=2.5, learners=3" in second
    assert first.split()[-1] == "never"
    assert [item["id"] for item in json.loads(run("list", "--keys", path, "--json").stdout)["keys"]] == [
        own_id,
        document["id"],
    ]

    assert run("revoke", own_id, "--keys", path).exit_code == 0
    assert run("revoke", "team", "--keys", path).exit_code == 0
    assert load(Path(path)) == []
    revocation = run("revoke", "team", "--keys", path)
    assert (revocation.exit_code, "team" in revocation.stderr) == (4, True)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--name", "a", "--scope", "write"], 2, "read, predict, update, events, admin"),
        (["--name", "a"], 2, "--scope"),
        (["--scope", "read"], 2, "--name"),
        (["--name", "a", "--scope", "read", "--limit", "requests=1"], 2, "requests_per_second"),
        (["--name", "a", "--scope", "read", "--limit", "learners=many"], 2, "NAME=NUMBER"),
        (["--name", "a", "--scope", "read", "--limit", "requests_per_second=0"], 2, ">= 1e-06"),
        (["--name", "a", "--scope", "read", "--limit", "events_per_second=1e-320"], 2, "events_per_second"),
        (["--name", "a", "--scope", "read", "--learners", "a b"], 2, "key"),
        (["--name", "a\nb", "--scope", "read"], 2, "key"),
        (["--name", "there", "--scope", "read"], 5, "there"),
    ],
)
def test_invalid_options_are_reported_and_change_nothing(
    tmp_path: Path, arguments: list[str], status: int, message: str
) -> None:
    path = tmp_path / "keys.json"
    save(path, [new_key("there", ["read"])[0]])
    before = path.read_bytes()
    result = run("create", "--keys", str(path), *arguments)
    assert result.exit_code == status
    assert message in " ".join(result.output.replace("│", " ").split())
    assert path.read_bytes() == before


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RARESTREAM_KEYS", str(tmp_path / "keys.json"))
    assert run("create", "--name", "a", "--scope", "read").exit_code == 0
    assert run("list").stdout.count("\n") == 2
    assert run("list", "--keys", str(tmp_path / "other")).exit_code == 2


def test_an_expired_key_is_listed_as_expired(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    save(path, [new_key("old", ["read"], expires=NOW - timedelta(days=400))[0]])
    assert "(expired)" in run("list", "--keys", str(path)).stdout
