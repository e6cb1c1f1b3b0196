"""Stands in for ray._private.state: what the fake programs wrote, behind Ray's own names."""

import json
import os
from pathlib import Path


class GlobalState:
    def _initialize_global_state(self, options: str) -> None:
        folder = Path(os.environ["RAY_AUTH_TOKEN_PATH"]).parent / "r"
        # Only the cluster at this address has this state.
        assert (folder / "ray_current_cluster").read_text() == options
        self.said = json.loads((folder / "fake_state.json").read_text())

    def node_table(self) -> list[dict[str, object]]:
        node = {"Alive": True, "NodeID": "n1", "Resources": {"GPU": self.said["devices"]}}
        return [node, {"Alive": False, "NodeID": "n0", "Resources": {"GPU": 64}}]

    def actor_table(self, _: None) -> dict[str, dict[str, object]]:
        table: dict[str, dict[str, object]] = {}
        for name, pid in [*self.said["actors"], ["something_else", 1]]:
            actor = {"Name": name, "Pid": pid, "ActorID": f"a{pid}", "State": "ALIVE"}
            table[f"a{pid}"] = {**actor, "Address": {"NodeID": "n1"}}
        return table
