"""`python -m dualpca` is the command line."""

from dualpca.cli import main

if __name__ == "__main__":
    main()
