"""Deep mode: what compute-sanitizer sees of a candidate's memory accesses on a GPU."""
