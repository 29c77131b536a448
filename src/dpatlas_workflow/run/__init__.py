"""What jobs of several papers share: data, tunings, runs that share their deal, the command."""
