"""The app of a node, and the process below a node that answers messages with it.

`engine/flower/processes.py: node_environment` puts it in the place of Flower's own.
"""

from __future__ import annotations

import os
import signal
import sys

from fedrecgel.engine.flower.apps import client_app
from fedrecgel.engine.flower.processes import die_with_parent
from fedrecgel.engine.flower.supernode import answer_messages
from fedrecgel.runs.flower import work_of
from fedrecgel.runs.policy import read_policy

app = client_app(work_of, read_policy)

if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)  # files are written atomically, so any moment will do
    if "--parent-pid" in sys.argv and sys.argv[sys.argv.index("--parent-pid") + 1] != str(os.getppid()):
        raise SystemExit("The node is gone.")  # it ended while this process began
    answer_messages(app)
