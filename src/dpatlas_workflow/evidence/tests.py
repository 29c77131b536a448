"""Tests of claims: what claims.yaml can ask of a column of rows.

A test takes the rows of a group's records (`rows.columns`), or of a table that the paper's
`claims.py` computes of them (its `TABLES`), and compares a number of them with the claimed limits:
of each run, by a t interval over runs; with a known standard error; or as computed. Labels name
what is compared; {braces} in them stand for columns of the rows compared.
"""

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from dpatlas.base.fields import Model, Once, setting
from dpatlas.errors import InputError
from dpatlas_workflow.evidence.comparisons import Evidence, NotRun, PaperRecords, Undecided
from dpatlas_workflow.rows import as_list, columns, fields_of
from dpatlas_workflow.statistics import Comparison, Estimate, difference_estimate, mean_estimate

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]
Value = str | int | float | bool
Where = Mapping[Name, Value | Annotated[list[Value], Field(min_length=1)]]
Text = Annotated[str, Field(min_length=1)]
# A value that begins so names a number of the paper's settings, or half of it: $early, $early/2.
SETTING = "$"
# Of the records taken, the least number of steps.
LAST = "$last"
# Of the rows of a record, the largest value.
LARGEST = "$largest"
# Any value: no such condition.
ANY = "$any"
SPECIAL = (LAST, LARGEST, ANY)
SCALES: dict[str, Callable[..., np.ndarray]] = {
    "linear": np.asarray,
    "log": np.log,
    "log2": np.log2,
}
# Rows by value on an axis.
Sweep = dict[Any, pd.DataFrame]


