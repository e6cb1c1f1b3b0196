"""Measures the placements of a tower's weights, on a GPU or, to show that it works, on the CPU.

It needs torch and transformers, and of vLLM only the streamer's own files: nothing here runs in
the tools' environment but `cli` up to the point where it has checked what it was asked for.
"""
