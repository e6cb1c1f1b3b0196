"""`python -m rig`."""

import rig.cli_anchors
import rig.cli_cluster
import rig.cli_docs
import rig.cli_doctor
import rig.cli_engine
import rig.cli_image
import rig.cli_p2p
import rig.cli_plan
import rig.cli_rebase
import rig.cli_release
import rig.cli_report  # noqa: F401  (their commands join those of rig.cli)
from rig.cli import main

if __name__ == "__main__":
    main()
