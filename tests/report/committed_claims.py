"""workflow/claims.yaml as it is committed."""

from pathlib import Path

from dpatlas.evidence.claims import read_claims

WORKFLOW = Path(__file__).parents[2] / "workflow"
COMMITTED = WORKFLOW / "claims.yaml"
CLAIMS = read_claims(COMMITTED)
