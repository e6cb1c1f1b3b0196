"""The side of `rig p2p` that moves data between cards: run with the engine's Python, needs torch.

One process per rank, started by `rig.p2p.run`, which judges what it says and how it ends. Nothing
here decides; nothing here imports `rig`.
"""
