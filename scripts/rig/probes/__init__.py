"""Probes: what each patch relies on upstream, looked up in any vLLM tree without importing it."""
