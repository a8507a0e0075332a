import signal
import sys

import pytest


@pytest.fixture
def own_process(monkeypatch):
    """What a job changes in its process is put back."""
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    signal.signal(signal.SIGTERM, before)
