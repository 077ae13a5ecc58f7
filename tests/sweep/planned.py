"""The small problem on which the plan is tried."""

from dataclasses import replace

import numpy as np
from simulated import Quadratic, make_spec

D = 1 / np.arange(1, 21)
PROBLEM = Quadratic(D, 0.7 * D)  # with little enough noise that no measurement has to go to a lower rate
SIZES = [4, 16, 64, 256]
GRID = {"tune": "grid", "rates": [0.1, 0.4, 1.6, 6]}
RULE = {"tune": "rule", "base": 0.9, "base_batch_size": 64, "scaling": "sqrt"}
BRITTLE = replace(PROBLEM, brittle=0.9)


def spec(**keys):
    return make_spec(**{"batch_sizes": SIZES, "targets": [0.5, 0.2, 0.05], "max_steps": 3000, **keys})
