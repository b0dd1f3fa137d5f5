"""The Dockerfile carried out step by step in clean directories, and what comes out of it run as an image is.

Without an engine: see tests/deploy/image.py. It takes some minutes, most of them to compile every kernel.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.image import Container, Stage, build, refused, sizes
from tests.docs.documents import ROOT

REFUSED = refused()
pytestmark = pytest.mark.skipif(REFUSED != "", reason=f"the Dockerfile's steps cannot be carried out: {REFUSED}")
OPEN = {"RARESTREAM_INSECURE": "true"}  # nothing is published: the network is the container's own
LEARN = """
import json, urllib.request
def call(method, path, body):
    request = urllib.request.Request("http://127.0.0.1:8000/v1/learners/cards" + path, json.dumps(body).encode(),
                                     {"content-type": "application/json"}, method=method)
    return urllib.request.urlopen(request, timeout=300).read().decode()
call("PUT", "", {"algorithm": "cbr-diag", "features": {"kind": "named"}})
call("POST", "/update", {"events": [{"id": str(n), "features": {"a": n}, "label": n % 2} for n in range(20)]})
"""
DIGEST = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:8000/v1/learners/cards/digest", timeout=300).read().decode())
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Return what every instruction of the Dockerfile made, in its order."""
    folder = tmp_path_factory.mktemp("image")
    yield build(folder)
    shutil.rmtree(folder)  # two gigabytes


@pytest.fixture(scope="module")
def container(image: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Container]:
    """One that is healthy."""
    with Container(image, tmp_path_factory.mktemp("volume"), **OPEN) as started:
        started.healthy()
        yield started


@pytest.mark.parametrize(("right", "message"), [("sys_chroot", "chroot: "), ("sys_admin", "unshare: ")])
def test_missing_privileges_are_detected_in_advance(right: str, message: str) -> None:
    command = ["setpriv", f"--bounding-set=-{right}", sys.executable, "-c"]
    code = "from tests.deploy.image import refused; print(refused())"
    done = subprocess.run([*command, code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(message)


def test_the_image_contains_the_service_and_no_build_files(image: Stage) -> None:
    actual = sizes(image)
    assert actual["/opt/rarestream/kernels"] > 2**20
    assert {"  numba", "  numpy", "  redis"} & set(actual)
    assert not (image.root / "src").exists()
    assert not (image.root / "wheels").exists()
    packages = image.path("/opt/rarestream/lib").rglob("site-packages/*")
    assert not {path.name for path in packages} & {"pip", "setuptools", "pytest", "tests"}
    uid = int(image.user.split(":")[0])
    for path in image.path("/opt/rarestream").rglob("*"):
        status = path.lstat()
        assert status.st_uid != uid
        assert path.is_symlink() or not status.st_mode & 0o022, path  # whoever breaks in changes no code


def test_the_service_runs_as_process_1_without_capabilities(container: Container) -> None:
    status = dict(line.split(":\t", 1) for line in container.run("cat", "/proc/1/status").stdout.splitlines())
    assert status["Name"] == "rarestream"  # not the shell of the entrypoint
    assert set(status["Uid"].split()) == {"10001"}
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"


def test_the_root_file_system_is_read_only(container: Container) -> None:
    for path in ("/x", "/opt/rarestream/x", "/usr/local/bin/x", "/etc/x", "/home/x"):
        assert container.run("touch", path).returncode != 0, path
    mounts = container.run("cat", "/proc/mounts").stdout.splitlines()
    options = {line.split()[1]: line.split()[3].split(",") for line in mounts}
    assert "ro" in options["/"]
    assert "ro" in options["/usr"]
    for path in ("/tmp/x", "/data/x", f"{container.stage.environment['NUMBA_CACHE_DIR']}/x"):
        assert container.run("touch", path).returncode == 0, path


def test_the_service_uses_the_kernels_of_the_image(container: Container) -> None:
    """Nothing is compiled when it starts, nor when it learns."""
    learnt = container.run("python", "-c", LEARN)
    assert learnt.returncode == 0, learnt.stderr
    cache = container.stage.environment["NUMBA_CACHE_DIR"]
    listing = "find . -type f -name '*.machine-code' | sort"
    used = container.run("sh", "-c", f"cd {cache} && {listing}").stdout
    assert used == container.run("sh", "-c", f"cd /opt/rarestream/kernels && {listing}").stdout
    assert used.count("\n") > 100


def test_the_health_check_targets_this_container(container: Container) -> None:
    assert container.run("healthcheck").returncode == 0
    assert container.run("healthcheck", RARESTREAM_PORT="8001").returncode != 0


def test_the_stop_signal_shuts_down_cleanly_and_the_next_start_resumes(image: Stage, tmp_path: Path) -> None:
    with Container(image, tmp_path / "volume", **OPEN) as first:
        first.healthy()
        assert first.run("python", "-c", LEARN).returncode == 0
        digest = json.loads(first.run("python", "-c", DIGEST).stdout)
        printed = first.stop()
        assert first.process.returncode == 0, printed
    assert "stopped" in printed
    assert "kernels" not in printed  # they could be copied
    assert {path.stat().st_uid for path in (tmp_path / "volume").iterdir()} == {10001}

    with Container(image, tmp_path / "volume", **OPEN, RARESTREAM_PORT="9000") as second:
        second.healthy()  # it asks the port that is set
        again = second.run("python", "-c", DIGEST.replace("8000", "9000"))
    assert json.loads(again.stdout) == digest
