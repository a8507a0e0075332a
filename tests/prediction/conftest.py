import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """As in a worker: what kernels need to work in depends on the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
