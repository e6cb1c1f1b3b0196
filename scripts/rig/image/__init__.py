"""Images: the folder they are built in, the commands that build them, what runs at their start."""
