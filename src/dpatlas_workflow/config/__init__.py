"""The config: loaded, checked, and turned into the specs of a run."""
