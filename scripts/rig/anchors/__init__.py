"""`rig anchors`: which towers break, or slow down unseen, when their weights rest on the host."""
