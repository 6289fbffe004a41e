"""The command `minerva`, as `python -m minerva` and as the script of the wheel: this process becomes it."""
import os
import sys

from ._library import command


def main() -> None:
    path = command()
    try:
        os.execvp(path, [path] + sys.argv[1:])
    except OSError as e:
        sys.exit("minerva: %s cannot be started: %s" % (path, e))


if __name__ == "__main__":
    main()
