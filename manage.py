#!/usr/bin/env python
"""Every process of the platform starts here: ``manage.py <name>``."""

from backendai.ops.run.manage import main

if __name__ == "__main__":
    main()
