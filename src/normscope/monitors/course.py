"""What a monitor remembers of a training, to judge the next log point by."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

KEPT = 5  # log points over which a trend is judged


@dataclass
class Course:
    """A training so far, as far as alarms need it.

    Attributes:
        first_norm: mean norm of the embeddings at the first observation.
        first_size: of the weights at the start.
        growth: of the weights since then.
        angle: radians per step at the newest log point that has them.
        top_angle: the highest so far.
        angles: how many log points had an angle.
        reach: the angle between the two newest log points.
        wild: the number of newest log points in a row with a high angle.
        ranks: the newest ranks.
        together: the number of newest observations in a row with a high mean cosine.
        lr: the newest rate.
        rising: whether it is above the one before, as in a warm-up.
    """

    first_norm: float = math.nan
    first_size: float = math.nan
    growth: float = 1.0
    angle: float = math.nan
    top_angle: float = 0.0
    angles: int = 0
    reach: float = 0.0
    wild: int = 0
    ranks: list[float] = field(default_factory=list)
    together: int = 0
    lr: float = 0.0
    rising: bool = False

    def see(self, record: Mapping[str, Any], *, wild: float, together: float) -> None:
        """Take in one observation.

        Args:
            record: its quantities.
            wild: from which angle per step on a log point is counted.
            together: from which mean cosine on an observation is counted.
        """
        norm, cosine = record.get("norm_mean", math.nan), record.get("mean_cosine", math.nan)
        if math.isnan(self.first_norm) and math.isfinite(norm):
            self.first_norm = norm
        self.together = self.together + 1 if cosine > together else 0
        self.rising, self.lr = record.get("lr", 0.0) > self.lr, record.get("lr", 0.0)
        if "rank" in record:
            self.ranks = [*self.ranks, record["rank"]][-KEPT:]
        angle = record.get("rad_per_step", math.nan)
        if math.isfinite(angle):
            self.angle, self.top_angle = angle, max(self.top_angle, angle)
            self.angles += 1
            self.reach = angle * record["steps_between"]
            self.wild = self.wild + 1 if angle > wild else 0
            self.growth = record["weight_growth"]
            if self.angles == 1:
                self.first_size = record["weight_size"] / self.growth

    def state_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)
