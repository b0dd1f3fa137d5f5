"""The browser of the dashboard's tests."""

from tests.dashboard.conftest import browser, served, visit

__all__ = ["browser", "served", "visit"]
