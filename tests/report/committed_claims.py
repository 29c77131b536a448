"""The claims of all papers as they are committed."""

from dpatlas.evidence.claims import read_claims

CLAIMS = read_claims()
