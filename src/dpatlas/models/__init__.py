"""Networks and their initialisations."""
