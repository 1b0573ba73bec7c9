r"""Norm telemetry for any training loop: two lines, and the device never waits.

| quantity | what it is | needs |
|---|---|---|
| `norm_mean`, `norm_std`, `norm_square_mean` | moments of $\|z_i\|$ over the batch | |
| `norm_q05`, `_q25`, `_q50`, `_q75`, `_q95` | its quantiles | |
| `norm_by_class` | its mean within each class, NaN where absent | labels, classes |
| `nonfinite` | share of rows with NaN or infinity | |
| `lr_over_norm` | $\gamma$ over the mean of $\|z\|$: the paper's effective learning rate | |
| `lr_over_norm_squared` | $\gamma$ over the mean of $\|z\|^2$ | |
| `lr_over_weight_squared`, `_min`, `_max` | $\gamma / \|w\|^2$: median, least, largest | weights |
| `growth_predicted` | what the coming step would add to the mean of $\|z\|^2$ | grad |
| `growth_seen` | what each step since the last observation added to it | two observations |
| `radial_share` | part of the gradient along z: zero for a cosine loss | grad |
| `mean_cosine`, `uniformity` | over pairs of rows; 1 and 0 if collapsed | |
| `alignment`, `opposite_halves` | squared distance to targets; share past 90 degrees | targets |
| `rank` | RankMe of the first 512 rows | log points alone |
| `rad_per_step`, `_by_layer` | angle of layers per step since the last log point | layers |
| `weight_size`, `_growth` | norm of a row; growth of a layer's norm since the start | layers |
| `norm_mean_trend` | change of the mean norm per step | `summary` alone |

Each function's docstring has the formula.
"""

from normscope.monitors.loggers import LOGGERS, open_logger
from normscope.monitors.norm_monitor import MONITORS, NormMonitor, on_host
from normscope.monitors.observation import Observation
from normscope.monitors.range_test import RangeTest, range_test

__all__ = [
    "LOGGERS",
    "MONITORS",
    "NormMonitor",
    "Observation",
    "RangeTest",
    "on_host",
    "open_logger",
    "range_test",
]
