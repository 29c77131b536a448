"""Run the notebooks of docs/notebooks and put what their cells print and draw into them.

    python tools/run_notebooks.py [FILE ...]

Cells run one after another in one namespace, as a kernel would run them. A cell prints, and may
leave one figure of matplotlib.pyplot.
"""

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def executed(content: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the present output of every cell; an exception of a cell is raised."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            source = "".join(cell["source"])
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(source, f"cell {count}", "exec"), namespace)
            lines = printed.getvalue().splitlines(keepends=True)
            stream = {"name": "stdout", "output_type": "stream", "text": lines}
            outputs = [*([stream] if lines else []), *_drawn()]
            cell = cell | {"execution_count": count, "outputs": outputs}
        cells.append(cell)
    return content | {"cells": cells}


def _drawn() -> list[dict[str, Any]]:
    """The figure that pyplot has, as an output; none without one."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None or not pyplot.get_fignums():
        return []
    with io.BytesIO() as png:
        pyplot.savefig(png, dpi=90, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(png.getvalue()).decode()}
    pyplot.close("all")
    return [{"data": data, "metadata": {}, "output_type": "display_data"}]


def main(names: list[str]) -> None:
    """Write each notebook anew."""
    for path in map(Path, names) if names else sorted(FOLDER.glob("*.ipynb")):
        content = executed(json.loads(path.read_text(encoding="utf-8")))
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
