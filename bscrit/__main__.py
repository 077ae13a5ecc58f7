"""`python -m bscrit` is `bscrit`."""

from bscrit.cli import main

main()
