"""`python -m dualpca` is the command line."""

from dualpca.app.cli import main

if __name__ == "__main__":
    main()
