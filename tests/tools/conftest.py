"""The fabricated checkout, for the commands that stand on the series."""

from tests.series.conftest import workshop

__all__ = ["workshop"]
