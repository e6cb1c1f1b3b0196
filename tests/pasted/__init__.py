"""Pasted text: tests of rig.box.pasted."""
