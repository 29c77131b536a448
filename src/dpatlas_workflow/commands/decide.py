"""`python -m dpatlas decide`: spend CPU time where it decides most inconclusive claims.

Rounds of Snakemake jobs give conditions more runs, up to the next look. The requested numbers of
runs are in results/TIER/more_runs.json: after Ctrl-C or a kill, the same command continues.
"""

import contextlib
import json
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpatlas.base.costs import read_cost
from dpatlas.base.files import write_json
from dpatlas.base.folders import MORE_RUNS, RESULTS
from dpatlas.base.guard import integer, real
from dpatlas.base.progress import duration
from dpatlas.base.specs import FIRST_RUN, RUNS
from dpatlas.commands.bound import strict_json
from dpatlas.errors import EXIT_FAILED_RUN, ArgumentParser, InputError, Terminated
from dpatlas_workflow.commands.claims import changes
from dpatlas_workflow.config.atlas import Atlas, read_more_runs
from dpatlas_workflow.config.load import load_config
from dpatlas_workflow.config.root import General
from dpatlas_workflow.cost.estimate import seconds_per_run
from dpatlas_workflow.evidence.claim_file import STATISTICAL, Claims, at_tier, read_claims
from dpatlas_workflow.evidence.claims import RecordsByLook, judge_claims, judge_entry, read_papers
from dpatlas_workflow.evidence.comparisons import PaperRecords
from dpatlas_workflow.evidence.looks import LOOKS, chance_to_decide
from dpatlas_workflow.evidence.more_runs import Condition, OpenEntry, next_round
from dpatlas_workflow.evidence.verdicts import CLAIMS, INCONCLUSIVE

# Runs Snakemake with these arguments; its exit code.
Runner = Callable[[Sequence[str]], int]


