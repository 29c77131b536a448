"""Commands of the workflow, each a module: `main(arguments) -> exit code`."""

from dpatlas.cli import Command

# `dpatlas` finds them by the entry point that pyproject.toml names.
COMMANDS = {
    name: Command(about, f"{__name__}.{name.replace('-', '_')}", "workflow")
    for name, about in {
        "claims": "the verdict on every claim of a run; or what changed since it was published",
        "decide": "spend CPU hours on more runs where they decide most inconclusive claims",
        "explain": "trace a figure, table, record or claim back to what made it; or compare two",
        "verify": "check that every result is still what was made",
        "plan": "count jobs and estimate their cost before anything runs",
        "tune": "list the tunings of a tier, or write their outcomes beside the papers",
        "config": "print the config that results of files, or its schema; or the reference pages",
        "data": "published and own files that a tier needs, and where they are or belong",
        "new-paper": "write the folders of a new paper, with a small complete example",
        "bundle": "one archive of a run's raw records; from it, verdicts, figures and page again",
        "publish": "copy the summaries of a complete run to docs/results",
        # `audit` without a script.
        "audit-mechanisms": "",
    }.items()
}
