"""What notes and captions of feature_learning say of its records."""

from collections.abc import Sequence

from dpatlas_workflow.papers.feature_learning.figures.rows import CONDITION, Record
from dpatlas_workflow.show.rows import averaged, span


def setting_note(records: Sequence[Record]) -> str:
    """What all panels share: the conditions away from their axes, privacy and runs."""
    aside = {
        name: [
            getattr(point, name)
            for record in records
            if name not in _varied(record)
            for point in record.spec.points
        ]
        for name in CONDITION[1:]
    }
    fixed = [f"{name} = {span(values)}" for name, values in aside.items() if values]
    runs = averaged(record.spec.runs for record in records)
    return f"elsewhere {', '.join(fixed)}; {privacy_words(records)}; {runs}"


def _varied(record: Record) -> tuple[str, ...]:
    """What conditions of a sweep differ in."""
    if record.spec.axis != "ladder":
        return (record.spec.axis,)
    return ("d", "n", "p", "epsilon") if record.spec.vanishes else ("d", "n", "p")


def privacy_words(records: Sequence[Record]) -> str:
    """delta, and whose records the layers see."""
    both = any(record.spec.sharing != "split" for record in records)
    layers = "both layers use the same n records" if both else "n records for each layer"
    return f"delta = {span(record.spec.delta for record in records)}; {layers}"


def risk_words(records: Sequence[Record]) -> str:
    """How a network is read out, and what its risk is measured on."""
    steps, fresh = (
        span(getattr(record.spec, name) for record in records) for name in ("steps", "n_test")
    )
    return f"{steps} steps of descent; risk on {fresh} fresh records, 1 for predicting 0"


def warning_notes(records: Sequence[Record]) -> list[str]:
    """What the report's assumptions exclude and was run all the same, by link."""
    notes = {
        f"{record.spec.link}: {warning}": None
        for record in records
        for warning in record.facts["warnings"]
    }
    return list(notes)
