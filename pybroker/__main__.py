"""`python -m pybroker` is the `pybroker` command."""

from pybroker.cli.main import main

if __name__ == "__main__":
    main()
