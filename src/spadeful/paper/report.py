"""One page with our results beside the paper's, and a verdict on each of its claims."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from spadeful.figures import title_of
from spadeful.files import check_free, reading, replacing
from spadeful.grids import spread, without_seed
from spadeful.paper import selection
from spadeful.paper.claims import (
    LABEL_FREE,
    LEVEL,
    MEASURES,
    ORACLE,
    RANKED,
    TESTED,
    Claim,
    Verdict,
    gains,
    judge,
    values,
)
from spadeful.paper.entries import DATA, REPRODUCED, Entry, Published, all_entries
from spadeful.paper.labels import LABELS, numbered

Results = dict[str, Any]

INTRODUCTION = f"""# The paper, reproduced

Every table and figure of the paper and its appendix: our figures beside the paper's, how our runs were shortened, and \
a verdict on each claim. The page is written by `spadeful reproduce report` from the results of `spadeful reproduce`.

- A figure is a mean over seeds, ± the standard deviation over them where there are several; the paper's are divided \
by the number of runs, ours by one less.
- The paper reports the checkpoint that is best on the *labels of the target*; so does the column *oracle*. The column \
*density* is what a rule without labels chooses (soft neighbourhood density), *last* the end of the run.
- A claim is tested with pairs of runs that are alike but for what is compared: the same seed, the same pair of \
domains. The test is Wilcoxon's signed-rank test from {RANKED} pairs on, Student's paired t test from {TESTED} to \
{RANKED - 1}, two-sided, at the level {LEVEL}; fewer pairs are not tested. Seeds of one pair of domains share it, so \
the p-values speak of these domains, not of all.
- Times are medians over a run, on the machine that it was made on; runs that went side by side slow each other.
- *holds*: better, and significant. *open*: not significant, or the ranks of the test and the mean disagree. *does not \
hold*: worse, and significant.
- Verdicts on shortened runs are verdicts on shortened runs.
"""

#: What runs are compared by if they lack a measure.
INSTEAD = {"fid": "score"}

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;font-size:.85rem}"
    "td,th{border:1px solid #ccc;padding:.25rem .5rem;text-align:left}th{background:#f4f4f4}img{max-width:100%}"
)


def write_report(output: Path | None, results: Path | None = None, *, force: bool = False) -> list[Path]:
    """Write the page as Markdown or HTML, as the name of the file says; as both if there is none."""
    outputs = [output] if output else [REPRODUCED / f"report{ending}" for ending in (".md", ".html")]
    for path in outputs:
        check_free(path, force)
        if path.suffix.lower() not in (".md", ".html"):
            raise ValueError(f"The report must go to a file that ends in .md or .html. Got {path} instead.")
    folder = results or REPRODUCED
    if not folder.is_dir():
        raise FileNotFoundError(
            f"There is no folder {folder} with results. Run `spadeful reproduce` first, or name another by --results."
        )
    entries = all_entries()
    found = read_results(entries, folder)
    for path in outputs:
        text = page(entries, found, Path(os.path.relpath(folder, path.parent)), folder)
        with replacing(path, force) as temporary:
            temporary.write_text(text if path.suffix.lower() == ".md" else as_html(text), encoding="utf-8")
    return outputs


def read_results(entries: Iterable[str], folder: Path) -> dict[str, Results]:
    """What is known of each entry; runs of seconds are no results."""
    found = {}
    for name in entries:
        path = folder / f"{name}.json"
        if path.exists():
            with reading(path, "results of spadeful reproduce"):
                results = json.loads(path.read_text(encoding="utf-8"))
                [run["name"] for run in results["runs"]], results["missing"]
            if results.get("length") == "quick":
                raise ValueError(f"{path} is of --quick runs, which are no results. Remove it from {folder}.")
            found[name] = results
    return found


def as_html(text: str) -> str:
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(text)
    head = f'<meta charset="utf-8"><title>The paper, reproduced</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n'


def page(entries: dict[str, Entry], found: dict[str, Results], link: Path, folder: Path) -> str:
    """The page as Markdown; pictures are linked from it by `link`, and are in the folder."""
    accurate = {name: results for name, results in found.items() if entries[name].tells("accuracy")}
    parts = [
        INTRODUCTION,
        "## Claims\n",
        *verdicts(entries, found),
        *without_labels(accurate),
        "## Tables and figures\n",
    ]
    told: set[str] = set()
    for label, shows in LABELS.items():
        parts.append(f"### {numbered(label)}: {shows}\n")
        for entry in entries.values():
            if label in entry.labels:
                parts += section(entry, found, told, link, folder)
        instead = [f"`{entry.name}`" for entry in entries.values() if label in entry.stands_for and entry.name in found]
        if instead:
            parts.append(f"On data that are at hand, in its stead: {', '.join(instead)}, below.\n")
    parts.append("## Beyond the paper\n")
    for entry in entries.values():
        if not entry.labels:
            parts.append(f"### {entry.title}\n")
            parts += section(entry, found, told, link, folder)
    return "\n".join(parts)


def without_labels(found: dict[str, Results]) -> Iterator[str]:
    """What the rules cost that choose a checkpoint without labels; nothing if no run adapts."""
    lines = list(selection.rows(found))
    if not lines:
        return
    yield "## Selection without labels\n"
    yield (
        "By how many points the checkpoint that a rule chooses is less accurate than the one that is best by the "
        "labels of the target, in the mean over all runs of an entry: soft neighbourhood density, entropy of the "
        "predictions on the target, accuracy on the source (of digits on its test part, of features on the points that "
        "are trained with, unless `validation` holds some out), and no rule but the end of the run.\n"
    )
    yield markdown(["entry", "runs", *selection.RULES], lines)


def section(entry: Entry, found: dict[str, Results], told: set[str], link: Path, folder: Path) -> Iterator[str]:
    """What there is to tell of an entry; once."""
    if entry.name in told:
        yield f"`{entry.name}`: above.\n"
        return
    told.add(entry.name)
    yield f"`{entry.name}`. {entry.note}\n"
    results = found.get(entry.name)
    if results is None:
        yield f"{not_run(entry)}\n"
        yield from paper_only(entry)
        return
    if results["missing"]:
        yield f"**Not run: {results['missing']} runs missing.**\n"
    if results.get("length", "short") == "full":
        yield "At the length of the paper.\n"
    if entry.remark:
        yield f"*Unlike the paper:* {entry.remark}\n"
    for measure in measures_of(entry, results):
        yield from table_of(entry, results, measure)
    yield from paper_only(entry, set(measures_of(entry, results)))
    for path in sorted(folder.glob(f"{entry.name}*.[jp][pn]g")):
        if path.stem == entry.name or (path.stem.startswith(f"{entry.name}_") and owner(path, found) == entry.name):
            yield f"![{entry.title}]({(link / path.name).as_posix()})\n"


def owner(path: Path, found: Iterable[str]) -> str:
    """The entry that a picture belongs to: the longest name that it begins with."""
    return max((name for name in found if path.stem.startswith(name)), key=len, default="")


def not_run(entry: Entry) -> str:
    """Why there are no results."""
    if entry.kind == "drawing":
        return "Nothing to run."
    needs = " and ".join(f"{DATA[name].title} at `{DATA[name].files[0]}` of the data" for name in entry.needs)
    hardware = "" if entry.cpu else f"; meant for a GPU ({entry.hardware}), with `--full --device cuda`"
    runs = entry.count("short" if entry.cpu else "full")
    missing = f"{runs} runs missing" if runs else "missing"
    return f"**Not run: {missing}{f', needs {needs}' if needs else ''}{hardware}.** `spadeful reproduce {entry.name}`"


def measures_of(entry: Entry, results: Results) -> list[str]:
    """The measures that the runs have; the precision only where the paper tells it too."""
    return [
        measure
        for measure in MEASURES
        if entry.tells(measure) and (measure != "precision" or measure in entry.paper) and values(results, measure)
    ]


def markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines) + "\n"


def split(entry: Entry, name: str) -> tuple[str, str]:
    """The name of a run without its seed, as what is compared and the pair of domains."""
    parts = without_seed(name).split(",")
    task = next((part for part in parts if part in entry.tasks), "")
    return ",".join(part for part in parts if part != task), task


def grouped(entry: Entry, by_run: dict[str, float]) -> dict[str, dict[str, dict[str, float]]]:
    """Values by what is compared, by the pair of domains, and by the seed."""
    groups: dict[str, dict[str, dict[str, float]]] = {}
    for name, value in by_run.items():
        row, task = split(entry, name)
        seed = next((part for part in name.split(",") if part.startswith("seed=")), "")
        groups.setdefault(row, {}).setdefault(task, {})[seed] = value
    return groups


def over_tasks(by_task: dict[str, dict[str, float]], tasks: list[str], digits: int) -> str:
    """The spread over seeds of the mean over the pairs of domains; of seeds that have all of them."""
    if len(tasks) > 1 and set(by_task) != set(tasks):
        return "not run"
    seeds = set.intersection(*(set(seeds) for seeds in by_task.values())) if by_task else set()
    means = [mean(by_seed[seed] for by_seed in by_task.values()) for seed in sorted(seeds)]
    return spread(means, digits) if means else "not run"


def table_of(entry: Entry, results: Results, measure: str) -> Iterator[str]:
    """A measure of all runs: what is compared in rows, pairs of domains in columns, the paper's figures below ours."""
    shown = MEASURES[measure]
    ours = grouped(entry, values(results, measure))
    paper = entry.paper.get(measure, {})
    for name in paper:  # what the paper has, and we have not
        if not any(set(row.split(",")) == set(split(entry, name)[0].split(",")) for row in ours):
            ours[split(entry, name)[0]] = {}
    known = {task for by_task in ours.values() for task in by_task}
    tasks = [task for task in entry.tasks if task in known] or [""]
    accuracy = measure == "accuracy"
    chosen = {which: grouped(entry, values(results, measure, which)) for which in (LABEL_FREE, "last") if accuracy}
    names = tasks if len(tasks) > 1 else []
    total = (f"mean, {ORACLE}" if names else ORACLE) if accuracy else ("mean" if names else shown.title)
    header = ["run", *names, total, *(f"mean, {which}" if names else which for which in chosen)]
    header += ["paper"] if paper else []
    rows = []
    for row, by_task in ours.items():
        cells = [cell(by_task.get(task), shown.digits) for task in names]
        means = [over_tasks(each.get(row, {}), tasks, shown.digits) for each in (ours, *chosen.values())]
        means += [paper_mean(paper, row, tasks, shown.digits)] if paper else []
        rows.append([title_of(row), *cells, *means])
        figures = [paper_cell(paper, row, task) for task in names]
        if any(figures):
            rows.append([f"*{title_of(row)}, paper*", *figures, *[""] * len(means)])
    unit = "%" if accuracy else shown.unit if shown.unit in ("%", "s") else ""
    yield f"*{shown.title[0].upper()}{shown.title[1:]}{f', {unit}' if unit else ''}*\n"
    yield markdown(header, rows)


