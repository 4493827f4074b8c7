"""Loads and runs a candidate in a process of its own. Reports what happened; decides nothing."""
