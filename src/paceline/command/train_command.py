"""One run, or many by Hydra's multirun.

`paceline train scheme=async_parameter_server workers=2 seed=1`; --multirun runs each of
workers=1,2,4; --cfg job shows all settings.
"""

import argparse
from pathlib import Path

from paceline.study.compose import CONFIG, hydra_errors
from paceline.study.hydra_entry import hydra_of, multirun
from paceline.study.hydra_entry import run as run_one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(parser=parser)
    parser.add_argument("-h", "--help", action="store_true", help="the groups of settings")
    parser.add_argument("overrides", nargs="*", metavar="SETTING", help="workers=2")
    parser.add_argument("-m", "--multirun", action="store_true", help="each of workers=1,2,4")
    shown = ("job", "hydra", "all")
    parser.add_argument("-c", "--cfg", choices=shown, help="show settings, and run nothing")
    parser.add_argument("-p", "--package", help="a part of these settings: scheme")
    parser.add_argument("--resolve", action="store_true", help="resolve them first")
    kinds = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=kinds, help="about Hydra")


def run(options: argparse.Namespace, root: Path) -> int:
    with hydra_errors("train"):
        if options.multirun:
            return 0 if multirun(options.overrides, root) else 1
        if not (options.help or options.cfg or options.info):
            return run_one(options.overrides, root)
        with hydra_of(root) as hydra:
            if options.help:
                hydra.app_help(CONFIG, options.parser, options)
            elif options.cfg:
                shown = options.cfg, options.package, options.resolve
                hydra.show_cfg(CONFIG, options.overrides, *shown)
            else:
                hydra.show_info(options.info, CONFIG, options.overrides)
    return 0
