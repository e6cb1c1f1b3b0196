"""`python -m rig`."""

from rig.cli import main

if __name__ == "__main__":
    main()
