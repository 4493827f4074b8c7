"""Kernels written for one architecture, and what it takes to build, load and launch them.

`sm90/` holds the CUDA sources; `kernels.py` lists what is in them; `build.py` compiles them once a
machine; `driver.py` is the part of the CUDA driver that is called; `plan.py` lays sequences out in
chunks; `gated_delta_rule.py` runs the kernels of that member. Importing any of it needs no GPU.
"""
