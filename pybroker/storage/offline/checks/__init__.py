"""Checks of the files of a stopped broker for contradictions. Reads only, but for accepting a loss."""
