import json

import pytest
from kl_sample_records import RECORDS, SETTINGS

from dpatlas.core.canonical import canonical_json


@pytest.fixture
def job(tmp_path):
    """Write records as runs would; the arguments of the job that makes `name` of them."""

    def arguments(name, records=None, tier="trial", settings=SETTINGS):
        records = RECORDS[name]() if records is None else records
        root = tmp_path / tier
        paths = []
        for record in records:
            path = root / "runs" / "kl_privacy" / record["id"] / "record.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(record))
            paths.append(str(path))
        return [
            *(name, "--tier", tier, "--settings", canonical_json(settings)),
            *("--output", str(root / "made"), "--lineage", str(root / "lineage" / f"{name}.json")),
            *("--records", *paths),
        ]

    return arguments
