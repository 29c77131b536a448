"""Labelled lines for a terminal of 80 columns, which say when something had to be left out."""

import textwrap
from collections.abc import Sequence

WIDTH = 80
LABEL = 10
# Of a list of names, so many are shown.
NAMED = 3
MORE = "--all leaves nothing out, --json is for tools"


class Tree:
    """Lines of labelled text; `cut` tells whether any had to be left out."""

    def __init__(self, full: bool):
        self.full, self.cut = full, False
        self.lines: list[str] = []

    def add(
        self, label: str, text: str | None, indent: str = "  ", most: int | None = None
    ) -> None:
        """A label and its text, in `most` lines unless the tree is full; no line for no text."""
        if not text:
            return
        margin = indent + " " * LABEL
        room = WIDTH - len(margin)
        head = f"{indent}{label:<{LABEL}}"
        # A path may be wider than the room beside its label.
        if max(map(len, text.split())) > room:
            self.lines.append(head.rstrip())
            head = margin = f"{indent}  "
        lines = _wrapped(text, head, margin)
        if most and len(lines) > most and not self.full:
            last = lines[most - 1]
            while len(last) > WIDTH - 4:
                last = last.rpartition(" ")[0]
            lines = [*lines[: most - 1], f"{last.rstrip(' ,;')} ..."]
            self.cut = True
        self.lines += lines

    def line(self, text: str, indent: str = "") -> None:
        """Text without a label, its further lines set in."""
        self.lines += _wrapped(text, indent, indent + "  ")

    def command(self, words: str | None, indent: str = "  ") -> None:
        """The command that makes it, in lines that a shell takes as they are."""
        if words is None:
            return
        head, margin = f"{indent}{'make':<{LABEL}}", indent + " " * (LABEL + 2)
        line, *options = words.split(" --configfile ")
        lines = [head + line]
        for option in options:
            if len(f"{lines[-1]} --configfile {option}") <= WIDTH:
                lines[-1] += f" --configfile {option}"
            else:
                lines.append(f"{margin}--configfile {option}")
        self.lines += [f"{each} \\" for each in lines[:-1]] + lines[-1:]

    def names(self, names: Sequence[str], most: int = NAMED) -> str:
        """The names, or the first few and how many more."""
        if self.full or len(names) <= most + 1:
            return ", ".join(names)
        self.cut = True
        return f"{', '.join(names[:most])} and {len(names) - most} more"

    def text(self) -> str:
        """All lines, and how to see more."""
        return "\n".join([*self.lines, *(["", f"  {MORE}"] if self.cut else [])])


def _wrapped(text: str, head: str, margin: str) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=head,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )
