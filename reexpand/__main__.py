"""`python -m reexpand`: the `reexpand` command."""

from reexpand import main

main()
