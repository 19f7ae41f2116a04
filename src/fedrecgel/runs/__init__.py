"""One run: its settings, its loop, its folder, its result."""
