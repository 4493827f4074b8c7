"""Reports: pure functions of verdicts."""
