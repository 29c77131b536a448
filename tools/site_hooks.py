"""What `make docs` adds to docs/: pages that lie beside the code, the results page, notebooks.

A file of the repository that is no page of the site is named where a page links to it, and linked
where mkdocs.yml has the repository's address.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
RESULTS_PAGE = "docs/index.html"
# Where the site has it: its own start takes that name.
ALL_RESULTS = "all-results.html"
# Pages by their path in the repository: their place in the site.
MOVED = {
    "docs/start.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
# The page of all results is a document of its own, without the frame of the site.
FRAMED = f"""# Published results

<iframe src="{ALL_RESULTS}" title="All published results"
style="width: 100%; height: 85vh; border: 0"></iframe>

[In a window of its own]({ALL_RESULTS}){{target=_blank}}
"""
FENCE = re.compile(r"^\s*(```|~~~)")
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
CODE_SPAN = re.compile(r"`[^`\n]+`")
LIST_ITEM = re.compile(r"(- |\d+\. )")


def pages() -> dict[str, str]:
    """Every page of the site, by its path in the repository."""
    found = {
        str(path.relative_to(ROOT)): str(path.relative_to(ROOT / "docs"))
        for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    for path in sorted((ROOT / "src" / "dpatlas_workflow").glob("*/*/*.md")):
        group, key = path.parts[-3:-1]
        if group in ("papers", "checks"):
            name = "index.md" if path.name == "README.md" else path.name
            found[str(path.relative_to(ROOT))] = f"{group}/{key}/{name}"
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        found[str(path.relative_to(ROOT))] = f"notebooks/{path.stem}.md"
    return found | MOVED


PAGES = pages()
PLACES = {place: path for path, place in PAGES.items()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put every page and the pages of results where the site has them."""
    for file in list(files):
        path = f"docs/{file.src_uri}"
        if path in MOVED or path.endswith(".ipynb"):
            files.remove(file)
        elif path.endswith(".html") and "/" not in file.src_uri:
            files.remove(file)
            text = (ROOT / path).read_text(encoding="utf-8").replace("index.html", ALL_RESULTS)
            place = ALL_RESULTS if path == RESULTS_PAGE else file.src_uri
            files.append(File.generated(config, place, content=text))
    files.append(File.generated(config, "results.md", content=FRAMED))
    for path, place in PAGES.items():
        if files.get_file_from_path(place) is None:
            text = (ROOT / path).read_text(encoding="utf-8")
            text = from_notebook(json.loads(text)) if path.endswith(".ipynb") else text
            files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """GitHub's lists and links between files, as this site needs them."""
    place = page.file.src_uri
    path = PLACES.get(place)
    if path is None:
        return markdown
    lines: list[str] = []
    inside = False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            # A list may follow a line of text at once on GitHub.
            text_before = lines and lines[-1].strip() and not lines[-1].startswith((" ", "|", "#"))
            if LIST_ITEM.match(line) and text_before and not LIST_ITEM.match(lines[-1]):
                lines.append("")
            if not line.startswith("    "):
                line = with_links(line, path, place, config["extra"]["repository"])
        lines.append(line)
    return "\n".join(lines)


def with_links(line: str, path: str, place: str, repository: str = "") -> str:
    """The line with the links of a file in the repository as the page in the site has them.

    repository: its address, under which its files are at blob/HEAD; empty if it has none.
    """
    codes = [found.span() for found in CODE_SPAN.finditer(line)]

    def link(found: re.Match[str]) -> str:
        within_code = any(start < found.start() < end for start, end in codes)
        words, target = found.groups()
        if within_code or "://" in target or target.startswith("#"):
            return found.group()
        file, _, heading = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(path), file))
        if wanted == RESULTS_PAGE:
            wanted_place = "results.md"
        elif wanted in PAGES:
            wanted_place = PAGES[wanted]
        elif wanted.startswith("docs/") and (ROOT / wanted).is_file():
            wanted_place = wanted.removeprefix("docs/")
        elif repository:
            return f"[{words}]({repository}/blob/HEAD/{wanted})"
        else:
            return words
        away = posixpath.relpath(wanted_place, posixpath.dirname(place) or ".")
        return f"[{words}]({away}{'#' + heading if heading else ''})"

    return LINK.sub(link, line)


def from_notebook(content: dict[str, Any]) -> str:
    """A notebook of text and code, with what its cells printed and drew."""
    parts = []
    for cell in content["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        printed = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed}```")
        for output in cell["outputs"]:
            if png := output.get("data", {}).get("image/png"):
                parts.append(f"![What the cell above draws](data:image/png;base64,{png})")
    return "\n\n".join(parts) + "\n"
