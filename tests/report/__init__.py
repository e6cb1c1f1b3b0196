"""A report: what it holds and what it must not."""
