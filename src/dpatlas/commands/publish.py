"""`python -m dpatlas publish`: copy the summaries of a complete run to docs/results.

docs/index.html then has all published tiers on one page.
"""

from collections.abc import Sequence
from pathlib import Path

from dpatlas.config.atlas import COUNTING, RESULTS, Atlas
from dpatlas.config.load import load_tier, validate
from dpatlas.config.root import General
from dpatlas.core.files import read_json
from dpatlas.errors import ArgumentParser, InputError
from dpatlas.report.page import write_site
from dpatlas.report.publish import CONFIG, Expected, commit_of, publish

DOCS = Path("docs/results")


def main(arguments: Sequence[str]) -> int:
    """Publish a tier; refused where the settings carry no verdicts or the run is not complete."""
    parser = ArgumentParser(prog="dpatlas publish", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tier", required=True, help="folder under the results")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of all tiers")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the copy goes")
    options = parser.parse_args(arguments)
    config = config_of(options.tier, options.results)
    if not config.verdicts:
        raise InputError(
            "--tier", f"{options.tier}, whose numbers mean nothing", "a tier with verdicts: true"
        )
    expected = expected_of(Atlas(config, options.results))
    target = publish(expected, options.results, options.docs, commit_of(Path.cwd()))
    print(f"published to {target}: {', '.join([*expected.figures, *expected.tables])}")
    if options.tier in COUNTING:
        print(f"all published tiers: {write_site(options.docs)}")
    return 0


def expected_of(atlas: Atlas) -> Expected:
    """What a complete run of this config holds."""
    figures, tables = (
        {name: tuple(Path(path).parent.name for path in atlas.behind(name)) for name in names}
        for names in (atlas.figures, atlas.tables)
    )
    return Expected(atlas.tier, figures, tables, tuple(atlas.blocks))


def config_of(tier: str, results: Path) -> General:
    """The run's own config, which says what it should hold; a tier that ships can do without."""
    path = results / tier / CONFIG
    if not path.is_file():
        return load_tier(tier)
    config = validate(read_json(path))
    if config.tier != tier:
        raise InputError(str(path), f"tier {config.tier}", tier)
    return config
