"""Decorators for one's own policies: `from gpusim import policy`, then `@policy.evict` above a function or a class.

See docs/policies.md.  Importing this module is cheap: nothing is compiled until a run names the policy.
"""

from gpusim.policies.user import evict, place, plan, prefetch, release

__all__ = ["evict", "place", "plan", "prefetch", "release"]
