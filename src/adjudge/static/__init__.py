"""The static runner: what a candidate's text, and the machine code made of it, say without a run."""
