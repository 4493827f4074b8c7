"""Plans, asks the worker, decides. Never imports a candidate."""
