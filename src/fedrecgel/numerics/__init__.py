"""Losses, optimisers, clusters, graphs and counts: functions that know no method."""
