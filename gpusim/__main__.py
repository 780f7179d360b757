"""`python -m gpusim`: the command line."""

from gpusim.cli.app import main

main()
