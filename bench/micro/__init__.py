"""Parts of the data plane measured by themselves, inside C."""
