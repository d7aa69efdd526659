"""What holds for all tests."""

from hypothesis import settings

# A machine that does other work as well is slow at times, and right all the same.
settings.register_profile("reexpand", deadline=None)
settings.load_profile("reexpand")
