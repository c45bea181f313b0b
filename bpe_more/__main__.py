"""The command line: python -m bpe_more."""

import sys

from bpe_more import main

sys.exit(main())
