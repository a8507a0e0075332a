"""Hydra's compositions, each of which takes a tenth of a second, made once for equal files."""

import os
from copy import deepcopy
from pathlib import Path

from omegaconf import OmegaConf

from paceline.study import compose as composing

MADE = {}
compose = composing.compose
URI = "measurement.mlflow.tracking_uri"  # of some studies below the root of their test


def compose_once(name, overrides, **options):
    """As Hydra's `compose`, whose first override is the search path of a Composer."""
    search, *others = overrides
    root = Path(search.removeprefix("hydra.searchpath=['file://").partition("'")[0])
    if not (root / "conf").is_dir():  # a quote in its path
        return compose(name, overrides, **options)
    key = (*others, *contents(root, others))
    if key not in MADE:
        MADE[key] = root, compose(name, overrides, **options)
    first, made = MADE[key]
    made = deepcopy(made)
    OmegaConf.set_readonly(made.hydra, False)
    made.hydra.runtime.cwd = str(Path.cwd())
    made.hydra.searchpath[0] = f"file://{root}"
    OmegaConf.set_readonly(made.hydra, True)
    uri = OmegaConf.select(made, URI)
    if uri and str(first) in uri:
        OmegaConf.update(made, URI, uri.replace(str(first), str(root)))
    return made


def contents(root, overrides):
    """Bytes of all files that Hydra may read; of experiments/ those that are named."""
    yield from sorted(
        (str(path.relative_to(root)), path.read_bytes()) for path in (root / "conf").rglob("*.yaml")
    )
    for override in overrides:
        group, _, name = override.lstrip("+").partition("=")
        path = root / "experiments" / f"{name}.yaml"
        if group == "experiments" and path.is_file():
            yield name, path.read_bytes().replace(os.fsencode(root), b"<root>")
