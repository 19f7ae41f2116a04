"""The app of a node, and the processes Flower starts below one: `python -P -m fedrecgel.runs.node_app COMMAND ...`.

`engine/flower/processes.py: write_commands` puts them in the place of Flower's own commands.
"""

from __future__ import annotations

import os
import signal
import sys

from fedrecgel.engine.flower.apps import answer_one_message, client_app, start_answers
from fedrecgel.engine.flower.processes import STARTER, die_with_parent
from fedrecgel.runs.flower import work_of
from fedrecgel.runs.policy import read_policy

app = client_app(work_of, read_policy)

if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)  # files are written atomically, so any moment will do
    sys.argv = sys.argv[1:]
    if sys.argv[sys.argv.index("--parent-pid") + 1] != str(os.getppid()):
        raise SystemExit("The node is gone.")  # it ended while this process began
    if sys.argv[0] == STARTER:
        start_answers()
    else:
        answer_one_message(app)
