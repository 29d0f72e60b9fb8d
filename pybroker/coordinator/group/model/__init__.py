"""A group's model: its members, generation, states and committed offsets. Pure."""