class ColumnTest(Model):
    """What all tests take: which column of which rows, how its values are called, and limits."""

    group: str = setting("Which runs of the paper are read.", pattern="^[a-z_]+$")
    table: Name = setting("Table of the records, or of the paper's claims.py.", default="rows")
    column: Name = setting("The compared column.")
    log: bool = setting("Whether its natural logarithm is compared.", default=False)
    where: Where = setting(
        "By column the value of the rows that are taken, or a list of values. Each is compared by "
        "itself, in the order of the list, or of the rows if the column is in `by`.",
        default={},
    )
    at_least: dict[Name, float] = setting(
        "By column the least value of the rows that are taken.", default={}
    )
    at_most: dict[Name, float] = setting(
        "By column the largest value of the rows that are taken.", default={}
    )
    may_lack: Once[Name] = setting(
        "Columns of `where`: with by: [record], a record without such a value is left out.",
        default=[],
    )
    by: Once[Name] = setting(
        "Columns whose values are compared one by one, in the order of the rows; with record, "
        "every record has to have such rows.",
        default=[],
    )
    label: Text = setting("What is compared, in words; {data_name} is the column data.name.")
    lacking: Text | dict[Name, Text] = setting(
        "What is said where the config has no rows with a {value} of `where`, or by column of "
        "`where` what is said of it.",
        default=None,
    )
    above: float = setting("The claimed side: values above this.", default=-math.inf)
    below: float = setting("The claimed side: values below this.", default=math.inf)
    target: float = setting("Between limits so far from this; 0 by default.", default=0.0)
    tolerance: float = setting("How far, in place of above and below.", gt=0, default=None)

    @property
    def limits(self) -> tuple[float, float]:
        """The claimed interval."""
        if self.tolerance is None:
            return self.above, self.below
        return self.target - self.tolerance, self.target + self.tolerance

    def evidence(self, records: PaperRecords) -> Evidence:
        """The comparisons, in their alternatives.

        Raises NotRun without the rows, Undecided where they give no interval.
        """
        if not any(found := self.alternatives(records)):
            raise Undecided(f"no {self.column} to compare")
        return Evidence(found)

    def alternatives(self, records: PaperRecords) -> Sequence[Sequence[Comparison]]:
        """Comparisons of which all of one of these have to hold."""
        return [list(self.comparisons(records))]

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """What all have to hold."""
        raise NotImplementedError

    def cells(
        self, records: PaperRecords, where: Where | None = None
    ) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
        """The rows at each combination of the values in `where`, then of the columns `by`.

        Each with the values of all columns that its rows share, by `for_labels`.
        """
        where = self.where if where is None else where
        of_rows = {name: value for name, value in where.items() if name in self.by}
        for at in _points({name: v for name, v in where.items() if name not in of_rows}):
            rows = self.rows(records, {**at, **of_rows})
            if rows.empty:
                continue
            parts = rows.groupby(self.by, sort=False) if self.by else [((), rows)]
            for _, part in parts:
                yield {**self.resolved(records, at), **for_labels(part.iloc[0].to_dict())}, part

    def rows(self, records: PaperRecords, at: Where) -> pd.DataFrame:
        """The rows with these values; records that do not have them in their specs are not read."""
        taken = list(records.group(self.group))
        values = {n: as_list(v) for n, v in self.resolved(records, at).items() if v != ANY}
        wanted_of = {name: wanted[0] for name, wanted in values.items()}
        own = taken[0].shape.readable(self.table) if self.table in taken[0].shape.tables else ()
        for name, wanted in values.items():
            if name not in own:
                taken = [each for each in taken if fields_of(each).get(name, wanted[0]) in wanted]
            self._need(taken, {name: wanted[0]}, wanted_of)
        make = records.computed(self.table)
        rows = make(taken) if make else columns(taken, self.table)
        if make and rows.empty:
            return rows
        for compare, limits in ((operator.ge, self.at_least), (operator.le, self.at_most)):
            for name, limit in limits.items():
                rows = rows[compare(self._column(rows, name), limit)]
                self._need(rows, {name: limit})
        by_record, every = "record" in self.by, rows
        for name in sorted(values, key=lambda name: name not in self.may_lack):
            if name not in rows and all(name in fields_of(record) for record in taken):
                continue
            column = self._column(rows, name)
            wanted = [rows.steps.min()] if values[name] == [LAST] else values[name]
            if wanted == [LARGEST]:
                kept = rows[column == every.groupby("record")[name].transform("max")[rows.index]]
            else:
                kept = rows[column.isin(wanted)]
            if name in self.may_lack or not by_record:
                for value in wanted:
                    of_value = kept if value == LARGEST else kept[kept[name] == value]
                    record = {"record": rows.record.iloc[0]} if "record" in rows else {}
                    self._need(of_value, {name: value}, wanted_of | record)
                every = kept
            rows = kept
        if by_record:
            left = set(rows.record)
            for record, of_record in every.groupby("record", sort=False):
                if record not in left:
                    named = ", ".join(
                        f"{name} {of_record[name].max() if value == LARGEST else value}"
                        for name, every_value in values.items()
                        for value in every_value
                    )
                    raise NotRun(f"{record} has no row with {named}")
        return rows

    def _column(self, rows: pd.DataFrame, name: str) -> "pd.Series[Any]":
        if name not in rows:
            raise InputError(f"where of {self.label}", name, ", ".join(rows.columns))
        return rows[name]

    def resolved(self, records: PaperRecords, at: Where) -> dict[str, Any]:
        """These values, with numbers for the names of settings; NotRun for a setting not there."""
        horizons, found = records.settings.get("horizons", {}), dict(at)
        for name, value in at.items():
            if isinstance(value, str) and value.startswith(SETTING) and value not in SPECIAL:
                key, _, half = value.removeprefix(SETTING).partition("/")
                if key not in horizons:
                    raise NotRun(f"the config has no horizon {key}")
                found[name] = horizons[key] // int(half or 1)
        return found

    def _need(
        self,
        found: Sequence[Any],
        value_of: Mapping[str, Value],
        words: Mapping[str, Any] | None = None,
    ) -> None:
        """Raise NotRun for nothing found; words: further ones that `lacking` may use."""
        if not len(found):
            ((name, value),) = value_of.items()
            named = value if isinstance(value, str) else f"{name} {value:g}"
            default = f"group {self.group} has no {named}"
            if isinstance(self.lacking, dict):
                of_all = in_words({**(words or {}), **value_of}) | {"group": self.group}
                raise NotRun(self.lacking.get(name, default).format(**of_all))
            # The words may be about another column than the one that lacks.
            about = ("{value", f"{{{name}")
            if self.lacking and ("{" not in self.lacking or any(n in self.lacking for n in about)):
                default = self.lacking.format(value=value, **value_of)
            raise NotRun(default)

    def by_run(self, rows: pd.DataFrame, column: str | None = None) -> "pd.Series[float]":
        """The values of a cell's runs by number; Undecided for runs without one, or without log."""
        values = pd.Series(rows[column or self.column].to_numpy(float), rows["run"].to_numpy())
        if values.index.has_duplicates:
            found = f"run {values.index[values.index.duplicated()][0]} twice"
            raise InputError(f"rows of {self.label}", found, "each run once: name what differs")
        if values.isna().any():
            lost = rows.assign(lost=values.isna().to_numpy()).groupby("record", sort=False).lost
            record = lost.any().idxmax()
            runs, diverged = lost.size()[record], lost.sum()[record]
            raise Undecided(f"{diverged} of {runs} runs of {record} diverged", int(runs - diverged))
        if not self.log:
            return values
        if not ((values > 0) & np.isfinite(values)).all():
            what = f"{self.column} of {rows.record.iloc[0]}"
            raise Undecided(f"{what} is zero or not finite in some run", len(values))
        return np.log(values)

    def difference(self, first: pd.DataFrame, second: pd.DataFrame) -> Estimate:
        """Of two cells, run by run over the runs that both have; unpaired where seeds differ."""
        one, other = self.by_run(first), self.by_run(second)
        runs = one.index.intersection(other.index)
        paired = first.seed.iloc[0] == second.seed.iloc[0]
        return difference_estimate(
            one[runs].to_numpy(), other[runs].to_numpy(), paired=bool(paired)
        )


