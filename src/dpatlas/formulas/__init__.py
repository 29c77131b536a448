"""The papers' formulas, printed and corrected: a package for each paper; see `dpatlas bound`."""
