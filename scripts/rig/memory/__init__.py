"""What of a model lies on each card, counted before anything is loaded."""
