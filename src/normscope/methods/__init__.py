"""Self-supervised methods, one file each; a new one is a file and a line here."""

from normscope.methods.base import Defaults, Method, Recipe, StepOutput, Tiny, width_of
from normscope.methods.byol import BYOL
from normscope.methods.dino import DINO
from normscope.methods.moco import MoCoV2, MoCoV3
from normscope.methods.simclr import SimCLR
from normscope.methods.simsiam import SimSiam
from normscope.methods.supcon import SupCon
from normscope.methods.vicreg import VICReg

METHODS: dict[str, type[Method]] = {
    "simclr": SimCLR,
    "simsiam": SimSiam,
    "byol": BYOL,
    "moco_v2": MoCoV2,
    "moco_v3": MoCoV3,
    "dino": DINO,
    "supcon": SupCon,
    "vicreg": VICReg,
}

__all__ = ["METHODS", "Defaults", "Method", "Recipe", "StepOutput", "Tiny", "width_of"]
