"""The command line in a repository of its own, as a user types it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path


def start(root, *arguments, **options):
    script = Path(sys.executable).with_name("paceline")
    return subprocess.Popen([script, *arguments], cwd=root, **options)


def run(root, *arguments):
    """(exit code, lines of stdout, lines of stderr)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        # no pipes: a forkserver in the middle of its imports would hold them open for seconds
        with start(root, *arguments, stdout=out, stderr=err) as process:
            code = process.wait(timeout=100)
        out.seek(0)
        err.seek(0)
        return code, out.read().splitlines(), err.read().splitlines()


def results(root, study):
    files = sorted((root / "runs" / study).glob("[!.]*/result.json"))
    return [json.loads(file.read_text()) for file in files]
