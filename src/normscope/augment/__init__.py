"""SimCLR's augmentations, batched on the device, every image with its own parameters.

Random draws (`draw`, from an explicit generator) are separate from the operations (`crop` and
`colour`). These compile into one graph and never wait for the device. A batch can be split, and a
view can be recomputed.
"""

from normscope.augment.presets import PRESETS
from normscope.augment.views import DRAWS, Augmentation, Parameters

__all__ = ["DRAWS", "PRESETS", "Augmentation", "Parameters"]
