"""Train one configuration, or several.

examples:
  paceline train workers=4 cluster=virtual data=fashion_mnist_subset   # simulated workers
  paceline train workers=8 cluster.accelerator=gpu model=resnet18      # on 8 GPUs
  paceline train --multirun scheme=sync_allreduce,local_sgd workers=1,2,4 seed=0,1,2
"""

import argparse
import re
from importlib.resources import files
from pathlib import Path

from paceline.study.compose import CONFIG, hydra_errors, jobs_of, parsed
from paceline.study.hydra_entry import hydra_of, multirun
from paceline.study.hydra_entry import run as run_one

_SHOWN = "model data workers batch_size scheme cluster training.lr training.epochs seed study"
_COMMENTED = re.compile(r"^(?:  - )?(\w+): ([^#\n]*) # (.+)", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"settings, with defaults (--cfg job shows all):\n{_settings()}"
    parser.add_argument("overrides", nargs="*", metavar="SETTING", help="as workers=2")
    parser.add_argument("-m", "--multirun", action="store_true", help="each of workers=1,2,4")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra"), help="only show the settings")
    parser.add_argument("-p", "--package", help="a part of these settings: scheme")
    parser.add_argument("--resolve", action="store_true", help="resolve them first")


def _settings() -> str:
    """Return a line for each setting that most users set: its default, and its comment in conf/."""
    conf = files("paceline") / "conf"
    said = dict[str, str]()
    for prefix, file in (("", "paceline.yaml"), ("training.", "training/sgd.yaml")):
        for name, value, comment in _COMMENTED.findall((conf / file).read_text()):
            default = "" if value.startswith("$") else f"={value}"
            said.setdefault(prefix + name, f"  {prefix + name + default:22} {comment}")
    return "\n".join(said[name] for name in _SHOWN.split())


def run(options: argparse.Namespace, root: Path) -> int:
    with hydra_errors("train"):
        if options.cfg:
            first = options.overrides
            if options.multirun:
                first = jobs_of(parsed(first))[0]
            with hydra_of(root) as hydra:
                hydra.show_cfg(CONFIG, first, options.cfg, options.package, options.resolve)
            return 0
        if options.multirun:
            study, is_complete = multirun(options.overrides, root)
            if study is not None:
                from paceline.command.means_view import means_view  # pandas takes a second
                from paceline.command.terminal import show

                show(means_view(study.points))
            return 0 if is_complete else 1
        return run_one(options.overrides, root)
