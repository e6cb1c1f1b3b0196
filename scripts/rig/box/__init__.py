"""What a box is: its cards, links and host as seen, and the rig file that says how it should be."""
