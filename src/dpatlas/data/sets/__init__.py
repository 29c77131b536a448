"""The data sets that the project knows: a module each, or for a family, found by their folder."""
