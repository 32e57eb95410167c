"""`python -m regard`, and the `regard` command: a user's mistake is one sentence and exit code 2, never a traceback."""

import os
import sys

from regard.cli import app
from regard.errors import RegardError


def main() -> None:
    """Run the command line."""
    try:
        app()
    except RegardError as error:
        sys.stderr.write(f"regard: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write("regard: stopped.\n")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away (`regard translate ... | head`): nothing to say, and nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
