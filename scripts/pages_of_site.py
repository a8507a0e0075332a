"""Hook of MkDocs: the site has the pages of the repository at the same paths, so that their links
hold in both. It has README.md, whatever is linked from there on, and the docstrings of packages.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
STRATEGIES = (
    "paceline.clock.virtual.virtual_strategy.VirtualStrategy",
    "paceline.clock.wall.rule_strategy.RuleStrategy",
    "paceline.clock.run_spec.RunSpec",
)
API = {
    "scheme": "# Schemes\n\n::: paceline.scheme",
    "clock": "# Strategies\n"
    + "".join(f"\n::: {name}\n    options: {{members: false}}\n" for name in STRATEGIES),
    "analysis": "# Analysis\n\n::: paceline.analysis",
}
LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:)([^)\s#]+)(#[^)\s]*)?\)")


def linked_paths() -> set[str]:
    """Return README.md and all files that it or a page linked from it links, relative to ROOT."""
    paths, unread = set[str](), ["README.md"]
    while unread:
        path = unread.pop()
        if path in paths or not (ROOT / path).is_file():
            continue
        paths.add(path)
        if path.endswith(".md"):
            links = LINK.findall((ROOT / path).read_text())
            unread += [os.path.normpath(Path(path).parent / link) for _, link, _ in links]
    return paths


def on_files(files: Files, config: Any) -> Files:
    kept = [file for file in files if file.src_dir != config.docs_dir]
    options = {"inclusion": InclusionLevel.INCLUDED}
    place = (str(ROOT), config.site_dir, config.use_directory_urls)
    kept += [File(path, *place, **options) for path in sorted(linked_paths())]
    for package, content in API.items():
        kept.append(File.generated(config, f"src/paceline/{package}/index.md", content=content))
    return Files(kept)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Return a page whose links of folders lead to the folder's page; without one, they go."""

    def shown(link: re.Match[str]) -> str:
        path = os.path.normpath(Path(page.file.src_uri).parent / link[2])
        if not (ROOT / path).is_dir():
            return link[0]
        known = files.get_file_from_path(f"{path}/index.md") is not None
        return f"[{link[1]}]({link[2]}/index.md)" if known else link[1]

    return LINK.sub(shown, markdown)
