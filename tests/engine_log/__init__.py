"""What an engine says: tests of rig.engine_log."""