def cell(by_seed: dict[str, float] | None, digits: int) -> str:
    return spread(list(by_seed.values()), digits) if by_seed else "not run"


def paper_value(paper: Published, row: str, task: str) -> tuple[float, float | None] | None:
    """The paper's figure for a row and a pair of domains, whatever the order of the parts of its name."""
    wanted = {*row.split(","), task} - {""}
    return next((value for name, value in paper.items() if set(name.split(",")) == wanted), None)


def in_words(value: tuple[float, float | None], digits: int = 2) -> str:
    return f"{value[0]:.{digits}f}" + ("" if value[1] is None else f" ± {value[1]:.{digits}f}")


def paper_cell(paper: Published, row: str, task: str) -> str:
    value = paper_value(paper, row, task)
    return in_words(value) if value else ""


def paper_mean(paper: Published, row: str, tasks: list[str], digits: int) -> str:
    """The paper's figure for a row: its own, or the mean over the pairs of domains."""
    own = paper_value(paper, row, "")
    if own:
        return in_words(own, digits)
    each = [value for task in tasks if (value := paper_value(paper, row, task))]
    if len(each) != len(tasks):
        return "none"
    return in_words(each[0], digits) if len(each) == 1 else f"{mean(value[0] for value in each):.{digits}f}"


def paper_only(entry: Entry, told: Iterable[str] = ()) -> Iterator[str]:
    """The paper's figures of measures that ours lack, as it has them."""
    for measure, figures in entry.paper.items():
        if measure in told or not figures:
            continue
        columns, rows = table_parts(entry, figures)
        title = MEASURES[measure].title if measure in MEASURES else measure
        yield f"*The paper's figures: {title}*\n"
        lines = [
            [title_of(row), *(in_words(cells[c]) if c in cells else "" for c in columns)] for row, cells in rows.items()
        ]
        yield markdown(["run", *(column or "paper" for column in columns)], lines)


