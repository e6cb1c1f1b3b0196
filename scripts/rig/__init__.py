"""The tools behind vllm-rig: pins, the patch series, the wheels and the rehearsal.

Nothing here imports vllm or torch, except the modules that say so in their first line:
those run inside an engine environment, never in the tools' own.
"""
