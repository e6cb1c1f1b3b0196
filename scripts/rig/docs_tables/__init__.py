"""Pages of docs/ that are made from the series and the pins: `rig docs`."""