def main(arguments: Sequence[str], runner: Runner | None = None) -> int:
    """Decide what the hours suffice for; 1 if Snakemake fails."""
    parser = ArgumentParser(prog="dpatlas decide", description=__doc__, allow_abbrev=False)
    parser.add_argument("--hours", type=float, required=True, help="CPU hours to spend at most")
    parser.add_argument("--configfile", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--profile", help="of Snakemake, such as workflow/profiles/slurm")
    parser.add_argument("--cores", default="all", help="cores for Snakemake (default: all)")
    parser.add_argument("--dry-run", action="store_true", help="only print the first round")
    parser.add_argument(
        "--json", action="store_true", help="print what was done as JSON, all else to stderr"
    )
    options = parser.parse_args(arguments)
    real(gt=0).check("--hours", options.hours)
    if (cores := options.cores) != "all":
        integer(ge=1).check("--cores", int(cores) if cores.isdecimal() else cores)
    # Snakemake ignores a missing one, and would run everything on this machine.
    profiles = [Path(), Path("profiles")] if options.profile not in (None, "none") else []
    if profiles and not any((folder / options.profile).exists() for folder in profiles):
        found = f"{options.profile}, which is not there"
        raise InputError("--profile", found, "a folder of a profile")
    config = load_config(options.configfile)
    if not config.verdicts:
        raise InputError("verdicts", "false", "a config whose runs carry verdicts")
    if config.partial:
        raise InputError("partial", "true", "false: the runs that are asked for come first")
    profile = ["--workflow-profile", options.profile] if options.profile else []
    files = ["--configfile", *map(str, options.configfile)] if options.configfile else []
    words = ["--cores", options.cores, *profile, *files]
    report: dict[str, Any] = {}
    budget_s, run = options.hours * 3600, runner or snakemake
    # What Snakemake prints too, which inherits it.
    with contextlib.redirect_stdout(sys.stderr if options.json else sys.stdout):
        code = decide(config, budget_s, run, words, options.dry_run, report=report)
    if options.json:
        print(strict_json(report))
    return code


def decide(
    config: General,
    budget_s: float,
    runner: Runner,
    words: Sequence[str] = (),
    dry_run: bool = False,
    results: Path = RESULTS,
    report: dict[str, Any] | None = None,
) -> int:
    """Rounds of runs within a budget of CPU seconds; the exit code.

    words: arguments for Snakemake beside the target. report: is given what was done, as JSON
    values. Raises InputError for a tier that has not run.
    """
    state, spent = State(config, results, words, dry_run), 0.0
    claims = at_tier(read_claims(), config.tier)
    rows = state.rows(claims)
    report = {} if report is None else report
    report |= {"tier": config.tier, "budget_cpu_s": budget_s, "spent_cpu_s": spent, "rounds": []}
    report |= _open(rows)
    print(_standing(rows))
    for number in range(1, 1000):
        conditions = state.conditions()
        planned = next_round(state.open_entries(claims), conditions, budget_s - spent)
        if planned is None:
            print("no inconclusive claim is left that the remaining time may decide")
            break
        raised = {name: [conditions[name].runs, to] for name, to in sorted(planned.runs.items())}
        entries, cpu_s = [*planned.entries], planned.cpu_s
        print(f"round {number}: about {duration(cpu_s)} of CPU for {', '.join(entries)}")
        print(
            *(f"  {name}: {a} -> {b} runs" for name, (a, b) in raised.items()), sep="\n", flush=True
        )
        a_round: dict[str, Any] = {"cpu_s": cpu_s, "entries": entries, "runs": raised}
        report["rounds"].append(a_round)
        if dry_run:
            return 0
        known = set(state.costs())
        state.ask_for(planned.runs)
        # First, since --configfile takes every word behind it.
        code = runner([str(state.folder / CLAIMS), *words])
        spent += sum(cost for name, cost in state.costs().items() if name not in known)
        report["spent_cpu_s"] = spent
        if code:
            print(f"snakemake ended with exit code {code}; the same command goes on")
            return EXIT_FAILED_RUN
        state = State(config, results, words)
        before, rows = rows, state.rows(claims)
        report |= _open(rows)
        a_round["changes"] = [line for line, _ in changes(before, rows)]
        moved = a_round["changes"] or ["no verdict changed"]
        print("\n".join(f"  {line}" for line in moved))
        print(f"  spent {duration(spent)} of {duration(budget_s)} of CPU", flush=True)
    print(_standing(rows))
    return 0


class State:
    """The tier as its records have it: more runs than the config asks for count where they are."""

    def __init__(
        self,
        config: General,
        results: Path = RESULTS,
        words: Sequence[str] = (),
        dry_run: bool = False,
    ):
        self.folder = results / config.tier
        # A round that was interrupted is planned anew, from the blocks of runs that it finished.
        self.atlas = Atlas(config, results)
        asked, finished = self.atlas.config.more_runs, _finished(self.atlas)
        mine = {spec.condition for spec in self.atlas.specs.values()}
        # Those of another seed or config stay as they are.
        others = {name: runs for name, runs in asked.items() if name not in mine}
        if (kept := {**others, **finished}) != asked:
            self.atlas = Atlas(config, results, kept)
        missing = [path for path in self.atlas.claim_records() if not Path(path).is_file()]
        if missing:
            allowed = f"a tier that has run: {shlex.join(['snakemake', *words])}"
            raise InputError("decide", f"no {missing[0]}", allowed)
        if kept != asked and not dry_run:
            write_json(self.folder / MORE_RUNS, kept)
        settings = json.loads(self.atlas.claim_settings())
        settings.pop("verdicts")
        self.papers: dict[str, PaperRecords] = read_papers(settings, self.atlas.claim_records())
        self._per_run = seconds_per_run(self.atlas)

    def rows(self, claims: Claims) -> list[dict[str, str]]:
        """The rows of claims.csv."""
        return judge_claims(claims, self.papers, self.atlas.tier)

    def open_entries(self, claims: Claims) -> list[OpenEntry]:
        """The inconclusive entries that have intervals, and read runs that can be added to."""
        looks = {key: RecordsByLook(records) for key, records in self.papers.items()}
        found = []
        for entry in (entry for entry in claims.entries if entry.kind == STATISTICAL):
            judged = judge_entry(claims, entry, looks.get(entry.paper))
            decision = judged.decision
            if judged.verdict == INCONCLUSIVE and decision is not None and judged.read:
                evidence, error = decision.evidence, claims.error(entry.paper)
                later = [look for look in LOOKS if look > decision.look]
                chances = {look: chance_to_decide(evidence, error, look) for look in later}
                names = tuple(record.condition for record in judged.read)
                found.append(OpenEntry(entry.id, chances, names))
        return found

    def conditions(self) -> dict[str, Condition]:
        """Every condition whose runs can be added to, by its id."""
        costs, found = self.costs(), {}
        for paper in self.papers.values():
            for record in RecordsByLook(paper).repeated.values():
                runs, blocks = record.spec.runs, len(record.ids)
                paths = (Path(self.atlas.record(name)) for name in record.ids)
                files = [str(path.with_name("cost.json")) for path in paths]
                measured = [costs[file] for file in files if file in costs]
                # As measured; of records without their cost, as estimated.
                cpu_s = self._per_run[record.ids[0]]
                if measured:
                    cpu_s = sum(measured) / len(measured) / (runs / blocks)
                found[record.condition] = Condition(runs, runs // blocks, cpu_s)
        return found

    def costs(self) -> dict[str, float]:
        """CPU seconds of every record that is there, by path."""
        paths = sorted(self.folder.glob("runs/*/*/cost.json"))
        return {str(path): float(read_cost(path)["cpu_s"]) for path in paths}

    def ask_for(self, runs: Mapping[str, int]) -> None:
        """Raise conditions to so many runs in `more_runs.json`."""
        path = self.folder / MORE_RUNS
        write_json(path, {**read_more_runs(path), **runs})


def snakemake(words: Sequence[str]) -> int:
    """Snakemake in a process of its own; waits for it to end its jobs after Ctrl-C."""
    process = subprocess.Popen([sys.executable, "-m", "snakemake", *words], stdout=sys.stdout)
    try:
        return process.wait()
    except KeyboardInterrupt as error:
        # Of Ctrl-C the terminal has told Snakemake too, which stops its jobs.
        if isinstance(error, Terminated):
            process.terminate()
        process.wait()
        raise


def _finished(atlas: Atlas) -> dict[str, int]:
    """Runs by condition, from 0 on without a gap, whose records are there; where there are any."""
    blocks: dict[str, dict[int, int]] = defaultdict(dict)
    for spec_id, spec in atlas.specs.items():
        more = FIRST_RUN in spec.fields and spec.condition in atlas.config.more_runs
        if more and Path(atlas.record(spec_id)).is_file():
            blocks[spec.condition][spec.fields[FIRST_RUN]] = spec.fields[RUNS]
    finished: dict[str, int] = {}
    for condition, sizes in blocks.items():
        while size := sizes.get(finished.get(condition, 0)):
            finished[condition] = finished.get(condition, 0) + size
    return finished


def _standing(rows: Sequence[Mapping[str, str]]) -> str:
    found = _open(rows)
    count, of = len(found["inconclusive"]), found["statistical_entries"]
    return f"{count} of {of} statistical entries are inconclusive"


def _open(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """Number of statistical entries, and the names of those that are inconclusive."""
    entries = [row for row in rows if row["kind"] == STATISTICAL and row["comparisons"]]
    names = [row["claim"] for row in entries if row["verdict"] == INCONCLUSIVE]
    return {"statistical_entries": len(entries), "inconclusive": names}