class Mean(ColumnTest):
    """The mean over runs lies between the limits."""

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each cell of the rows."""
        for at, rows in self.cells(records):
            estimate = mean_estimate(self.by_run(rows).to_numpy())
            yield Comparison(self.label.format(**at), estimate, *self.limits)


class Below(ColumnTest):
    """What shows that expectations over a bound are below `below`, and what refutes it.

    The column may be picked from the runs, such as the largest record's: its mean can show the
    claim and not refute it. The column `refuted_by` was named before the runs: it can refute it and
    not show it. A bound has no margin: it may be attained.
    """

    refuted_by: Name = setting("The column that can refute it; the same by default.", default=None)
    refuting_label: Text = setting("What that is, in words; the same by default.", default=None)

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """Two for each cell of the rows."""
        for at, rows in self.cells(records):
            for column, label, kind in (
                (self.column, self.label, {"shows_only": True}),
                (self.refuted_by, self.refuting_label or self.label, {"veto": True}),
            ):
                estimate = mean_estimate(self.by_run(rows, column).to_numpy())
                yield Comparison(label.format(**at), estimate, below=self.below, **kind)


class Exact(ColumnTest):
    """A computed number lies between the limits.

    Rows may have limits of their own, `above` and `below`, a number of runs, `of_runs`, and,
    without a number, words on why they are `undecided`.
    """

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each row."""
        for _, rows in self.cells(records):
            for at in rows.to_dict("records"):
                if isinstance(reason := at.get("undecided"), str):
                    raise Undecided(reason, 1)
                value, runs = float(at[self.column]), int(at.get("of_runs", 1))
                if math.isnan(value):
                    raise Undecided(f"{at.get('record')} diverged in some run")
                above, below = self.limits
                limits = at.get("above", above), at.get("below", below)
                estimate = Estimate(value, 0.0, math.inf, runs)
                yield Comparison(self.label.format(**for_labels(at)), estimate, *limits)


