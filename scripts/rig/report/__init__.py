"""`rig report`: one text file on a box and its last launch, fit to be shown to others."""
