"""What the commands about files of a stopped broker share."""
