"""Another name of `normscope_paper.simulation`, where the paper's simulations live."""

import sys

import normscope_paper.simulation

sys.modules[__name__] = normscope_paper.simulation
