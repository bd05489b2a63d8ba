"""`python -m slimpack` and the command `slimpack` of a wheel: the program of the package."""
import os
import sys

from .commands import program


def main() -> None:
    """Becomes the program, with the same arguments."""
    path = program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
