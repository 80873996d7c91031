"""`python -m drumline.cli`: the `drumline` command where no script is on the path."""

from drumline.cli.main import main

main()