def table_parts(entry: Entry, figures: Published) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Figures as columns and rows: pairs of domains, or what ends the names where there are many."""
    rows: dict[str, dict[str, Any]] = {}
    for name, value in figures.items():
        row, column = split(entry, name)
        if measure_by_class := (not column and len(figures) > MANY and "," in name):
            row, _, column = name.rpartition(",")
        rows.setdefault(row, {})[column if column or measure_by_class else ""] = value
    return list(dict.fromkeys(column for cells in rows.values() for column in cells)), rows


#: Figures from which on the last part of their names makes columns.
MANY = 100


def verdicts(entries: dict[str, Entry], found: dict[str, Results]) -> Iterator[str]:
    """All claims: the paper's gain, ours and what a test says of it."""
    header = ["claim", "entry", "paper", "ours", "pairs", "p", "verdict", f"by {LABEL_FREE}: ours", "p", "verdict"]
    rows, waiting = [], []
    for entry in entries.values():
        together = [entry, *(entries[name] for name in entry.beside)]
        runs = [run for each in together for run in found.get(each.name, {"runs": []})["runs"]]
        missing = found.get(entry.name, {"missing": 0})["missing"]
        for claim in entry.claims:
            papers = {name: value[0] for each in together for name, value in each.paper.get(claim.measure, {}).items()}
            told = [
                claim.says,
                f"`{entry.name}`{f', {missing} runs missing' if missing else ''}",
                paper_gain(papers, claim),
            ]
            ours = told_by(claim, runs)
            verdict = judge(values({"runs": runs}, ours.measure), ours)
            if verdict.gain is None:
                waiting.append([*told, "not run"])
                continue
            if ours.measure != claim.measure:
                told[0] += f" (ours: {MEASURES[ours.measure].title})"
            free = (
                judge(values({"runs": runs}, claim.measure, LABEL_FREE), claim) if claim.measure == "accuracy" else None
            )
            rows.append([*told, *outcome(verdict, ours), *(outcome(free, claim, False) if free else [""] * 3)])
    yield "Gains are differences, in favour of the claim where they are positive.\n"
    yield markdown(header, rows) if rows else "No claim could be tested.\n"
    if waiting:
        yield "Neither confirmed nor refuted here, since the runs are missing:\n"
        yield markdown([*header[:3], "ours"], waiting)


