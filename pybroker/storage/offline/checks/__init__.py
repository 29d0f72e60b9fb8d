"""What does not add up in the files of a stopped broker. Reads only, but for accepting a loss."""
