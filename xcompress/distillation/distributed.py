"""The processes that train together under torchrun or `accelerate launch`; one where there is no launcher."""

from datetime import timedelta
from functools import cache

import torch
from accelerate import PartialState
from torch import Tensor

PATIENCE = timedelta(hours=12)
"""How long a process waits for another, which may read a large corpus meanwhile."""


@cache
def workers() -> PartialState:
    """Return the group of processes: gloo on CPUs, NCCL on GPUs."""
    return PartialState(cpu=not torch.cuda.is_available(), timeout=PATIENCE)


def count() -> int:
    """Return the number of processes."""
    return int(workers().num_processes)


def is_main() -> bool:
    """Tell whether this process is the one that writes."""
    return bool(workers().is_main_process)


def wait() -> None:
    """Wait until every process is here."""
    workers().wait_for_everyone()


def broadcast(value: bool) -> bool:
    """Return what the main process was given here."""
    if count() == 1:
        return value
    shared = torch.tensor([int(value)], device=workers().device)
    torch.distributed.broadcast(shared, src=0)
    return bool(shared.item())


def all_gather(rows: Tensor) -> Tensor:
    """Stack the rows (n, ...) of all processes, so that each can compute the loss of the whole batch.

    A gradient flows to the process's own rows only, times the number of processes: the mean over processes, which is
    what DistributedDataParallel takes, then is the gradient of the whole batch.
    """
    if count() == 1:
        return rows
    own = rows.detach()
    pieces = [torch.empty_like(own) for _ in range(count())]
    torch.distributed.all_gather(pieces, own.contiguous())
    pieces[workers().process_index] = own + count() * (rows - own)
    return torch.cat(pieces)


def total(value: Tensor) -> Tensor:
    """Add up a value without gradient over all processes."""
    if count() == 1:
        return value
    summed = value.detach().clone()
    torch.distributed.all_reduce(summed)
    return summed
