"""Methods that a test adds to vLLM's workers, to look at a tower and to make it fail.

vLLM mixes the class into its worker (`--worker-extension-cls tower_faults.TowerFaults`), and its
`/collective_rpc` calls the methods on every rank, between two steps of the engine. Runs in the
engine's processes; every argument arrives as text, every result leaves as JSON.
"""

from __future__ import annotations

from typing import Any

_STATE = "_rig_tower_state"


class TowerFault(Exception):
    """Raised inside of a tower, because a test asked for it."""


class TowerFaults:
    """For a model that keeps its vision tower in `visual`."""

    def watch_tower(self) -> dict[str, int]:
        """Count from now on how often the tower runs on this rank; says what it has counted."""
        model: Any = self.get_model()  # type: ignore[attr-defined]
        state: dict[str, int] | None = getattr(model, _STATE, None)
        if state is None:
            state = {"passes": 0, "faults": 0}
            setattr(model, _STATE, state)

            def count(*_: object) -> None:
                state["passes"] += 1

            # A module inside of the first block: blocks themselves may be called past their hooks.
            model.visual.blocks[0].norm1.register_forward_hook(count)
        return dict(state)

    def storages_of_tower(self) -> dict[str, list[int]]:
        """Block -> [its parameters, the different pieces of memory in which they lie]."""
        model: Any = self.get_model()  # type: ignore[attr-defined]
        found = {}
        for index, block in enumerate(model.visual.blocks):
            held = [p for p in block.parameters() if p.numel()]
            pieces = {p.untyped_storage().data_ptr() for p in held}
            found[f"blocks.{index}"] = [len(held), len(pieces)]
        return found

    def fail_tower_once(self, inside: str, then: str) -> None:
        """Make the next image request raise when the tower comes to a module.

        The exception leaves the tower as any error there would. What then becomes of it is
        decided outside of the tower: the engine dies of an exception that reaches it.

        Args:
            inside: name of a module of the tower, e.g. `blocks.2.mlp`.
            then: `again` to encode the same images once more, `die` to let the exception go on.
        """
        model: Any = self.get_model()  # type: ignore[attr-defined]
        self.watch_tower()
        state: dict[str, int] = getattr(model, _STATE)
        module = model.visual.get_submodule(inside)
        encode = type(model).embed_multimodal.__get__(model)  # not an earlier call's replacement

        def fail(*_: object) -> None:
            raise TowerFault(f"a test made {inside} fail")

        def encode_with_a_fault(**images: object) -> object:
            del model.embed_multimodal  # the class has the true one
            handle = module.register_forward_pre_hook(fail)
            try:
                # In data mode a rank without images of its own does not run the tower.
                return encode(**images)
            except TowerFault:
                state["faults"] += 1
                if then == "die":
                    raise
            finally:
                handle.remove()
            return encode(**images)

        model.embed_multimodal = encode_with_a_fault