class Normal(ColumnTest):
    """A mean of many draws, whose standard error counts as known, lies between the limits."""

    error: Name = setting("Column of the standard error.")
    draws: Name = setting("Column of the number of draws.", default="draws")
    veto: bool = setting("Whether it can only refute.", default=False)

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each row."""
        for _, rows in self.cells(records):
            for at in rows.to_dict("records"):
                known = float(at[self.column]), float(at[self.error])
                if any(map(math.isnan, known)):
                    raise Undecided(f"{at.get('record')} has no {self.column} in some row")
                estimate = Estimate(*known, math.inf, int(at[self.draws]))
                label = self.label.format(**for_labels(at))
                yield Comparison(label, estimate, *self.limits, veto=self.veto)


class Difference(ColumnTest):
    """The mean over runs of the column less that at other values, run by run.

    Of the columns `by` both have the same values. In labels, less_NAME is the other value of a
    column NAME.
    """

    less: Where = setting("By column the values of the rows that are subtracted.")
    some: bool = setting("Whether one of the comparisons has to hold, not all.", default=False)

    def alternatives(self, records: PaperRecords) -> Sequence[Sequence[Comparison]]:
        """All of them, or each as an alternative."""
        found = list(self.comparisons(records))
        return [[each] for each in found] if self.some else [found]

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each cell and each value that is subtracted; NotRun for a cell without it."""
        for at, rows in self.cells(records):
            for less in _points(self.less):
                of_other = {**{name: at[name] for name in self.where}, **less}
                partners = [
                    (other, others)
                    for other, others in self.cells(records, of_other)
                    if all(at[name] == other[name] for name in self.by)
                ]
                if not partners:
                    values = {**{name: at[name] for name in self.by}, **less}
                    raise NotRun("no row with " + ", ".join(f"{n} {v}" for n, v in values.items()))
                for other, others in partners:
                    label = self.label.format(**at, **{f"less_{n}": v for n, v in other.items()})
                    yield Comparison(label, self.difference(rows, others), *self.limits)


class AlongAxis(ColumnTest):
    """What tests along an axis take."""

    axis: Name = setting("The column along which values change.")
    least: int = setting("Fewest values on the axis.", ge=2, default=2)
    values: list[Value] = setting(
        "Values on the axis that are taken; all by default.", default=None
    )
    falls: bool = setting("Whether its fall is compared, not its rise.", default=False)

    def sweeps(self, records: PaperRecords) -> Iterator[tuple[dict[str, Any], Sweep]]:
        """Cells with their rows by value on the axis, ascending; NotRun for too few of them."""
        for at, rows in self.cells(records):
            found = dict(list(rows.groupby(self.axis)))
            if self.values:
                points = [self.resolved(records, {self.axis: v})[self.axis] for v in self.values]
                for point in points:
                    self._need(found.get(point, ()), {self.axis: point}, at)
                found = {point: found[point] for point in points}
            if len(found) < self.least and isinstance(self.lacking, dict):
                self._need((), {self.axis: len(found)}, at)
            if len(found) < self.least:
                values = f"{len(found)} values of {self.axis}"
                raise NotRun(f"{self.named(at)} has {values}; the claim needs {self.least}")
            for of_value in found.values():
                self.by_run(of_value)
            yield at, found

    def named(self, at: Mapping[str, Any]) -> str:
        """A cell in words."""
        names = (*self.where, *self.by)
        return ", ".join(at[name] for name in names if isinstance(at[name], str))

    def compared(self, at: Mapping[str, Any], sweep: Sweep, high: Any, low: Any) -> Comparison:
        """The value at `high` less that at `low`, or the other way round where it falls."""
        first, second = (low, high) if self.falls else (high, low)
        words = {**at, "high": high, "low": low}
        for end, value in (("high", high), ("low", low)):
            words |= {f"{end}_{name}": of for name, of in sweep[value].iloc[0].items()}
        estimate = self.difference(sweep[first], sweep[second])
        return Comparison(self.label.format(**words), estimate, *self.limits)


class Change(AlongAxis):
    """The column at the higher of two values on an axis less that at the lower.

    In labels, low and high are the two values.
    """

    between: Literal["neighbours", "ends"] = setting("Which values on the axis.")

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each cell and pair of values."""
        for at, sweep in self.sweeps(records):
            values = list(sweep)
            ends = [(values[0], values[-1])]
            for low, high in ends if self.between == "ends" else itertools.pairwise(values):
                yield self.compared(at, sweep, high, low)


class Slope(AlongAxis):
    """The least-squares slope of the column on an axis, of each run, lies between the limits.

    In labels, low and high are the ends of the axis.
    """

    scale: Literal["linear", "log", "log2"] = setting("Of the axis.", default="linear")

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each cell."""
        for at, sweep in self.sweeps(records):
            yield self.slope(at, sweep)

    def slope(self, at: Mapping[str, Any], sweep: Sweep) -> Comparison:
        """Of one cell, over the runs that all values on the axis have."""
        values = pd.DataFrame({value: self.by_run(rows) for value, rows in sweep.items()}).dropna()
        x: np.ndarray = SCALES[self.scale](np.array(list(sweep), float))
        centred = x - x.mean()
        runs, squared = np.ascontiguousarray(values.to_numpy().T), centred @ centred
        slopes = centred @ runs / squared
        size = np.abs(centred).sum() * np.abs(runs).max(initial=0.0) / squared
        low, *_, high = sweep
        label = self.label.format(**{**at, "low": low, "high": high})
        estimate = mean_estimate(-slopes if self.falls else slopes, size=float(size))
        return Comparison(label, estimate, *self.limits)


