"""What figures and tables of all papers share."""
