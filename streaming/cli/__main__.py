"""`python -m streaming.cli` is the `reexpand` command."""

from streaming.cli import main

main()
