"""The catcher: runs the towers of vLLM's models with their weights at rest on the host.

It runs in the Python of an engine, which has torch and vLLM; `rig.anchors` starts it.
"""
