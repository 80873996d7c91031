"""The examples of the three pages that Drumline re-creates, ported line by line under one table of substitutions."""
