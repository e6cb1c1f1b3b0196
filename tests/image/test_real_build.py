"""Images really built, with buildah, on a Debian made on the spot; the CPU one really serves.

The CUDA Dockerfile is built too: on a stand-in for the official image, with a fabricated vLLM in
it, since neither that image nor a card is here.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rig.image.base import Base
from rig.image.context import plan_context, write_context
from rig.image.plan import ImagePlan, build_command, labels_of, tag_of
from rig.image.tools import Tool
from rig.launch.processes import descendants, title
from rig.layout import Layout
from rig.pins import Arch, Flavour, Pin, find_pin
from rig.rehearsal.client import ask, served_build
from rig.rehearsal.compare import compare
from rig.rehearsal.exchange import Question
from rig.rehearsal.photograph import photograph
from rig.rehearsal.rehearse import ready_environment
from rig.rehearsal.stage import make_model, oracle_answers
from rig.wheel.inspect import describe

from ..engine.conftest import built_cpu_wheel
from ..wheel.wheel_fabric import CHANGES, Fabric
from .buildah import Buildah, open_storage, why_not

pytestmark = [pytest.mark.full, pytest.mark.network, pytest.mark.timeout(2400)]
RANKS = 4
# A folder whose images are kept and used again: a second run takes a minute.
KEPT = "RIG_TEST_BUILDAH"


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    if reason := why_not():
        pytest.skip(reason)
    kept = os.environ.get(KEPT)
    opened = open_storage(Path(kept) if kept else tmp_path_factory.mktemp("buildah"))
    yield opened
    if not kept:
        opened.clear()


def build(
    buildah: Buildah, checkout: Layout, pin: Pin, flavour: Flavour, wheel: Path, base: str
) -> tuple[str, float]:
    """Build as `rig image` does; the tag, and the seconds of the build alone."""
    folder = buildah.folder / f"context-{flavour}"
    write_context(plan_context(checkout, pin, flavour, wheel), folder)
    provenance = describe(wheel)
    found = Base(base, base, "")
    plan = ImagePlan(
        tool=Tool.BUILDAH,
        tag=tag_of(provenance.version, flavour),
        arch=Arch.X86_64,
        base=found,
        labels=labels_of(provenance, "0" * 64, found),
        context=folder,
        pip_settings=buildah.pip_conf,
        more=buildah.volumes,
    )
    started = time.monotonic()
    done = buildah.command(build_command(plan), timeout=1800)
    print(done.stdout[-4000:], done.stderr[-2000:])
    return plan.tag, time.monotonic() - started


def inspection(buildah: Buildah, tag: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(buildah.run("inspect", "--type", "image", tag).stdout)
    return found


def layers(buildah: Buildah, tag: str) -> list[str]:
    oci = inspection(buildah, tag)["OCIv1"]
    assert isinstance(oci, dict)
    ids: list[str] = oci["rootfs"]["diff_ids"]
    return ids


def config(buildah: Buildah, tag: str) -> dict[str, object]:
    docker = inspection(buildah, tag)["Docker"]
    assert isinstance(docker, dict)
    found: dict[str, object] = docker["config"]
    return found


@pytest.fixture(scope="module")
def standin(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Fabric]:
    """A stand-in for the official image: its Python has the release's vLLM and Ray's needs."""
    base = buildah.make_base()
    fabric = Fabric(tmp_path_factory.mktemp("fabric") / "checkout")
    artifact = fabric.cached_wheel()
    wheels = fabric.layout.downloads / artifact.sha256
    (buildah.folder / "Dockerfile.standin").write_text(
        f"FROM {base}\n"
        "RUN --mount=type=secret,id=pip,target=/etc/pip.conf python3 -m pip install -q "
        "--break-system-packages click filelock jsonschema packaging protobuf pyyaml requests\n"
        f"COPY {artifact.name} /tmp/\n"
        "RUN python3 -m pip install -q --break-system-packages --no-index --no-deps "
        f"/tmp/{artifact.name}\n"
    )
    buildah.run(
        *("build", "-q", "--format", "docker", "--pull=false", *buildah.volumes),
        *("--secret", f"id=pip,src={buildah.pip_conf}", "-t", "localhost/standin"),
        *("-f", str(buildah.folder / "Dockerfile.standin"), str(wheels)),
    )
    return "localhost/standin", fabric


def test_the_cuda_image_on_a_stand_in(
    buildah: Buildah, checkout: Layout, standin: tuple[str, Fabric]
) -> None:
    base, fabric = standin
    pin = find_pin(checkout, None)
    first = fabric.build(fabric.series(CHANGES), revision=1).path
    one, cold = build(buildah, checkout, pin, Flavour.CUDA, first, base)
    changed = fabric.series({"vllm/rig/new.py": b"NEW = 2\n"})
    changed = replace(changed, series_digest="ef" * 32)
    two, warm = build(
        buildah, checkout, pin, Flavour.CUDA, fabric.build(changed, revision=2).path, base
    )
    print(f"first build {cold:.0f} s, another series {warm:.0f} s")

    before, after = layers(buildah, one), layers(buildah, two)
    shared = os.path.commonprefix([before, after])
    assert len(before) == len(after)
    assert 0 < len(after) - len(shared) <= 3, "a new series changes the last layers alone"

    labels = config(buildah, two)["Labels"]
    assert isinstance(labels, dict)
    assert labels["vllm-rig.series"] == "ef" * 32
    assert labels["org.opencontainers.image.version"] == "1.2.3+rig.2"
    settings = config(buildah, two)
    assert settings["User"] == "1000"
    check = settings["Healthcheck"]
    assert isinstance(check, dict) and check["Test"][-1] == "health"

    said = refused(buildah, two, "M")
    assert "without the NVIDIA runtime" in said
    said = refused(buildah, two, "M", "--env", "NVIDIA_VISIBLE_DEVICES=void")
    assert "the container has no cards" in said
    said = refused(buildah, two, "M", "--env", "RIG_IMAGE_ARCH=aarch64")
    assert "this image is for aarch64, this machine is x86_64" in said
    said = refused(buildah, two, "M", "--volume", "/proc:/cache:ro")
    assert "the cache" in said
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        said = refused(buildah, two, "M", "--env", f"RIG_LISTEN_PORT={port}")
    assert f"port {port} is taken" in said


def refused(buildah: Buildah, tag: str, model: str, *options: str) -> str:
    """What the image says as it refuses to start."""
    container = buildah.run("from", "--pull=false", tag).stdout.strip()
    try:
        done = buildah.run(
            "run", *options, container, "--", "/opt/vllm-rig/entrypoint.sh", model, check=False
        )
    finally:
        buildah.run("rm", container)
    assert done.returncode == 3, done.stderr
    return done.stderr


def test_the_cpu_image_serves_on_four_ray_ranks(
    buildah: Buildah, checkout: Layout, tmp_path: Path
) -> None:
    pin = find_pin(checkout, "0.32.0")
    wheel = built_cpu_wheel(checkout, pin)
    tag, seconds = build(buildah, checkout, pin, Flavour.CPU, wheel, buildah.make_base())
    print(f"built {tag} in {seconds:.0f} s")
    with ready_environment(checkout, pin, wheel) as (environment, lock):
        question = Question("What is in this photograph?", (photograph(environment.site_packages),))
        model = tmp_path / "model"
        make_model(environment, model, lock=lock)
        oracle = oracle_answers(environment, model, [question], lock=lock)[0]
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    # Buildah's own 1024 are too few, and the doctor says so; no more than this process may have.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = ("--ulimit", f"nofile={most}:{most}")
    container = buildah.run("from", "--pull=false", *limits, tag).stdout.strip()
    print(f"size {size_of(buildah, container) / 1e9:.2f} GB")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cache = tmp_path / "cache"
    asked = ["--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "1024"]
    asked.append("--no-plan")  # of cards, which are not here
    command = [
        *("buildah", "run", "--volume", f"{model}:/model:ro", "--volume", f"{cache}:/cache"),
        *("--env", f"RIG_LISTEN_PORT={port}", container, "--"),
        *("/opt/vllm-rig/entrypoint.sh", "/model", *asked),
    ]
    log = tmp_path / "serve.log"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    before = shared_memory()
    with log.open("w") as out:
        running = subprocess.Popen(
            command, env=buildah.environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        url = f"http://127.0.0.1:{port}"
        started = time.monotonic()
        wait_for(lambda: "rank 3" in log.read_text(), running, log, 300)
        print(f"served after {time.monotonic() - started:.0f} s")
        answer = ask(url, "tiny", question)
        assert compare(answer, oracle).difference is None
        assert served_build(url).series == describe(wheel).series
        ranks = dict(re.findall(r"^rank (\d)\D+?(\d+)", log.read_text(), re.MULTILINE))
        assert len(ranks) == RANKS == len(set(ranks.values())), log.read_text()
        workers = [p for p in descendants(running.pid) if "ray::" in title(p.pid)]
        assert len(workers) >= RANKS
        assert {Path(f"/proc/{p.pid}").stat().st_uid for p in workers} == {1000}
        health = buildah.run(
            *("run", "--env", f"RIG_LISTEN_PORT={port}", container, "--"),
            *shlex.split("/opt/vllm-rig/entrypoint.sh health"),
        )
        assert "computed a token" in health.stdout
        launchers = [p for p in descendants(running.pid) if "-m rig serve" in title(p.pid)]
        ended = time.monotonic()
        os.kill(launchers[0].pid, signal.SIGTERM)
        assert running.wait(120) == 0, log.read_text()[-3000:]
        print(f"stopped in {time.monotonic() - ended:.0f} s")
    finally:
        if running.poll() is None:
            for process in descendants(running.pid):
                with suppress(ProcessLookupError):  # it may end by itself meanwhile
                    os.kill(process.pid, signal.SIGKILL)
            running.wait(30)
        print(log.read_text()[-6000:])
        for engine in cache.rglob("engine.log"):
            print(engine.read_text()[-12000:])
        buildah.run("rm", container)
    assert shared_memory() <= before


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


def size_of(buildah: Buildah, container: str) -> int:
    """Bytes of the files in an image."""
    mount = Path(buildah.run("mount", container).stdout.strip())
    try:
        said = buildah.command(["du", "-sxb", str(mount)]).stdout
    finally:
        buildah.run("umount", container)
    return int(said.split()[0])


def wait_for(
    ready: Callable[[], bool], running: subprocess.Popen[bytes], log: Path, patience_s: float
) -> None:
    deadline = time.monotonic() + patience_s
    while not ready():
        assert running.poll() is None, log.read_text()[-5000:]
        assert time.monotonic() < deadline, log.read_text()[-5000:]
        time.sleep(0.5)
