"""The patch series: reading it, applying it with proof, exporting it, verifying it."""
