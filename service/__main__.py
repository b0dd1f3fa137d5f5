"""`python -m service` is `rarestream`."""

from service.cli import main

if __name__ == "__main__":
    main()
