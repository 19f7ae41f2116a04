"""`python -m fedrecgel`."""

import sys

from fedrecgel.cli.main import main

sys.exit(main())
