"""Programs compiled for chips that are not there: by the chips' own compiler, and run on shapes alone."""

from drumline.distribute.planning.chips import Chips, add_gpu_compiler, compiler_environment
from drumline.distribute.planning.shapes import Stop, run_on_shapes

__all__ = ["Chips", "Stop", "add_gpu_compiler", "compiler_environment", "run_on_shapes"]
