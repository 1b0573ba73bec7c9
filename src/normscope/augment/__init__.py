"""SimCLR's augmentations, batched on the device, every image with its own parameters.

What is random (`draw`, from an explicit generator) is apart from what is done with it (`crop` and
`colour`): those two compile into one graph and never wait for the device, a batch can be split,
and a view can be made again.
"""

from normscope.augment.presets import PRESETS
from normscope.augment.views import DRAWS, Augmentation, Parameters

__all__ = ["DRAWS", "PRESETS", "Augmentation", "Parameters"]
