"""Training runs: a spec, one loop, and a folder that survives interruptions."""

from normscope.engine.advise import advise
from normscope.engine.compose import build
from normscope.engine.encoder import Embedded, Encoder, load_encoder
from normscope.engine.evaluate import evaluate, made_with
from normscope.engine.hub import write_hub_folder
from normscope.engine.interrupts import Stopped
from normscope.engine.run import train
from normscope.engine.run_folder import InUseError, RunFolder, RunResult
from normscope.engine.spec import RunSpec
from normscope.engine.timm_file import write_timm
from normscope.monitors import RangeTest

__all__ = [
    "Embedded",
    "Encoder",
    "InUseError",
    "RangeTest",
    "RunFolder",
    "RunResult",
    "RunSpec",
    "Stopped",
    "advise",
    "build",
    "evaluate",
    "load_encoder",
    "made_with",
    "train",
    "write_hub_folder",
    "write_timm",
]