class Rises(Slope):
    """The column rises along an axis: its slope lies between the limits, and no sure fall.

    Between no two neighbours on the axis does it fall by surely more than `fall`, a veto. In the
    label of a pair, low and high are the two values, low_NAME and high_NAME columns there.
    """

    fall: float = setting("As a share of it, where its logarithm is compared.", ge=0)
    pair_label: Text = setting("What is compared of a pair, in words.")

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """Of each cell the slope, then the pairs."""
        for at, sweep in self.sweeps(records):
            yield self.slope(at, sweep)
            fall = math.log1p(self.fall) if self.log else self.fall
            pairs = self.model_copy(update={"label": self.pair_label})
            for low, high in itertools.pairwise(sweep):
                pair = pairs.compared(at, sweep, high, low)
                yield Comparison(pair.label, pair.estimate, above=-fall, veto=True)


class Concave(AlongAxis):
    """The column at each inner value of an axis less the chord of its neighbours, run by run.

    Over the runs that all values have. In labels the axis has the inner value.
    """

    least: int = setting("Fewest values on the axis.", ge=3, default=3)

    def comparisons(self, records: PaperRecords) -> Iterator[Comparison]:
        """One for each cell and inner value."""
        for at, sweep in self.sweeps(records):
            runs = pd.DataFrame({x: self.by_run(rows) for x, rows in sweep.items()}).dropna()
            for left, x, right in zip(sweep, list(sweep)[1:], list(sweep)[2:], strict=False):
                weight = (x - left) / (right - left)
                height = runs[x] - ((1 - weight) * runs[left] + weight * runs[right])
                label = self.label.format(**{**at, self.axis: x})
                estimate = mean_estimate(
                    height.to_numpy(), size=runs.abs().to_numpy().max(initial=0.0)
                )
                yield Comparison(label, estimate, *self.limits)


class Peak(AlongAxis):
    """The column at one value of an axis less that at others; high and low in the label."""

    peak: int | float = setting(
        "The value; without one, any between the ends, less that at both ends.", default=None
    )
    beyond: bool = setting("Whether the others are the greater ones alone.", default=False)

    def alternatives(self, records: PaperRecords) -> Sequence[Sequence[Comparison]]:
        """All values against the peak; or an alternative for each value between the ends.

        Raises InputError for alternatives of several cells.
        """
        found: list[list[Comparison]] = []
        for at, sweep in self.sweeps(records):
            first, *inner, last = sweep
            if self.peak is None:
                if found:
                    raise InputError(f"where of {self.label}", "several cells", "one per entry")
                found = [[self.compared(at, sweep, x, end) for end in (first, last)] for x in inner]
                continue
            others = [x for x in sweep if x > self.peak or (x < self.peak and not self.beyond)]
            if self.peak not in sweep or not others:
                values = ", ".join(map(str, sweep))
                needed = f"{self.axis} {self.peak} and a greater one"
                raise NotRun(f"{self.named(at)} has {self.axis} {values}, not {needed}")
            found = found or [[]]
            found[0] += [self.compared(at, sweep, self.peak, other) for other in others]
        return found


TESTS: dict[str, type[ColumnTest]] = {
    "mean": Mean,
    "below": Below,
    "exact": Exact,
    "normal": Normal,
    "difference": Difference,
    "change": Change,
    "slope": Slope,
    "rises": Rises,
    "concave": Concave,
    "peak": Peak,
}


def for_labels(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row's values by column; of a column data.name also as data_name."""
    return {name.replace(".", "_"): value for name, value in row.items()} | {**row}


def in_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values by names that a text can have in braces: the last part of a dotted one."""
    return {name.rpartition(".")[2]: value for name, value in values.items()}


def _points(where: Where) -> Iterator[dict[str, Value]]:
    for values in itertools.product(*map(as_list, where.values())):
        yield dict(zip(where, values, strict=True))
