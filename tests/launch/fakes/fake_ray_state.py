"""Stands in for ray._private.state: what the fake programs wrote, behind Ray's own names.

A test adds to "nodes" of the file, or changes what is there, while it is watched.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


class GlobalState:
    def _initialize_global_state(self, options: str) -> None:
        if os.environ.get("FAKE_STATE") == "refuses":
            sys.exit("InvalidAuthTokenError: the token is not the cluster's")
        run = Path(os.environ.get("VLLM_RPC_BASE_PATH", "/none"))
        if not (run / "r").exists():
            run = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).parent
        self.file = run / "r" / "fake_state.json"
        # Only the cluster at this address has this state.
        assert (run / "r" / "ray_current_cluster").read_text() == options

    @property
    def said(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.file.read_text())
        return said

    def node_table(self) -> list[dict[str, object]]:
        own = {
            "Alive": True,
            "NodeID": "n1",
            "NodeManagerAddress": "127.0.0.1",
            "NodeManagerHostname": "boxa",
            "Resources": {"GPU": self.said["devices"]},
            "Labels": self.said.get("labels", {}),
        }
        dead = {"Alive": False, "NodeID": "n0", "Resources": {"GPU": 64}}
        return [own, dead, *self.said.get("nodes", [])]

    def actor_table(self, _: None) -> dict[str, dict[str, object]]:
        table: dict[str, dict[str, object]] = {}
        for name, pid, *node in [*self.said["actors"], ["something_else", 1]]:
            actor = {"Name": name, "Pid": pid, "ActorID": f"a{pid}", "State": "ALIVE"}
            table[f"a{pid}"] = {**actor, "Address": {"NodeID": (node or ["n1"])[0]}}
        return table
