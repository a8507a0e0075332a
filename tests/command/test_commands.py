"""No command costs an import before it runs."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


_SLOW = {"torch", "torchvision", "pytorch_lightning", "mlflow", "pandas", "scipy"}  # to import


def test_a_command_imports_only_what_it_needs(tmp_path):
    """One after the other in an interpreter, so that none may import for those after it either.

    Of two studies with reports, one of them of this machine, with a seed.
    """
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/five_ways").symlink_to(ROOT / "reports/five_ways")
    (tmp_path / "reports/quick").symlink_to(ROOT / "reports/example")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/computed").symlink_to(ROOT / "experiments/computed")
    for name in ("five_ways", "quick"):
        told = (ROOT / f"experiments/{name}.yaml").read_text()
        told = re.sub(r"seed: range\(0,\d\)", "seed: 0", told)
        assert "range(" not in told
        (tmp_path / f"experiments/{name}.yaml").write_text(told)
    program = """
import json, sys
from paceline.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    print("\\nENDED", code, *sys.modules)
"""
    cases = [
        (["--help"], 0, {*_SLOW, "hydra", "numpy"}),
        (["show"], 0, _SLOW),
        (["train", "workers=none", "nothing=1"], 2, _SLOW),
        (["train", "training.lr=-1"], 2, _SLOW),
        (["train", "data=image_folder", "data.root=none"], 2, _SLOW),
        (["train", "cluster=slurm"], 2, _SLOW),  # here, without it, as squeue does not answer
        (["train", "-m", "data=image_folder", "data.root=none", "seed=0,1"], 2, _SLOW),
        (["show", "quick"], 0, _SLOW),
        (["sweep", "quick", "--dry-run"], 0, _SLOW),
        (["predict", "cluster=titan", "workload=googlenet", "--steps=5"], 0, _SLOW),
    ]
    asked = json.dumps([words for words, _, _ in cases])
    asking = [sys.executable, "-c", program, asked]
    run = subprocess.run(asking, capture_output=True, text=True, cwd=tmp_path)
    ended = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("ENDED")]
    for (words, exit_code, absent), (code, *imported) in zip(cases, ended, strict=True):
        assert int(code) == exit_code, words
        assert not absent & set(imported), words
