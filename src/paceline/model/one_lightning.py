"""Makes `import lightning` load the same classes as `import pytorch_lightning`.

Lightning is published twice: as `lightning`, with the parts `lightning.pytorch` and
`lightning.fabric`, and as the packages `pytorch_lightning` and `lightning_fabric`. The code is the
same, but the classes are not: a Trainer of the one rejects a LightningModule of the other. Here
names of the first kind lead to the modules of the second kind.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PARTS = {"lightning.pytorch": "pytorch_lightning", "lightning.fabric": "lightning_fabric"}


def use_one_lightning() -> None:
    """Let `import lightning` load pytorch_lightning, unless `lightning` was imported before.

    Call this function before a user's code is imported.
    """
    if not any(isinstance(finder, _Names) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Names())


class _Names(MetaPathFinder, Loader):
    """Finds and loads `lightning` and the modules below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "lightning":
            return ModuleSpec(fullname, self, is_package=True)
        for name, other in _PARTS.items():
            if fullname == name or fullname.startswith(f"{name}."):
                return ModuleSpec(fullname, self, origin=other + fullname.removeprefix(name))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.origin is None:
            return _Lightning(spec.name)
        module = importlib.import_module(spec.origin)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        if isinstance(module, _Lightning):
            module.__path__ = []
        elif module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state  # which importing it anew has replaced


class _Lightning(ModuleType):
    """The module `lightning`, which has all names of both of its parts."""

    def __getattr__(self, name: str) -> Any:
        if f"lightning.{name}" in _PARTS:
            return importlib.import_module(f"lightning.{name}")
        for part in _PARTS.values():
            found = getattr(importlib.import_module(part), name, None)
            if found is not None and not name.startswith("__"):
                return found
        raise AttributeError(f"lightning has no {name}")
