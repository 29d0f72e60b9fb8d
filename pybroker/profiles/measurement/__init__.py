"""Measuring the machine: the runs (`plan`), how they are made (`run`) and their result (`result`). From the result
follow whether flushes are real (`flush`), the medium (`medium`), and the settings for it (`tune`).
"""
