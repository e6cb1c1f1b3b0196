"""Stands in for the `vllm` program: serves health and version, and behaves badly on request.

FAKE_VLLM is a list of words: "crash" (a traceback, exit 1), "kill" (as if out of memory), "hang"
(never ready), "waits" (the same, for Ray's devices), "stubborn" (ignores SIGTERM), "leak" (leaves
shared memory files behind), "open" (listens on all interfaces), "store" (the same, and says so as
vLLM does), "slow" (ready after a second), "dies" (ends by itself a second after it was ready),
"map=PATH" (maps a file that is there).
"""

import http.server
import json
import mmap
import os
import secrets
import signal
import socket
import sys
import threading
import time
from pathlib import Path

WORDS = os.environ.get("FAKE_VLLM", "").split()
TRACEBACK = """\
(EngineCore pid=7) ERROR 11-29 16:00:00 [core.py:1] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-29 16:00:00 [core.py:1] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-29 16:00:00 [core.py:1] ValueError: no room for 512 KV blocks
(APIServer pid=6) Traceback (most recent call last):
(APIServer pid=6) RuntimeError: Engine core initialization failed. See root cause above.
"""


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def shared_file() -> None:
    path = f"/dev/shm/psm_{secrets.token_hex(8)}"
    with Path(path).open("w+b") as file:
        file.truncate(4096)
        # Kept mapped for the life of the process; the descriptor is closed, as vLLM does.
        KEPT.append(mmap.mmap(file.fileno(), 4096))
    with (Path(os.environ["FAKE_SEEN"]) / "shared").open("a") as names:
        names.write(path + "\n")


KEPT: list[object] = []


def worker(rank: int) -> int:
    """A rank, away from its parent as a Ray worker is."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if (pid := os.fork()) == 0:
            if "stubborn" in WORDS:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            if "leak" in WORDS:
                shared_file()
            time.sleep(3600)
        os.write(write, str(pid).encode())
        os._exit(0)
    os.wait()
    return int(os.read(read, 20))


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if self.path == "/version":
            self.wfile.write(json.dumps({"version": "9.9.9+rig.1.cpu"}).encode())

    def log_message(self, *_: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    allow_reuse_address = True


def main() -> None:
    if "FAKE_SEEN" in os.environ:
        seen = {"argv": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}
        (Path(os.environ["FAKE_SEEN"]) / "vllm.json").write_text(json.dumps(seen))
    if "stubborn" in WORDS:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "crash" in WORDS:
        print(TRACEBACK, flush=True)
        sys.exit(1)
    if "kill" in WORDS:
        os.kill(os.getpid(), signal.SIGKILL)
    print("loading weights", flush=True)
    ranks = int(option("--tensor-parallel-size"))
    pids = [worker(rank) for rank in range(ranks)]
    state = Path(os.environ["VLLM_RPC_BASE_PATH"]) / "r" / "fake_state.json"
    if state.exists():
        said = json.loads(state.read_text())
        name = "vllm_Worker_1_TP{}" if ranks > 1 else "vllm_Worker_1"
        # In an order that is not theirs: sorting them is the caller's business.
        said["actors"] = [[name.format(rank), pids[rank]] for rank in reversed(range(ranks))]
        state.write_text(json.dumps(said))
    for word in WORDS:
        if word.startswith("map="):
            with Path(word.removeprefix("map=")).open("r+b") as file:
                KEPT.append(mmap.mmap(file.fileno(), 4096))
    if "waits" in WORDS:
        print(
            "INFO 11-29 16:00:00 [ray_utils.py:1] Waiting for creating a placement group of specs"
        )
    if "hang" in WORDS or "waits" in WORDS:
        sys.stdout.flush()
        time.sleep(3600)
    if "leak" in WORDS:
        shared_file()
    if "open" in WORDS or "store" in WORDS:
        KEPT.append(store := socket.create_server(("0.0.0.0", 0)))
        if "store" in WORDS:
            port = store.getsockname()[1]
            print(f"rank=0 distributed_init_method=tcp://127.0.0.1:{port} backend=gloo", flush=True)
    if "slow" in WORDS:
        time.sleep(1)
    server = Server((option("--host"), int(option("--port"))), Handler)
    if "dies" in WORDS:
        threading.Timer(1, lambda: os._exit(3)).start()
    server.serve_forever()


main()
