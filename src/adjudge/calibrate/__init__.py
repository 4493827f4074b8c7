"""How far each derived bound lies above honest noise, and below the smallest real defect.

Not to be mistaken for `adjudge.calibration`, which holds the pairs of sources that gates are checked
with. Here implementations are torch functions that nobody distrusts, and errors are injected by size.
"""
