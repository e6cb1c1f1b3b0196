"""`rig release`: wheels, checksums, SBOM, provenance and changelog of one revision."""
