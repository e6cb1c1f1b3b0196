"""Whether cards can read each other's memory, shown by value, never taken from a grant."""
