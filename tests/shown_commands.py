"""The command lines that documents show, and what is run in the place of each.

A line runs as it stands in a copy of the project in which nothing has run; `SHORTER` names the
parts that are put otherwise, and `LEFT_TO` the lines that another test runs, each with its reason.
"""

import re
from pathlib import Path

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
PAGES = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((PROJECT / "src" / "dpatlas_workflow").glob("papers/*/README.md")),
]
OURS = r"(?:(?:python -m )?dpatlas|snakemake|make|(?:python|sh) tools/\S+)"
PROGRAM = re.compile(rf"(?:[A-Z_]+=\S+ )?{OURS}(?= |$)(?! writes| makes| says)")

DEPTH = next((DOCS / "results/embedded").rglob("kl_vs_depth.pdf")).relative_to(PROJECT).as_posix()

# Part of a line, what is put for it, and why.
SHORTER = [
    (r" \[--tier T\]|--tier T\b", " --tier embedded", "a tier of one's own choice"),
    (r" \[--configfile FILE\]| \[--profile P\]", "", "one's own files"),
    (r"\[?--config FILE\]?", "--config workflow/tiers/smoke.yaml", "one's own file"),
    (r" \[(--\S+)(?: NAME)?\]", r" \1", "an option that may be left out"),
    (r"--mechanism(?!\S| dp)", "--mechanism dp-sgd-poisson --runs 20", "any mechanism"),
    (r"--cores N\b", "--cores 2", "any number of cores"),
    (r"(snakemake --cores 2) NAME", r"\1 kl_vs_depth", "any figure"),
    (r"train FILE\.yaml", "train digits.yaml", "the file that a page gives"),
    (r"explain WHAT", "explain kl-5b", "any result"),
    (r"new-paper KEY", "new-paper another_paper", "any key"),
    (r"snakemake \.\.\.", "snakemake --cores 2", "any command"),
    (r"(?<!docs/)\bresults/embedded/figures/kl_vs_depth\.pdf", DEPTH, "a run of one's own"),
    (r"(?<!docs/)\bresults/embedded$", "docs/results/workstation", "a run of one's own"),
    (r"(explain kl-5b|dpatlas claims(?! --published).*?)$", r"\1 --results docs/results", "a run"),
    (r"verify( --tier \w+)?$", "verify docs/results/embedded", "a run of one's own"),
    (r"workflow/profiles/mine", "workflow/profiles/slurm", "a profile of one's own"),
    (r"paper\.yaml mine\.yaml", "paper.yaml", "a folder of data of one's own"),
    (
        r"^((?:\w+=\S+ )?snakemake(?!.* (?:-n|--list|--unlock|--lint)\b).*)",
        r"\1 -n",
        "hours of runs",
    ),
    (r"^make\b", "make -n", "the workflow's runs and the tests, which other tests are"),
]
# Lines, the test that runs such a one (or part of it), and why it is not run here.
LEFT_TO = [
    (r"dpatlas COMMAND\b", "test_documents.py", "stands for every command"),
    (r"dpatlas bench\b", "test_bench.py", "takes minutes, or wants a GPU"),
    (r"dpatlas bundle\b", "report/test_bundle.py", "wants the records of a complete run"),
    (r"dpatlas publish\b", "report/test_publish.py", "wants the records of a complete run"),
    (r"dpatlas decide\b", "workflow/test_decide_runs.py", "wants a complete run, spends hours"),
    (r"my_paper", "workflow/test_new_paper.py", "writes and tests a paper"),
    (r"dpatlas train --init", "train/test_train_files.py", "wants a table of one's own"),
    (r"dpatlas train \S+ --arms", "train/test_arms.py", "trains four times"),
    (r"dpatlas train selected\.yaml", "train/test_train_own.py", "trains for minutes"),
    (r"python tools/epsilon_gallery\.py", "epsilon/test_epsilon_command.py", "the gallery"),
    (r"python tools/run_notebooks\.py", "test_site.py", "the notebooks"),
    (r"sh tools/gpu_check", "test_gpu_check.py", "minutes, or a GPU"),
    (r"python tools/beside", "test_beside.py", "takes a minute, and jax-privacy beside it"),
    (r"python tools/frozen\.py", "test_frozen.py", "writes over a file of the project"),
    (r"python tools/verdict_rates\.py", "evidence/test_simulation.py", "simulates for minutes"),
    (r"python tools/seconds\.py", "report/test_plan.py", "wants finished runs"),
    (r"python tools/models_elsewhere", "privacy/test_models_elsewhere.py", "wants their packages"),
    (r"python tools/xrays\.py", "train/test_xrays.py", "wants data that are not here"),
    (r"python tools/audit_faults\.py", "audit/test_faults.py", "takes minutes"),
    (r"dpatlas epsilon .*--claimed 2\.92", "test_documents.py", "ends with exit code 1"),
    (r"dpatlas certify\b", "certify/test_certify.py", "wants data that a page's script writes"),
    (r"emulate_precision", "privacy/test_precision.py", "takes minutes"),
    (r"^make$", "workflow/test_workflow.py", "the workflow"),
]
# What ends with exit code 2 and one line where nothing has run, and its reason.
NEEDS_RUNS = {
    "python -m dpatlas tune --write": "wants the tunings of a run",
    "snakemake --cores 2 --configfile workflow/tiers/printed.yaml --config tier=printed "
    "partial=True -n": "wants some records of a run",
}


