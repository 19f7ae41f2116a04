"""Tables, charts and sections of a page as plain values: described once, written and drawn in many ways."""
