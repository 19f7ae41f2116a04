"""What scores: parameters in, scores out, over a client axis."""
