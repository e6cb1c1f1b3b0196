"""Tiny, real towers of vLLM's multimodal models, one module a family."""
