"""What keeps a container from serving, each with the option that mends it. Pure."""

from __future__ import annotations

from rig.errors import RigError
from rig.image.start_facts import CACHE, Folder, StartFacts

_GPUS = "`docker run --gpus all`, `podman run --device nvidia.com/gpu=all`, or docker/compose.yaml"


def problems(facts: StartFacts) -> list[RigError]:
    """Everything that is wrong, what must be mended first at the beginning."""
    written = [_written(folder, facts) for folder in facts.cache]
    found = [_temporary(facts), *written, _cards(facts), _port(facts)]
    return [problem for problem in found if problem is not None]


def _temporary(facts: StartFacts) -> RigError | None:
    folder = facts.temporary
    if folder.writable and not folder.read_only:
        return None
    if folder.read_only:
        return RigError(
            "the root file system is read-only, and /tmp with it: Ray has no place for its sockets",
            where="/tmp",
            next_step="add `--tmpfs /tmp:exec,mode=1777` (docker/compose.yaml does)",
        )
    return RigError(
        f"user {facts.uid} may not write to /tmp",
        where=_shown(folder),
        next_step="mount a tmpfs there: `--tmpfs /tmp:exec,mode=1777`",
    )


def _written(folder: Folder, facts: StartFacts) -> RigError | None:
    if folder.owner is None:
        return RigError(
            "the cache folder is not there",
            where=folder.path,
            next_step=f"mount a volume: `-v vllm-rig-cache:{CACHE}`",
        )
    if folder.read_only:
        return RigError(
            "the cache is on a read-only file system",
            where=folder.path,
            next_step=f"mount a volume that can be written: `-v vllm-rig-cache:{CACHE}`, "
            "without `:ro`",
        )
    if folder.writable:
        return None
    top = folder.path == str(CACHE)
    owner, group = folder.owner
    return RigError(
        f"the cache {'volume' if top else 'folder'} belongs to user {owner}, and the container "
        f"runs as user {facts.uid}, who may not write there",
        where=_shown(folder),
        next_step=f"`sudo chown -R {facts.uid}:{facts.gid}` what is mounted there, on the host; or "
        f"run as its owner: `--user {owner}:{group}`, RIG_UID and RIG_GID in docker/.env",
    )


def _cards(facts: StartFacts) -> RigError | None:
    if facts.flavour != "cuda":
        return None
    hidden = facts.wanted_devices in ("void", "none")
    if facts.driver and facts.card_files:
        return None
    if hidden or facts.driver:
        said = f"NVIDIA_VISIBLE_DEVICES={facts.wanted_devices}"
        return RigError(
            "the container has no cards" + (f": {said} hides them" if hidden else ""),
            where="/dev/nvidia*",
            next_step=f"give it some: {_GPUS}; `nvidia-smi -L` on the host lists them",
        )
    return RigError(
        "the container was started without the NVIDIA runtime: the driver's library is not in it",
        where="libcuda.so.1",
        next_step=f"start it with {_GPUS}; if that is refused, install the NVIDIA container "
        "toolkit on the host (on WSL2, in the distribution that docker runs in)",
    )


def _port(facts: StartFacts) -> RigError | None:
    if not facts.port_taken:
        return None
    if facts.port_taken == "Address already in use":
        return RigError(
            f"port {facts.port} is taken",
            where=f"{facts.host}:{facts.port}",
            next_step="with the host's network another program listens there: "
            "`ss -ltnp` names it, or set RIG_LISTEN_PORT to a free port",
        )
    return RigError(
        f"the server cannot listen on {facts.host}:{facts.port}: {facts.port_taken}",
        next_step="RIG_HOST is 127.0.0.1 or 0.0.0.0, RIG_LISTEN_PORT a number from 1024 to 65535",
    )


def _shown(folder: Folder) -> str:
    owner = "?" if folder.owner is None else f"{folder.owner[0]}:{folder.owner[1]}"
    return f"{folder.path} (owner {owner}, mode {folder.mode:04o})"
