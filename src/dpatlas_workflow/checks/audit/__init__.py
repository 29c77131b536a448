"""audit: attacks on our own private mechanisms."""
