"""APIs of producers and their transactions."""
