"""How fast a round is: beside the naive engine, and beside what the machine can do."""
