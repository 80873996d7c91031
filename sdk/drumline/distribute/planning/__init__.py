"""Programs compiled for chips that are not there: by the chips' own compiler, and run on shapes alone."""

from drumline.distribute.planning.chips import Chips, add_gpu_compiler, compiler_environment
from drumline.distribute.planning.shapes import Stop, run_on_shapes
from drumline.distribute.planning.unread_numbers import Unread

__all__ = ["Chips", "Stop", "Unread", "add_gpu_compiler", "compiler_environment", "run_on_shapes"]
