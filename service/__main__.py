"""`python -m service` is `rarestream`."""

from service.cli.main import main

if __name__ == "__main__":
    main()
