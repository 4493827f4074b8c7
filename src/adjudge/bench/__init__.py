"""Timing that a candidate cannot fake.

The judge keeps the time, over a handshake with the worker (`subject`), in rounds of a short and a long
span each, whose difference is free of what a handshake costs (`rounds`). Every call gets inputs that no
process knew before the clock ran (`ring`), and answers for what it returned. A speed is given only where
nothing can have been done outside of the timed part (`belief`).
"""
