"""Carry the series to another release by `git rebase`, and say what became of each patch."""
