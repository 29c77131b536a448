"""The site of `make docs` and its notebooks."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import run_notebooks
import yaml

PROJECT = Path(__file__).parents[1]
DOCS = PROJECT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
BUILDER = PROJECT / ".venv-docs" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_and_draws_what_it_shows(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    cells = [cell for cell in content["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 3 and all(cell["outputs"] for cell in cells)
    assert outputs(run_notebooks.executed(content)) == outputs(content)


def outputs(content):
    """What cells print, and which draw; other processors draw other bytes."""
    found = [out for cell in content["cells"] for out in cell.get("outputs", [])]
    return [out.get("text", list(out.get("data", ()))) for out in found]


def test_the_notebook_s_links_lead_to_files():
    for path in NOTEBOOKS:
        text = "".join(
            line
            for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == "markdown"
            for line in cell["source"]
        )
        links = re.findall(r"\]\(([^)#]+)", text)
        assert links and all((path.parent / link).is_file() for link in links)


def test_the_site_asks_no_other_machine_for_anything():
    theme = yaml.safe_load((PROJECT / "mkdocs.yml").read_text())
    assert theme["theme"]["font"] is False
    assert not {"repo_url", "extra_javascript", "extra_css"} & theme.keys()


@pytest.mark.slow
@pytest.mark.skipif(not BUILDER.exists(), reason="make docs installs its packages")
def test_the_site_builds_without_a_warning_and_every_page_is_whole(tmp_path):
    built = tmp_path / "site"
    done = subprocess.run(
        [BUILDER, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", built],
        cwd=PROJECT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", text)
        asked = [tag for tag in tags if re.search(r'(?:src|href)="(?:https?:)?//', tag)]
        assert not asked, page
    for style in built.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?https?:", style.read_text()), style
    start = (built / "index.html").read_text(encoding="utf-8")
    assert "Five papers on differential privacy" in start
    results = (built / "all-results.html").read_text(encoding="utf-8")
    assert '<div class="finding">\n<strong><a href="dp_sgld.html#' in results
    assert '<a href="all-results.html">' in (built / "dp_sgld.html").read_text(encoding="utf-8")
    for key in ("kl_privacy", "dp_sgld", "feature_learning", "lp_fft", "max_information"):
        assert f"papers/{key}/index.html" in start
    reference = (built / "reference.html").read_text(encoding="utf-8")
    for name in re.findall(r"^::: (\S+)", (DOCS / "reference.md").read_text(), re.M):
        assert f'id="{name}"' in reference, name
    shown = (built / "notebooks" / "counterexample.html").read_text(encoding="utf-8")
    assert "3.24e+03" in shown