def told_by(claim: Claim, runs: list[dict[str, Any]]) -> Claim:
    """The claim, of another measure if the runs lack its own and have that."""
    other = INSTEAD.get(claim.measure, claim.measure)
    lacking = not values({"runs": runs}, claim.measure) and values({"runs": runs}, other)
    return replace(claim, measure=other) if lacking else claim


def paper_gain(published: dict[str, float], claim: Claim) -> str:
    """By how much the paper has it, in the mean over the pairs that its tables give."""
    each = gains(published, claim) if claim.than else []
    gain = claim.paper if claim.paper is not None else mean(each) if each else None
    return "none" if gain is None else number(gain, claim)


def number(gain: float, claim: Claim) -> str:
    shown = MEASURES[claim.measure]
    sign = "" if claim.at_most is not None else "+"
    text = f"{gain:{sign}.{shown.digits}f}" if abs(gain) >= 10**-shown.digits or not gain else f"{gain:{sign}.1e}"
    return f"{text} {shown.unit}".strip()


def outcome(verdict: Verdict, claim: Claim, pairs: bool = True) -> list[str]:
    gain = "not run" if verdict.gain is None else number(verdict.gain, claim)
    p = "" if verdict.p is None else f"{verdict.p:.2g} ({verdict.test})"
    return [gain, *([str(verdict.pairs)] if pairs else []), p, verdict.verdict]
