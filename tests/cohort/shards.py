"""A cohort on several processes at once, each with its shard of the lanes."""

import itertools
import os
import signal
import time
import traceback

import torch

from bscrit.files import stamp
from bscrit.request import Shard
from bscrit.train.loop import train

SECONDS = 40.0


def together(folders, shards, workload, prepare=lambda _: None, interrupted=None):
    """Train each shard in a process of its own; whether each of them ended, None for one that died.

    Args:
        prepare: called in the process of each shard, with its number, before it begins.
        interrupted: called with the number of a shard; what `train` asks whether to leave. By default that is a
            SIGTERM, which the others get when one has left or died.
    """
    stamps = tuple(stamp(folder / "curve.csv") for folder in folders)
    children = {}
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until a child can take it
    for number, own in enumerate(shards):
        child = os.fork()
        if child == 0:
            _train(number, folders, Shard(tuple(own), stamps), workload, prepare, interrupted)
        children[child] = number
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    found, left = [None] * len(shards), set(children)
    deadline = time.monotonic() + SECONDS
    try:
        while left:
            assert time.monotonic() < deadline, "shards wait for each other"
            for child in list(left):
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    left.remove(child)
                    done = {0: True, 3: False}.get(os.waitstatus_to_exitcode(status))
                    found[children[child]] = done
                    for other in left if not done else ():
                        os.kill(other, signal.SIGTERM)
            time.sleep(0.001)
    finally:
        for child in left:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return found


def _train(number, folders, shard, workload, prepare, interrupted):
    code = 1
    try:
        torch.set_num_threads(1)
        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append(1))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        asked = interrupted(number) if interrupted else lambda: False
        prepare(number)
        done = train(folders, workload, {"unit": "example"}, lambda: bool(told) or asked(), shard)
        code = 0 if done else 3
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def after(steps):
    """Told to leave after so many questions."""
    count = itertools.count()
    return lambda: next(count) >= steps
