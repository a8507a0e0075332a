"""Train one configuration, or several.

examples:
  paceline train workers=4 cluster=virtual data=fashion_mnist_subset   # simulated workers
  paceline train workers=8 cluster.accelerator=gpu model=resnet18      # on 8 GPUs
  paceline train --multirun scheme=sync_allreduce,local_sgd workers=1,2,4 seed=0,1,2
"""

import argparse
import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from textwrap import fill

from paceline.errors import SettingError
from paceline.study.compose import CONFIG, hydra_errors, jobs_of, parsed, searching_in
from paceline.study.hydra_entry import hydra_of, multirun
from paceline.study.hydra_entry import run as run_one

_SHOWN = "model data workers batch_size scheme cluster training.lr training.epochs seed study"
_COMMENTED = re.compile(r"^(?:  - )?(\w+): ([^#\n]*) # (.+)", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = f"settings, with defaults (--cfg job shows all):\n{_settings()}\n\n"
    parser.epilog += f"files to choose, as in scheme=gossip:\n{_files()}"
    parser.add_argument("overrides", nargs="*", metavar="SETTING", help="as workers=2")
    parser.add_argument("-m", "--multirun", action="store_true", help="each of workers=1,2,4")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra"), help="only show the settings")
    parser.add_argument("-p", "--package", help="a part of these settings: scheme")
    parser.add_argument("--resolve", action="store_true", help="resolve them first")
    parser.add_argument(
        *("-cd", "--config-dir"),
        metavar="DIR",
        type=lambda text: Path(text).absolute(),  # before the root becomes the working directory
        help="a further folder of files, beside conf/",
    )


def _settings() -> str:
    """Return a line for each setting that most users set: its default, and its comment in conf/."""
    conf = files("paceline") / "conf"
    said = dict[str, str]()
    for prefix, file in (("", "paceline.yaml"), ("training.", "training/sgd.yaml")):
        for name, value, comment in _COMMENTED.findall((conf / file).read_text()):
            default = "" if value.startswith("$") else f"={value}"
            said.setdefault(prefix + name, f"  {prefix + name + default:22} {comment}")
    return "\n".join(said[name] for name in _SHOWN.split())


def _files() -> str:
    """Return the names in each group of conf/, of the project and of Paceline, and its studies."""
    from paceline.cli import find_root

    folders = [Path(str(files("paceline"))) / "conf"]
    with suppress(SettingError):  # outside of a project there are Paceline's alone
        root = find_root(Path.cwd())
        folders = [root / "conf", *folders, root]
    names = dict[str, set[str]]()
    for folder in folders:
        pattern = "*/**/*.yaml" if folder.name == "conf" else "experiments/**/*.yaml"
        for path in folder.glob(pattern):
            names.setdefault(str(path.parent.relative_to(folder)), set()).add(path.stem)
    shown = sorted(group for group in names if group.partition("/")[0] != "hydra")
    return "\n".join(
        fill(f"  {group:22} {', '.join(sorted(names[group]))}", 100, subsequent_indent=" " * 25)
        for group in shown
    )


def run(options: argparse.Namespace, root: Path) -> int:
    overrides = options.overrides
    with hydra_errors("train"):
        if options.config_dir is not None:
            overrides = [searching_in(options.config_dir, root), *overrides]
        if options.cfg:
            if options.multirun:
                overrides = jobs_of(parsed(overrides))[0]
            with hydra_of(root) as hydra:
                hydra.show_cfg(CONFIG, overrides, options.cfg, options.package, options.resolve)
            return 0
        if not options.multirun:
            return run_one(overrides, root)
        done = multirun(overrides, root)
        if done.study is not None:
            from paceline.command.means_view import means_view  # pandas takes a second
            from paceline.command.terminal import show

            show(means_view(done.study.points))
        if done.best:
            print(done.best)
        return 0 if done.is_complete else 1
