"""Rules 4 and 5 of comparison: what accuracies are of, and what is known of each run."""

from paceline.analysis.frames import Frame
from paceline.analysis.rule_finding import RuleFinding, name_of
from paceline.analysis.summary import summary
from paceline.analysis.tables import Tables

_SETTINGS = ("batch_size", "samples", "seed", "lr", "momentum")
_MACHINE = ("hardware.cpu", "hardware.cores", "hardware.memory_bytes")
_CODE = ("versions.python", "versions.torch", "source_digest", "commit")
_DIRTY = "+dirty"  # at the end of a commit: files differed from it


def evaluation_rule(tables: Tables) -> RuleFinding:
    """Judge rule 4: accuracies are of images that nothing was tuned on, and of several seeds.

    Cases are configurations with a finished point.
    """
    means = summary(tables)
    means = means[means["n_finished"] > 0]
    single = means[means["n_finished"] == 1]
    finished, reasons = tables.finished, []
    if len(single):
        first = name_of(single.iloc[0], tables.axes)
        reasons.append(f"{len(single)} of {len(means)} configurations have one seed, as {first}")
    whole = [
        text
        for text, is_broken in (
            ("no top-1 on test images", finished["test_top1"].isna().any()),
            ("points that a rate was tuned on", finished["key"].isin(tables.tuning["key"]).any()),
            ("no number of images", "distinct_samples" not in finished),
        )
        if is_broken
    ]
    reasons += [f"there are {text}" for text in whole]
    broken = len(means) if whole else len(single)
    evidence = "; ".join([*reasons, _tuned_on(tables), *_sizes(tables)])
    return RuleFinding(broken, len(means), evidence, "runs.csv, tuning.csv")


def _tuned_on(tables: Tables) -> str:
    if tables.tuning.empty:
        return "no rate was tuned by the study"
    return (
        f"rates were tuned on validation images by {len(tables.tuning)} runs that are not "
        "reported, and accuracies are of test images"
    )


def _sizes(tables: Tables) -> list[str]:
    """State how many images each data set was seen to have for training."""
    if "distinct_samples" not in tables.finished:
        return []
    most = tables.finished.groupby("data")["distinct_samples"].max()
    return [f"{name}: trained on {number:,.0f} images" for name, number in most.items()]


def reporting_rule(tables: Tables) -> RuleFinding:
    """Judge rule 5: settings, hardware, versions and code of each finished point are known.

    Settings that are no column of runs.csv are those of the commit, if nothing differed from it.
    """
    finished = tables.finished
    wanted = [*_SETTINGS, *_MACHINE, *_CODE]
    columns: Frame = finished.reindex(columns=wanted)
    lacks: Frame = columns.replace("", None).isna()
    dirty: Frame = columns["commit"].astype(str).str.endswith(_DIRTY)
    reasons = [f"{count} points without {name}" for name, count in lacks.sum().items() if count]
    if dirty.any():
        reasons.append(f"{dirty.sum()} points by files that differ from the commit they name")
    settings = f"{', '.join(_SETTINGS)} are columns, other settings are the commit's"
    machines = columns["hardware.cpu"].dropna().unique()
    evidence = "; ".join([*reasons, settings, f"hardware: {', '.join(map(str, machines))}"])
    broken: Frame = lacks.any(axis=1) | dirty
    return RuleFinding(int(broken.sum()), len(finished), evidence, "runs.csv")
