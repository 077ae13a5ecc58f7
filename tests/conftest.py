"""One thread per test process: a second one that spins beside a busy neighbour slows steps 30 times."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
