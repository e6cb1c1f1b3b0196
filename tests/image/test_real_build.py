"""Images really built, with buildah, on a Debian made on the spot; the CPU one really serves.

The CUDA Dockerfile is built too: on a stand-in for the official image, with a fabricated vLLM in
it, since neither that image nor a card is here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rig.image.context import plan_context, write_context
from rig.launch.processes import descendants, title
from rig.layout import Layout
from rig.pins import Flavour, find_pin
from rig.rehearsal.client import ask, served_build
from rig.rehearsal.compare import compare
from rig.rehearsal.exchange import Question
from rig.rehearsal.photograph import photograph
from rig.rehearsal.rehearse import ready_environment
from rig.rehearsal.stage import make_model, oracle_answers
from rig.wheel.inspect import describe

from ..engine.conftest import built_cpu_wheel
from ..wheel.wheel_fabric import CHANGES, Fabric
from .buildah import Buildah
from .container import ENTRY, Settings, container, crun, run
from .container import why_not as no_container
from .images import build, config, layer_sizes, layers, shared_memory, size_of, wait_for

pytestmark = [pytest.mark.full, pytest.mark.network, pytest.mark.timeout(2400)]
RANKS = 4


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


@dataclass(frozen=True)
class Built:
    """Two images on the stand-in that differ in their series, and how long each took to build."""

    first: str
    second: str
    cold_s: float
    warm_s: float
    wheel: Path


@pytest.fixture(scope="module")
def cuda(
    buildah: Buildah,
    checkout: Layout,
    standin: tuple[str, Fabric],
    tmp_path_factory: pytest.TempPathFactory,
) -> Built:
    base, fabric = standin
    # A copy: what is edited in the checkout meanwhile would be taken for another series' cost.
    still = Layout(tmp_path_factory.mktemp("still"), checkout.cache)
    for name in ("docker", "scripts", "requirements", "patches"):
        shutil.copytree(checkout.root / name, still.root / name)
    shutil.copy2(checkout.root / "rig", still.root)
    pin = find_pin(still, None)
    first = fabric.build(fabric.series(CHANGES), revision=1).path
    one, cold = build(buildah, still, pin, Flavour.CUDA, first, base)
    changed = fabric.series({"vllm/rig/new.py": b"NEW = 2\n"})
    changed = replace(changed, series_digest="ef" * 32)
    second = fabric.build(changed, revision=2).path
    two, warm = build(buildah, still, pin, Flavour.CUDA, second, base)
    return Built(one, two, cold, warm, second)


def test_the_cuda_image_on_a_stand_in(buildah: Buildah, cuda: Built) -> None:
    before, after = layers(buildah, cuda.first), layers(buildah, cuda.second)
    shared = os.path.commonprefix([before, after])
    sizes = layer_sizes(buildah)
    new = [sizes[layer] for layer in after[len(shared) :]]
    print(
        f"first build {cuda.cold_s:.0f} s, another series {cuda.warm_s:.0f} s; layers shared "
        f"{[sizes[layer] for layer in shared]}, new {new} bytes"
    )
    assert len(before) == len(after)
    assert len(new) == 2 and sum(new) < 1e6, "a new series changes the last layers alone"

    labels = config(buildah, cuda.second)["Labels"]
    assert isinstance(labels, dict)
    stated = describe(cuda.wheel)
    assert {name: labels[f"vllm-rig.{name}"] for name in ("pin", "series", "tree", "commit")} == {
        "pin": "1.2.3",
        "series": "ef" * 32,
        "tree": stated.tree,
        "commit": stated.commit,
    }
    assert labels["org.opencontainers.image.version"] == "1.2.3+rig.2"
    settings = config(buildah, cuda.second)
    assert settings["User"] == "1000"
    environment = settings["Env"]
    assert isinstance(environment, list) and "RIG_IMAGE_ARCH=x86_64" in environment
    check = settings["Healthcheck"]
    assert isinstance(check, dict) and check["Test"][-1] == "health"


def test_the_cuda_image_proves_itself(buildah: Buildah, cuda: Built) -> None:
    if reason := no_container():
        pytest.skip(reason)
    done = run(buildah, cuda.second, Settings(), "inspect", "--full", "python3")
    assert done.returncode == 0, done.stderr
    assert "files are what they must be" in done.stdout
    assert "ef" * 32 in done.stdout


# What is in the way -> how the container is run, and what it says. Each has no card, too.
BAD = {
    "no runtime": (Settings(), ["without the NVIDIA runtime", "NVIDIA container toolkit"]),
    "no cards wanted": (
        Settings(environment={"NVIDIA_VISIBLE_DEVICES": "void"}),
        ["the container has no cards: NVIDIA_VISIBLE_DEVICES=void hides them"],
    ),
    "another processor": (
        Settings(environment={"RIG_IMAGE_ARCH": "aarch64"}),
        ["this image is for aarch64, this machine is x86_64", "rig image --arch x86_64"],
    ),
    "a read-only root": (
        Settings(temporary=False),
        ["the root file system is read-only, and /tmp", "the cache is on a read-only", "NVIDIA"],
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_the_cuda_image_refuses_to_start(buildah: Buildah, cuda: Built, name: str) -> None:
    settings, expected = BAD[name]
    said = refused(buildah, cuda.second, settings)
    assert not [text for text in expected if text not in said], said


def test_the_cuda_image_with_a_driver_and_no_card(buildah: Buildah, cuda: Built) -> None:
    # Any library will do for the driver's: it is loaded, and nothing is asked of it.
    library = "/usr/lib/x86_64-linux-gnu/libm.so.6"
    mounts = {"/usr/lib/x86_64-linux-gnu/libcuda.so.1": (Path(library).resolve(), "ro")}
    said = refused(buildah, cuda.second, Settings(mounts=mounts))
    assert "the container has no cards" in said and "without the NVIDIA" not in said


def test_the_cuda_image_with_everything_in_the_way(
    buildah: Buildah, cuda: Built, tmp_path: Path
) -> None:
    cache, token = tmp_path / "cache", tmp_path / "token"
    cache.mkdir()
    token.write_text("hf_x")
    token.chmod(0o600)
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        environment = {"RIG_LISTEN_PORT": str(port), "HF_TOKEN_FILE": "/run/secrets/hf_token"}
        mounts = {"/cache": (cache, "rw"), "/run/secrets/hf_token": (token, "ro")}
        said = refused(buildah, cuda.second, Settings(environment=environment, mounts=mounts))
    print(said)
    for expected in (
        "the secret HF_TOKEN cannot be read by user 1234: Permission denied",
        "the cache volume belongs to user 0, and the container runs as user 1234",
        "`sudo chown -R 1234:1234`",
        "without the NVIDIA runtime",
        f"port {port} is taken",
    ):
        assert expected in said
    assert said.count("error: ") == said.count("  next: ") == 4


def test_a_wheel_for_another_processor_stops_the_build(
    buildah: Buildah, checkout: Layout, cuda: Built, standin: tuple[str, Fabric], tmp_path: Path
) -> None:
    other = tmp_path / "vllm-1.2.3+rig.2-cp38-abi3-manylinux_2_28_aarch64.whl"
    shutil.copy2(cuda.wheel, other)
    context = plan_context(checkout, find_pin(checkout, None), Flavour.CUDA, other)
    write_context(context, tmp_path / "context")
    done = buildah.run(
        *("build", "--format", "docker", "--layers", "--pull=false", *buildah.volumes),
        *("--secret", f"id=pip,src={buildah.pip_conf}", "--build-arg", f"BASE={standin[0]}"),
        *("--build-arg", "RIG_ARCH=aarch64", "-t", "localhost/wrong", str(tmp_path / "context")),
        check=False,
    )
    assert done.returncode != 0
    assert "is not for this image's processor, x86_64" in done.stdout + done.stderr


def refused(buildah: Buildah, tag: str, settings: Settings) -> str:
    """What the image says as it refuses to start."""
    if reason := no_container():
        pytest.skip(reason)
    done = run(buildah, tag, settings, "M")
    assert done.returncode == 3, done.stderr
    assert "next:" in done.stderr
    return done.stderr


def test_the_cpu_image_serves_on_four_ray_ranks(
    buildah: Buildah, checkout: Layout, tmp_path: Path
) -> None:
    if reason := no_container():
        pytest.skip(reason)
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
    print(f"size {size_of(buildah, tag) / 1e9:.2f} GB")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cache = tmp_path / "cache"
    asked = ["--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "1024"]
    asked.append("--no-plan")  # of cards, which are not here
    settings = Settings(
        environment={"RIG_LISTEN_PORT": str(port)},
        mounts={"/model": (model, "ro"), "/cache": (cache, "rw")},
    )
    log = tmp_path / "serve.log"
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    before = shared_memory()
    with container(buildah, tag, settings, ["/model", *asked]) as (name, command):
        with log.open("w") as out:
            running = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
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
            owners = {Path(f"/proc/{p.pid}").stat().st_uid for p in workers}
            assert owners == {settings.user}
            # As an engine runs HEALTHCHECK: in the container, as its user.
            user = f"{settings.user}:{settings.user}"
            health = buildah.command(crun("exec", "--user", user, name, ENTRY, "health"))
            assert "computed a token" in health.stdout
            # As an engine stops it: STOPSIGNAL to the container's first process.
            ended = time.monotonic()
            buildah.command(crun("kill", name, "SIGTERM"))
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
    assert shared_memory() <= before
