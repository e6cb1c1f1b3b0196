"""Stands in for the `ray` program: a head (or a node that joins one) that blocks, and a daemon
that will not end by asking.

FAKE_RAY chooses: "" works, "fails" ends at once with an error, "slow" never comes up, "few"
offers one device too few.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def value(name: str) -> str:
    return next(a.partition("=")[2] for a in sys.argv if a.startswith(f"--{name}="))


def daemon() -> None:
    """A process of its own session that a plain SIGTERM does not end."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(3600)
        os._exit(0)
    os.wait()


def main() -> None:
    folder = Path(value("temp-dir"))
    folder.mkdir()
    mode = os.environ.get("FAKE_RAY", "")
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    seen = {
        "argv": sys.argv[1:],
        "ray_variables": {k: v for k, v in os.environ.items() if k.startswith("RAY_")},
        "token_mode": oct(token.stat().st_mode & 0o777),
        "token_bytes": len(token.read_bytes()),
        "folder_mode": oct(token.parent.stat().st_mode & 0o777),
        "pid": os.getpid(),
    }
    if "FAKE_SEEN" in os.environ:
        (Path(os.environ["FAKE_SEEN"]) / "ray.json").write_text(json.dumps(seen))
    if mode == "fails":
        print("ValueError: the object store is larger than the memory")
        sys.exit(1)
    daemon()
    if mode == "slow":
        time.sleep(3600)
    if not any(argument == "--head" for argument in sys.argv):
        print("Ray runtime started.", flush=True)
        time.sleep(3600)
    gcs = socket.create_server(("127.0.0.1", 0))
    devices = int(value("num-gpus")) - (mode == "few")
    labels = [a.partition("=")[2] for a in sys.argv if a.startswith("--labels=")]
    pairs = dict(pair.split("=") for pair in labels[0].split(",")) if labels else {}
    state = {"devices": devices, "actors": [], "labels": pairs}
    (folder / "fake_state.json").write_text(json.dumps(state))
    print("Ray runtime started.", flush=True)
    (folder / "ray_current_cluster").write_text(f"127.0.0.1:{gcs.getsockname()[1]}")
    time.sleep(3600)


main()
