"""What jobs of all papers share: a spec in, a record out."""
