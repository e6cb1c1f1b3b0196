"""From an applied tree to an installable wheel, and back to what an installation carries."""
