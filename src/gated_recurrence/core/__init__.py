"""What every member of the family shares: checks, chunk algebra, the scan and the naive loop."""
