"""Says in a line what a study trained, on what, and how often."""

from paceline.report.findings import StudyFindings
from paceline.report.number_format import count, plural, setting


def subtitle(findings: StudyFindings) -> str:
    """Return data, network, images per worker and seeds, as far as each has a single value."""
    runs = findings.tables.runs
    parts = [_one(findings, "data", "").replace("_", " "), _one(findings, "model", "")]
    if "num_parameters" in runs and runs["num_parameters"].nunique() == 1:
        parts.append(f"{count(runs['num_parameters'].dropna().iloc[0])} parameters")
    parts.append(_one(findings, "batch_size", "{} images per worker and step"))
    seeds = runs.groupby(["kind", *findings.tables.axes], dropna=False)["seed"].nunique()
    low, high = int(seeds.min()), int(seeds.max())
    parts.append(plural(high, "seed") if low == high else f"{low} to {high} seeds")
    return ", ".join(part for part in parts if part)


def _one(findings: StudyFindings, name: str, words: str) -> str:
    values = findings.tables.runs[name].dropna().unique() if name in findings.tables.runs else []
    if len(values) != 1:
        return ""
    return words.format(setting(values[0])) if words else setting(values[0])
