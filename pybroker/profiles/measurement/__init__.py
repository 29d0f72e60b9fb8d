"""Measuring the machine: what is run (`plan`), how (`run`), what it came to (`result`), and what follows from it:
whether flushes are real (`flush`), which medium it is (`medium`), and the settings for it (`tune`).
"""
