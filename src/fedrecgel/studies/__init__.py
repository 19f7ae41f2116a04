"""Many runs: the paper's experiments, planned, carried out and reduced."""
