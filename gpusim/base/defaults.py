"""Axes that are named only where they say something: a run that does not name one has this.

They came after results, hashes and files without them were there, and those stay as they are.
"""

LATER = {
    "transform": "none", "grain": "tensor", "tiers": "host", "unified": "none", "plan": "none", "release": "none",
    "share": "sms, memory, engines", "active_thread_percentage": "100",
    "parallel": "none", "placement": "packed", "stragglers": "none", "fold": "False", "pool": "none",
    "beside": "none", "tenancy": "exclusive",
}  # fmt: skip
