"""What the processes of one host share: run directories and spool on its disk, messages, clocks, processes."""
