"""What holds for all tests."""

import os

from hypothesis import settings

# A machine that does other work as well is slow at times, and right all the same. The examples of the usual run are the
# same each time; who asks for a number of them (make test-histories) gets new ones.
settings.register_profile("reexpand", deadline=None, derandomize="REEXPAND_EXAMPLES" not in os.environ)
settings.load_profile("reexpand")