def blocks(text: str, *languages: str) -> list[str]:
    """Code blocks of these languages; "" is an indented one."""
    fenced = r"^( *)```(\w*)\n(.*?)^ *```"
    found = [
        re.sub(f"^{indent}", "", body, flags=re.M)
        for indent, language, body in re.findall(fenced, text, re.M | re.S)
        if language in languages
    ]
    if "" in languages:
        rest = re.sub(fenced, "", text, flags=re.M | re.S)
        found += re.findall(r"(?:^\n)((?:^    \S.*\n?)+)", rest, re.M)
    return found


def commands(path: Path) -> list[str]:
    """Command lines of a page, in its order: of blocks of a shell, then of tables and text."""
    text = path.read_text(encoding="utf-8")
    lines: list[str] = []
    for body in blocks(text, "console", "sh", "bash", ""):
        prompted = "$ " in body
        for line in with_functions(body.replace("\\\n", " ")).splitlines():
            line = line.strip()
            if not prompted or line.startswith("$ "):
                lines.append(line.removeprefix("$ "))
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    lines += re.findall(r"`([^`]+)`", prose)
    plain = (re.sub(r"\s+#.*|\s+[|>&;].*", "", " ".join(line.split())) for line in lines)
    return list(dict.fromkeys(line for line in plain if PROGRAM.match(line)))


def with_functions(script: str) -> str:
    """The script with each function of a shell put where it is called."""
    for name, body in re.findall(r"^(\w+)\(\) \{\n(.*?)\n\}", script, re.M | re.S):
        script = re.sub(r"^\w+\(\) \{\n.*?\n\}", "", script, count=1, flags=re.M | re.S)
        call = " ".join(body.split())
        script = re.sub(
            rf"^{name}\b *([^#\n]*)",
            lambda found, call=call: call.replace('"$@"', found[1].strip()) + " ",
            script,
            flags=re.M,
        )
    return script


def written_files(path: Path) -> dict[str, str]:
    """Files that a page gives: blocks whose first line is a comment with a name, here-documents."""
    text = path.read_text(encoding="utf-8")
    found = {}
    for body in blocks(text, "python", "yaml", "sh", "bash", "console"):
        named = re.match(r"# ([\w/-]+\.\w+)\n", body)
        if named:
            found[named[1]] = body
        found |= {
            name: content
            for name, content in re.findall(r"cat > (\S+) <<'?END'?\n(.*?)^END$", body, re.M | re.S)
        }
    return found


def shorter(line: str) -> str:
    """What is run in the place of a line."""
    for pattern, put, _ in SHORTER:
        line = re.sub(pattern, put, line)
    return " ".join(line.split())


def left_to(line: str) -> str | None:
    """The test that runs such a line."""
    return next((test for pattern, test, _ in LEFT_TO if re.search(pattern, line)), None)


def names_a_command(line: str) -> bool:
    """A command of ours without arguments, in text: lines that have them are run."""
    return re.fullmatch(r"(python -m )?dpatlas [a-z-]+", line) is not None


def in_gallery(path: Path, line: str) -> bool:
    """tests/epsilon runs the blocks of docs/epsilon.md, and compares what they print."""
    return path.name == "epsilon.md" and re.match(r"python -m dpatlas \w+ .", line) is not None


SHOWN = [(path, line) for path in PAGES for line in commands(path) if not in_gallery(path, line)]
