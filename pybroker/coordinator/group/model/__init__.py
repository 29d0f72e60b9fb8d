"""What a group is: its members, generation, states and committed offsets. Pure."""
